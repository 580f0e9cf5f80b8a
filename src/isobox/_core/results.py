"""What operations return."""

from __future__ import annotations

import signal as _signal
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from typing_extensions import override

from isobox._core.paths import shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from typing import Self

    from isobox._core.network import Denial

Kind = Literal["file", "directory", "symlink", "fifo", "socket", "device"]

#: What the kernel calls a name of the file system, decoded so that any byte
#: survives: bytes that are not UTF-8 become lone surrogates (PEP 383).
PATH_ERRORS: Final = "surrogateescape"

#: Characters of an output that the `repr` of a result shows.
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Captured:
    """The head and the tail of an output, with its exact length.

    Attributes:
        head: The first bytes, as many as the limit allowed.
        tail: The last bytes, empty unless something was left out.
        total: How many bytes the program wrote.
    """

    head: bytes = b""
    tail: bytes = b""
    total: int = 0

    @property
    def data(self) -> bytes:
        """Head and tail, joined without a mark."""
        return self.head + self.tail if self.tail else self.head

    @property
    def omitted(self) -> int:
        """How many bytes between head and tail were not kept."""
        return self.total - len(self.head) - len(self.tail)

    @property
    def text(self) -> str:
        """Decoded as UTF-8 (bad bytes as U+FFFD), the gap named where it is."""
        head = self.head.decode("utf-8", "replace")
        if not self.omitted:
            return head + self.tail.decode("utf-8", "replace")
        tail = self.tail.decode("utf-8", "replace")
        return f"{head}\n[... {self.omitted} bytes omitted ...]\n{tail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a command ended.

    Attributes:
        exit_code: 0 to 255; 128 + number when a signal ended it, 127 when the
            program was not found, 126 when it could not be executed.
        signal: Name of the signal that ended it, such as `SIGKILL`.
        timed_out: It was killed because `timeout` ran out.
        idle_timed_out: It was killed because it printed nothing for too long.
        oom_killed: It was killed for want of memory.
        limit: The limit that it failed at, where that is known: `memory`,
            `processes`, `disk`, `cpu` or `file_size`.
        background: Processes that it started are still running.
        duration: Seconds from start to end.
        stdout: The captured output; None when it was streamed.
        stderr: The captured errors; None when they were streamed.
        spool: Where the full output was written inside, if that was asked.
    """

    exit_code: int
    signal: str | None = None
    timed_out: bool = False
    idle_timed_out: bool = False
    oom_killed: bool = False
    limit: str | None = None
    background: bool = False
    duration: float = 0.0
    stdout: Captured | None = None
    stderr: Captured | None = None
    spool: str | None = None


def signal_name(number: int) -> str:
    """Name a signal as the shell does; real-time ones by number."""
    try:
        return _signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The outcome of `run`.

    Attributes:
        exit_code: As a shell reports it: 128 + number for a signal, 127 for a
            program that was not found.
        signal: Name of the signal that ended the command, or None.
        output: Captured standard output.
        errors: Captured standard error.
        timed_out: `timeout` or `idle_timeout` ran out; the output is partial.
        idle_timed_out: It was `idle_timeout` that ran out.
        oom_killed: It was killed for want of memory.
        limit: The limit that it failed at, where that is known: `memory`,
            `processes`, `disk`, `cpu` or `file_size`.
        background: Processes that it left are still running.
        duration: Seconds from start to end.
        spool: Path inside the workspace of the full output, if asked for.
        denials: Connections from the workspace that the network filter refused
            meanwhile, or could not make.
    """

    exit_code: int
    signal: str | None = None
    output: Captured = field(default_factory=Captured, repr=False)
    errors: Captured = field(default_factory=Captured, repr=False)
    timed_out: bool = False
    idle_timed_out: bool = False
    oom_killed: bool = False
    limit: str | None = None
    background: bool = False
    duration: float = 0.0
    spool: str | None = None
    denials: tuple[Denial, ...] = ()

    @override
    def __repr__(self) -> str:
        told = [f"exit_code={self.exit_code}"]
        for name in ("stdout", "stderr"):
            text: str = getattr(self, name)
            told.append(f"{name}={text[:_SHOWN]!r}{'...' * (len(text) > _SHOWN)}")
        for each in fields(self):
            value: object = getattr(self, each.name)
            if each.repr and value != each.default and each.name != "exit_code":
                told.append(f"{each.name}={value!r}")
        return f"RunResult({', '.join(told)})"

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with status 0."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD."""
        return self.output.text

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are not UTF-8 become U+FFFD."""
        return self.errors.text

    @property
    def stdout_bytes(self) -> bytes:
        """Standard output as the program wrote it, head and tail if cut."""
        return self.output.data

    @property
    def stderr_bytes(self) -> bytes:
        """Standard error as the program wrote it, head and tail if cut."""
        return self.errors.data

    @property
    def stdout_total(self) -> int:
        """Bytes that the program wrote to standard output."""
        return self.output.total

    @property
    def stderr_total(self) -> int:
        """Bytes that the program wrote to standard error."""
        return self.errors.total

    @property
    def truncated(self) -> bool:
        """Whether some of the output was not kept."""
        return bool(self.output.omitted or self.errors.omitted)


class Entry(NamedTuple):
    """One name in the file system, described without following a link.

    Attributes:
        path: Absolute path inside the sandbox.
        kind: What it is; `symlink` is the link itself.
        size: Length in bytes.
        mode: Permission bits, such as 0o644.
        mtime_ns: Last change, nanoseconds since 1970.
        uid: Owner as the sandbox sees it.
        gid: Group as the sandbox sees it.
        target: Where a symlink points, as written in it.
        digest: SHA-256 of the content in hex, when the operation computed it.
    """

    path: str
    kind: Kind
    size: int
    mode: int
    mtime_ns: int
    uid: int = 0
    gid: int = 0
    target: str | None = None
    digest: str | None = None

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def mtime(self) -> float:
        """Last change, seconds since 1970."""
        return self.mtime_ns / 1e9

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.kind == "file"

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.kind == "directory"


@dataclass(frozen=True, slots=True)
class Listing:
    """What a scan found.

    Attributes:
        entries: In path order, or the newest first where that was asked.
        truncated: There are more than the limit let through.
        total: How many there are, before offset and limit; None where the
            scan ended before it knew.
    """

    entries: tuple[Entry, ...]
    truncated: bool = False
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """One line that a search found; one file in the modes `files` and `count`.

    Attributes:
        path: Absolute path inside the sandbox.
        line: Line number, from 1; 0 for a file.
        text: The line without its end, or the lines that a multi-line match
            touches; bytes that are not UTF-8 are U+FFFD. Empty for a file.
        before: Context lines before it.
        after: Context lines after it.
        count: How many matches a file has, in the mode `count`; else 1.
    """

    path: str
    line: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class Matches:
    """What a search found.

    Attributes:
        matches: The lines, or files, in path order.
        files: How many files were searched.
        truncated: The limit or the time ran out before the end.
        skipped: Files that could not be read.
        timed_out: It was the time.
        partial: Files over 64 MiB that were not searched to the end: those in
            which a match may be across lines, those in UTF-16, and those with
            NUL bytes or a line of such a length further down.
    """

    matches: tuple[Match, ...]
    files: int = 0
    truncated: bool = False
    skipped: tuple[str, ...] = ()
    timed_out: bool = False
    partial: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some lines of a text file, or what else a file turned out to be.

    Attributes:
        entry: The file, with the digest of its whole content; of what is over 1 GiB
            and no text it may be missing.
        lines: Without their ends; longer ones are clipped. They are fewer than
            asked where they would be over 4 Mi characters together.
        first: Number of the first of them, from 1.
        total: How many lines the file has.
        clipped: Numbers of the lines that were clipped.
        encoding: `utf-8`, `utf-8-sig`, `utf-16-le`, `utf-16-be` or `latin-1`.
        newline: How lines end: LF, CRLF, `mixed`, or "" if there is but one.
        final_newline: Whether the last line has an end.
        media_type: What the first bytes say: `text/plain`, `image/png`,
            `application/pdf`, `application/octet-stream`, ...
        data: The content of an image, if it was not too large.
    """

    entry: Entry
    lines: tuple[str, ...] = ()
    first: int = 1
    total: int = 0
    clipped: tuple[int, ...] = ()
    encoding: str = "utf-8"
    newline: str = "\n"
    final_newline: bool = True
    media_type: str = "text/plain"
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Patched:
    """What a patch did: the files that it wrote, and those that it removed."""

    written: tuple[Entry, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edited:
    """The outcome of an edit.

    Attributes:
        entry: The file as it is now, with digest.
        replacements: How often text was replaced.
        diff: What changed as a unified diff, cut at 64 KiB; empty for a file
            of over 4 MiB, and for one that is no text.
        line: Number of the first line that changed, from 1; 0 if none did.
    """

    entry: Entry
    replacements: int
    diff: str = ""
    line: int = 0


class Ongoing:
    """A result that ends later; `on_end` hooks run once, when it does."""

    def __init__(self) -> None:
        self._hooks: list[Callable[[dict[str, object]], None]] = []
        self._facts: dict[str, object] | None = None

    def on_end(self, hook: Callable[[dict[str, object]], None]) -> None:
        """Call `hook` with facts about the end, at once if it has ended."""
        if self._facts is not None:
            hook(self._facts)
        else:
            self._hooks.append(hook)

    def _ended(self, facts: dict[str, object]) -> None:
        if self._facts is not None:
            return
        self._facts = facts
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook(facts)


class ByteStream(Ongoing, ABC):
    """Bytes that arrive in pieces; closing it early frees the sandbox's side.

    Attributes:
        lost: Bytes that were asked for and are no longer kept: those before the
            first that arrives. Only what `attach` returns may have lost some.
    """

    lost: int = 0

    @abstractmethod
    async def receive(self) -> bytes:
        """Return the next piece, b"" at the end."""

    def receive_nowait(self) -> bytes:
        """Return everything that has arrived, without waiting."""
        return b""

    @abstractmethod
    async def aclose(self) -> None:
        """Stop reading and release what the stream holds."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.receive():
            yield piece

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def read(self) -> bytes:
        """Return everything up to the end."""
        pieces: list[bytes] = []
        while piece := await self.receive():
            pieces.append(piece)
        return b"".join(pieces)


class Connection(ByteStream):
    """A TCP connection of which one end is inside the sandbox."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Send all of `data`, waiting while the other side is slow."""

    @abstractmethod
    async def send_eof(self) -> None:
        """Tell the other side that nothing more will be sent."""

    async def abort(self) -> None:
        """Close it so that the other side sees that it was broken off."""
        await self.aclose()


class Listener(Ongoing, ABC):
    """A port of the loopback inside.

    Attributes:
        port: Its number.
    """

    port: int

    @abstractmethod
    async def accept(self) -> Connection:
        """Return the next connection that is made to it.

        Raises:
            SandboxLostError: The sandbox is gone.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close the port; connections that were accepted go on."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Process(Ongoing, ABC):
    """A running command.

    Attributes:
        id: Names it within its workspace.
        pid: Its process id as the sandbox sees it, 0 if it never started.
        stdout: Its standard output; everything when it runs on a tty.
        stderr: Its standard error; empty on a tty.
        report: Its descriptor 3, where that was asked for.
    """

    id: str
    pid: int
    stdout: ByteStream
    stderr: ByteStream
    report: ByteStream

    _on_print: Callable[[int], None] | None = None

    def _printed(self, count: int) -> None:
        """Tell of captured output, as often as `Spawn.meter` asks."""
        if self._on_print is not None:
            self._on_print(count)

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Write all of `data` to its standard input."""

    def write_nowait(self, data: bytes) -> bool:
        """Write all of `data` if that takes no waiting, else nothing.

        Returns:
            Whether it was written. This one leaves it to `write`.
        """
        del data
        return False

    @abstractmethod
    async def write_eof(self) -> None:
        """Close its standard input; on a tty, send end-of-file."""

    @abstractmethod
    async def wait(self) -> Exit:
        """Return how it ended, waiting until it has."""

    @abstractmethod
    async def signal(self, number: int) -> None:
        """Send a signal to its process group; no effect once it has ended."""

    @abstractmethod
    async def kill(self) -> None:
        """Kill it and every descendant; they are gone when this returns."""

    @abstractmethod
    async def resize(self, columns: int, rows: int) -> None:
        """Change the size of its tty."""

    @abstractmethod
    async def aclose(self) -> None:
        """Kill it if it still runs, and release its streams."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self.stdout:
            yield piece


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A command of a workspace, running or lately ended.

    Attributes:
        id: What `attach` takes.
        command: The begin of its script, or of its argv.
        cwd: Directory in which it was started.
        since: When that was, in seconds since 1970.
        end: How it ended, without its output; None as long as it runs.
    """

    id: str
    command: str | tuple[str, ...]
    cwd: str
    since: float
    end: Exit | None = None


class Turn(Ongoing):
    """A script in a persistent shell, from its sending to its status."""

    def end(self, facts: Mapping[str, object]) -> None:
        """Tell how it ended; the first time counts."""
        self._ended(dict(facts))


ChangeKind = Literal["added", "modified", "removed"]


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs between a workspace and its directory.

    Attributes:
        path: Relative to the workspace's root.
        change: What became of it.
        kind: What it is now; what it was if it was removed.
        refused: Why it may not come to the host, or None if it may.
        text: A unified diff, where both are text of moderate length.
        mode: Permission bits of a file or a directory, as they are now.
        old_mode: As they were.
        size: Bytes of a file that is there now.
        digest: SHA-256 of its content in hex, where that was asked.
        target: Where a link leads.
    """

    path: str
    change: ChangeKind
    kind: Kind
    refused: str | None = None
    text: str | None = None
    mode: int | None = None
    old_mode: int | None = None
    size: int | None = None
    digest: str | None = None
    target: str | None = None

    @override
    def __str__(self) -> str:
        more = "; ".join(self._more())
        line = f"{self.change} {self.kind} {shown(self.path)}"
        return f"{line} ({more})" if more else line

    def _more(self) -> Iterator[str]:
        if self.target is not None:
            yield f"leads to {shown(self.target)}"
        if self.size is not None and not self.is_shown:
            yield f"{self.size} bytes"
        if self.digest is not None and not self.is_shown:
            yield f"SHA-256 {self.digest}"
        if self.mode is not None and self.mode != self.old_mode:
            before = "" if self.old_mode is None else f"{self.old_mode:04o} -> "
            yield f"mode {before}{self.mode:04o}"
        if self.refused is not None:
            yield f"refused: {self.refused}"

    @property
    def is_shown(self) -> bool:
        """Whether the text shows the content, before and after."""
        return self.text is not None and self.text.startswith("--- ")

    @property
    def is_plain(self) -> bool:
        """Whether the text shows all that there is to know."""
        runs = self.mode is not None and bool(self.mode & 0o111)
        same_mode = not runs if self.old_mode is None else self.mode == self.old_mode
        return self.is_shown and self.refused is None and same_mode


@dataclass(frozen=True, slots=True)
class Changes:
    """What a private view of a directory has that the directory has not.

    As a string it is a patch of what is text; before that stands a line for each
    change of which a patch does not show all: binary and large files, modes,
    links, directories.

    Attributes:
        changes: Sorted by path.
        truncated: There were more than were looked at.
    """

    changes: tuple[Change, ...]
    truncated: bool = False

    @override
    def __str__(self) -> str:
        lines = [f"{change}\n" for change in self.changes if not change.is_plain]
        if self.truncated:
            lines.append("[there are more changes than were looked at]\n")
        return "".join(lines + [change.text or "" for change in self.changes])


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a sandbox uses of the host; None where the backend cannot tell.

    Attributes:
        memory: Bytes.
        cpu: Seconds of processor time since its start.
        processes: Alive now, the guest's own included.
        disk: Bytes below the workspace's root and in its private places.
    """

    memory: int | None = None
    cpu: float | None = None
    processes: int | None = None
    disk: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A saved state of a workspace's files.

    Attributes:
        id: Names it.
        size: Bytes that it occupies.
        created: Seconds since 1970.
    """

    id: str
    size: int
    created: float
