"""Operations: each thing that can happen in a sandbox, as frozen data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from typing_extensions import override

from isobox._core.results import (
    ByteStream,
    Change,
    Changes,
    Connection,
    Edited,
    Entry,
    Listener,
    Listing,
    Matches,
    Ongoing,
    Page,
    Patched,
    Process,
    ProcessInfo,
    SnapshotRef,
    Turn,
)

if TYPE_CHECKING:
    from isobox._core.patch import FileChange
    from isobox._core.sandbox import Sandbox

R_co = TypeVar("R_co", covariant=True)

#: Content to write: bytes at hand, or pieces that arrive.
Body = bytes | AsyncIterable[bytes]

#: What a search returns.
SearchMode = Literal["content", "files", "count"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path of an operation leads, once links are followed.

    Attributes:
        path: The path, as the operation has it.
        follow: Whether its last name is followed too, if that is a link.
        real: The path without links, as the sandbox told it.
    """

    path: str
    follow: bool
    real: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Op(ABC, Generic[R_co]):
    """One thing that can happen in a sandbox.

    Attributes:
        inside: Whether it needs the sandbox, and not only its workspace.
        caller: The model's tool that performs it; None for the program around.
        places: Where its paths lead, as the policy has decided on; the sandbox
            refuses an operation whose paths lead elsewhere by then. Empty where
            no rule is about paths.
    """

    name: ClassVar[str]
    inside: ClassVar[bool] = True

    caller: str | None = field(default=None, repr=False)
    places: tuple[Place, ...] = field(default=(), repr=False)

    @abstractmethod
    async def on(self, sandbox: Sandbox, /) -> R_co:
        """Perform this operation on a sandbox."""


@dataclass(frozen=True, slots=True)
class WindowSize:
    """Size of a terminal in characters."""

    columns: int = 80
    rows: int = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn(Op[Process]):
    """Start a command.

    Attributes:
        argv: Program and arguments, never interpreted. Empty with `script`.
        script: Text for the workspace's shell, of any length.
        cwd: Absolute directory inside the sandbox.
        env: Variables added to the workspace's own; None removes one.
        stdin: Whether standard input is a pipe (else it is at its end).
        tty: Run on a terminal of this size.
        timeout: Seconds until it and its descendants are killed.
        idle_timeout: Seconds without output until the same.
        capture: Bytes kept of each output; None streams it instead.
        spool: Path inside where the full output is written as well.
        user: Name or id to run as, where the backend can.
        limits: Resource limits by name: `as`, `core`, `cpu`, `data`, `fsize`,
            `nofile`, `nproc`, `stack` (bytes, seconds or counts as setrlimit).
        report: Open descriptor 3 of the command as a third output.
        label: What asks for it, for the record: a tool's or server's name.
        declared: Whoever made the workspace has named this command, as an MCP
            server's: a rule that asks is answered by that, one that denies is not.
        meter: Bytes of captured output after which the process tells of them
            (`_printed`); None tells nothing before the end.
    """

    name: ClassVar[str] = "spawn"

    argv: tuple[str, ...] = ()
    script: str | None = None
    cwd: str
    env: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    stdin: bool = False
    tty: WindowSize | None = None
    timeout: float | None = None
    idle_timeout: float | None = None
    capture: int | None = None
    spool: str | None = None
    user: str | None = None
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    report: bool = False
    label: str | None = None
    declared: bool = False
    meter: int | None = None

    @override
    async def on(self, sandbox: Sandbox, /) -> Process:
        return await sandbox.spawn(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach(Op[Process]):
    """Take part in a command that runs, or has lately ended, whoever started it.

    Attributes:
        id: The command's.
        stdout: Bytes of its standard output that are passed over.
        stderr: Bytes of its standard error that are passed over.
    """

    name: ClassVar[str] = "attach"

    id: str
    stdout: int = 0
    stderr: int = 0

    @override
    async def on(self, sandbox: Sandbox, /) -> Process:
        return await sandbox.attach(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(Op[tuple[ProcessInfo, ...]]):
    """List the commands that run, and those that have lately ended."""

    name: ClassVar[str] = "running"

    @override
    async def on(self, sandbox: Sandbox, /) -> tuple[ProcessInfo, ...]:
        return await sandbox.running(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script(Op[Turn]):
    """Give a persistent shell its next script.

    Attributes:
        process: The shell, which reads scripts that NULs end.
        session_id: Its name within the workspace.
        script: Text for it, without a NUL.
        stands_in: The directory that the shell is in, where that was asked.
    """

    name: ClassVar[str] = "script"

    process: Process = field(repr=False)
    session_id: str
    script: str
    stands_in: str | None = None

    @override
    async def on(self, sandbox: Sandbox, /) -> Turn:
        return await sandbox.script(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Op[ByteStream]):
    """Read a regular file, or `length` bytes of it from `offset`."""

    name: ClassVar[str] = "read"

    path: str
    offset: int = 0
    length: int | None = None

    @override
    async def on(self, sandbox: Sandbox, /) -> ByteStream:
        return await sandbox.read(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLines(Op[Page]):
    """Read lines of a text file, and say what kind of file it is.

    Attributes:
        path: Absolute path inside the sandbox.
        start: Number of the first line, from 1; -20 is the last but 19.
        count: The most lines that are returned.
        width: Characters of a line beyond which it is clipped.
    """

    name: ClassVar[str] = "read_lines"

    path: str
    start: int = 1
    count: int = 2000
    width: int = 2000

    @override
    async def on(self, sandbox: Sandbox, /) -> Page:
        return await sandbox.read_lines(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Op[Entry]):
    """Replace a file's content atomically; a symlink is written through.

    Attributes:
        path: Absolute path inside the sandbox.
        body: The new content.
        mode: Permission bits; None keeps those of the file, 0o644 for a new one.
        mtime_ns: Its time of change, nanoseconds since 1970; now if None.
        if_match: SHA-256 in hex of the content to replace; "" means that the
            file must not exist. None writes whatever is there.
        parents: Make missing directories above it.
        append: Add `body`, which is whole lines and at most 16 MiB, to the end
            instead, under a lock that every such writer takes. A last line
            without its end, which a writer left that was killed, is cut off
            first. A link is refused, and `mode` is for a new file.
    """

    name: ClassVar[str] = "write"

    path: str
    body: Body = field(repr=False)
    mode: int | None = None
    mtime_ns: int | None = None
    if_match: str | None = None
    parents: bool = True
    append: bool = False

    @override
    async def on(self, sandbox: Sandbox, /) -> Entry:
        return await sandbox.write(self)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Text to find and what to put there; `every` allows more than one place."""

    old: bytes
    new: bytes
    every: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit(Op[Edited]):
    """Replace pieces of one file, all of them or none, atomically.

    Attributes:
        path: Absolute path inside the sandbox.
        replacements: Applied in turn, each to what the one before it left.
        text: What is replaced is UTF-8 text, found in the decoded file. Where
            lines end with CRLF, LF matches it and becomes it; encoding, byte
            order mark and final newline stay. A file that is no text is
            edited as bytes, as every file is if this is false.
        if_match: SHA-256 in hex of the content to edit; None edits any.
    """

    name: ClassVar[str] = "edit"

    path: str
    replacements: tuple[Replacement, ...]
    text: bool = True
    if_match: str | None = None

    @override
    async def on(self, sandbox: Sandbox, /) -> Edited:
        return await sandbox.edit(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch(Op[Patched]):
    """Change several files, all of them or none.

    Everything is read and matched before anything is written.

    Attributes:
        changes: In turn; a later one may go on with what an earlier one made.
    """

    name: ClassVar[str] = "patch"

    changes: tuple[FileChange, ...]

    @override
    async def on(self, sandbox: Sandbox, /) -> Patched:
        return await sandbox.patch(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Op[Listing]):
    """Describe what is at and below a path, in one round trip.

    Attributes:
        path: Absolute path inside the sandbox.
        depth: 0 describes the path itself, 1 the names in the directory, n
            that many levels; None all of them. Links are not followed below.
        limit: The most entries that are returned.
        offset: Entries that are passed over before the first.
        pattern: Only names that match: `**`, `*`, `?`, `[...]`, `{a,b}`,
            relative to `path`.
        follow: Describe the target when `path` itself is a symlink.
        digest: Compute each regular file's SHA-256.
        ignored: Describe what `.gitignore`, `.ignore` and `.rgignore` files
            leave out, and directories of version control, as well.
        files_only: Only regular files and links.
        newest: The newest first, not in path order.
    """

    name: ClassVar[str] = "scan"

    path: str
    depth: int | None = 1
    limit: int = 100_000
    offset: int = 0
    pattern: str | None = None
    follow: bool = True
    digest: bool = False
    ignored: bool = True
    files_only: bool = False
    newest: bool = False

    @override
    async def on(self, sandbox: Sandbox, /) -> Listing:
        return await sandbox.scan(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search(Op[Matches]):
    """Find lines that match a regular expression, below a path.

    Attributes:
        path: Absolute file or directory inside the sandbox.
        pattern: A Python regular expression, or plain text with `literal`.
        literal: Take `pattern` as text.
        ignore_case: Match letters of either case.
        mode: `content` finds lines; `files` the files that have any; `count`
            these with the number of their matches.
        multiline: Match across lines, with `.` for line ends as well.
        glob: Only files whose path relative to `path` matches.
        types: Only files of these types, such as `py`; see `file_types`.
        ignored: Search what `.gitignore`, `.ignore` and `.rgignore` files leave
            out, and directories of version control, as well.
        hidden: Search names that begin with a dot as well.
        before: Lines of context before each match, at most 100.
        after: Lines of context after each match, at most 100.
        limit: The most matches, or files, that are returned.
        offset: Matches, or files, that are passed over before the first.
        timeout: Seconds after which what was found so far is returned.
    """

    name: ClassVar[str] = "search"

    path: str
    pattern: str
    literal: bool = False
    ignore_case: bool = False
    mode: SearchMode = "content"
    multiline: bool = False
    glob: str | None = None
    types: tuple[str, ...] = ()
    ignored: bool = True
    hidden: bool = True
    before: int = 0
    after: int = 0
    limit: int = 1000
    offset: int = 0
    timeout: float = 30.0

    @override
    async def on(self, sandbox: Sandbox, /) -> Matches:
        return await sandbox.search(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(Op[None]):
    """Remove a file, a link, or a directory (with all in it if `recursive`)."""

    name: ClassVar[str] = "remove"

    path: str
    recursive: bool = False

    @override
    async def on(self, sandbox: Sandbox, /) -> None:
        await sandbox.remove(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull(Op[ByteStream]):
    """Read a file or a tree as a tar stream of paths relative to it.

    Devices, sockets and FIFOs are left out.
    """

    name: ClassVar[str] = "pull"

    path: str

    @override
    async def on(self, sandbox: Sandbox, /) -> ByteStream:
        return await sandbox.pull(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push(Op[int]):
    """Unpack a tar stream into a directory; returns how many members it had.

    Members that leave the directory or go through a link are refused, and so
    are devices; set-id bits are dropped. A link may lead anywhere.

    Attributes:
        path: Absolute directory inside the sandbox.
        body: The tar stream.
        whole: Make the directory whole or not at all: unpack beside it, then
            rename. `new` refuses one that exists; `replace` takes its place.
    """

    name: ClassVar[str] = "push"

    path: str
    body: Body = field(repr=False)
    whole: Literal["new", "replace"] | None = None

    @override
    async def on(self, sandbox: Sandbox, /) -> int:
        return await sandbox.push(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial(Op[Connection]):
    """Connect to a TCP port on the sandbox's own loopback."""

    name: ClassVar[str] = "dial"

    port: int
    host: Literal["127.0.0.1", "::1"] = "127.0.0.1"

    @override
    async def on(self, sandbox: Sandbox, /) -> Connection:
        return await sandbox.dial(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen(Op[Listener]):
    """Open a port of the loopback inside; who connects there reaches the host.

    Attributes:
        port: Its number; 0 lets the sandbox choose one.
    """

    name: ClassVar[str] = "listen"

    port: int = 0

    @override
    async def on(self, sandbox: Sandbox, /) -> Listener:
        return await sandbox.listen(self)


#: How a connection came to the filter: to its HTTP proxy (`http` for a request,
#: `connect` for a tunnel), to its SOCKS5 proxy, caught on its way (`direct`), as
#: a question for a name (`dns`), or through `expose_host_port` (`exposed`).
Via = Literal["http", "connect", "socks5", "direct", "dns", "exposed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect(Op[Ongoing]):
    """Connect from inside to somewhere outside, through the host's filter.

    Attributes:
        host: A name in lower case without a final dot, or an IP address.
        port: The port there.
        via: How it came to the filter.
        method: The request's method, where the filter sees requests.
        target: The request's path and query, likewise.
        reach: What makes the connection, once it is allowed.
    """

    name: ClassVar[str] = "connect"
    inside: ClassVar[bool] = False

    host: str
    port: int
    via: Via
    method: str | None = None
    target: str | None = None
    reach: Callable[[Connect], Awaitable[Ongoing]] = field(compare=False, repr=False)

    @override
    async def on(self, sandbox: Sandbox, /) -> Ongoing:
        return await self.reach(self)


#: What is asked of an MCP server.
Asked = Literal["tool", "resource", "prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool(Op[object]):
    """Ask something of an MCP server.

    What a server says of its own tools, such as that one only reads, is not
    here: nothing is decided by it.

    Attributes:
        server: Its name in this workspace.
        kind: Whether a tool is called, a resource read or a prompt fetched.
        tool: The tool's or prompt's name, or the resource's URI.
        arguments: What it is given.
        remote: Whether the server runs outside the sandbox.
        call: What asks the server, once that is allowed.
    """

    name: ClassVar[str] = "call_tool"
    inside: ClassVar[bool] = False

    server: str
    kind: Asked = "tool"
    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    remote: bool = False
    call: Callable[[CallTool], Awaitable[object]] = field(compare=False, repr=False)

    @property
    def label(self) -> str:
        """What rules know it by, such as `mcp__git__git_log`."""
        what = self.tool if self.kind == "tool" else f"{self.kind}:{self.tool}"
        return f"mcp__{self.server}__{what}"

    @override
    async def on(self, sandbox: Sandbox, /) -> object:
        return await self.call(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Op[None]):
    """Stop at a stage of the work until the policy, or a person, lets it go on.

    Attributes:
        stage: Which, such as `plan` or `apply`.
        text: What there is to judge: the plan, or the changes.
    """

    name: ClassVar[str] = "checkpoint"
    inside: ClassVar[bool] = False

    stage: str
    text: str = ""

    @override
    async def on(self, sandbox: Sandbox, /) -> None:
        del sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Op[SnapshotRef]):
    """Save the workspace's files, outside the sandbox's reach."""

    name: ClassVar[str] = "snapshot"

    @override
    async def on(self, sandbox: Sandbox, /) -> SnapshotRef:
        return await sandbox.snapshot(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(Op[None]):
    """Make the workspace's files those of a snapshot; what came since is gone."""

    name: ClassVar[str] = "restore"

    snapshot: SnapshotRef

    @override
    async def on(self, sandbox: Sandbox, /) -> None:
        await sandbox.restore(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff(Op[Changes]):
    """Compare a private view with the directory that it began as.

    Attributes:
        paths: Only what an `Apply` of these would bring; None compares everything.
        digest: Compute the SHA-256 of each file's content.
    """

    name: ClassVar[str] = "diff"

    paths: tuple[str, ...] | None = None
    digest: bool = False

    @override
    async def on(self, sandbox: Sandbox, /) -> Changes:
        return await sandbox.diff(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply(Op[Changes]):
    """Bring the changes of a private view to its directory, all or none.

    Attributes:
        paths: Only these, and what is below them; None brings everything.
        skip_refused: Leave out what may not come instead of refusing all.
        shown: What a person has seen and allowed; nothing else is applied. None
            where nobody was shown anything.
    """

    name: ClassVar[str] = "apply"

    paths: tuple[str, ...] | None = None
    skip_refused: bool = False
    shown: tuple[Change, ...] | None = field(default=None, repr=False)

    @override
    async def on(self, sandbox: Sandbox, /) -> Changes:
        return await sandbox.apply(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard(Op[None]):
    """Throw the changes of a private view away."""

    name: ClassVar[str] = "discard"

    @override
    async def on(self, sandbox: Sandbox, /) -> None:
        await sandbox.discard(self)


AnyOp = (
    Spawn
    | Attach
    | Running
    | Script
    | Read
    | ReadLines
    | Write
    | Edit
    | Patch
    | Scan
    | Search
    | Remove
    | Pull
    | Push
    | Dial
    | Listen
    | Connect
    | CallTool
    | Checkpoint
    | Snapshot
    | Restore
    | Diff
    | Apply
    | Discard
)

#: Every kind of operation there is.
OPS: tuple[type[Op[object]], ...] = (
    Spawn,
    Attach,
    Running,
    Script,
    Read,
    ReadLines,
    Write,
    Edit,
    Patch,
    Scan,
    Search,
    Remove,
    Pull,
    Push,
    Dial,
    Listen,
    Connect,
    CallTool,
    Checkpoint,
    Snapshot,
    Restore,
    Diff,
    Apply,
    Discard,
)
