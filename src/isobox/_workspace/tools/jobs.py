"""Commands in the background, and the tools that deal with them."""

from __future__ import annotations

import shlex
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import anyio
from typing_extensions import override

from isobox._workspace.tools.ending import ending, network
from isobox._workspace.tools.schema import (
    FARTHEST,
    flag,
    number,
    optional_text,
    text,
    whole,
)
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import MOST_TEXT, count, failed, note, said
from isobox.errors import PathMissingError, UnsupportedError

if TYPE_CHECKING:
    from isobox._core.results import Exit, Process
    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.shell import Shell
    from isobox._workspace.tools.result import ToolResult
    from isobox._workspace.tools.session import Session

#: Bytes of output that one call shows.
_PIECE: Final = MOST_TEXT
_MOST_STATE: Final = 1 << 20
#: Seconds between two looks at an output for a text.
_LOOK: Final = 0.05
#: Seconds within which a job must take its input.
_PATIENCE: Final = 10.0
_MOST_WAIT: Final = 600
_SIGNALS: Final = ("KILL", "TERM", "INT", "HUP", "QUIT", "USR1", "USR2")
#: Without what traps print meanwhile.
_STATE: Final = (
    "{ builtin printf '\\0%s\\0' \"$PWD\" >&3; builtin declare -p >&3; "
    "builtin declare -f >&3; } 3>&1 >/dev/null 2>&1"
)


class Job:
    """A command in the background; all that it prints goes to a file.

    Attributes:
        id: Names it in its session.
        command: The script.
        path: The file of its output.
        position: Bytes of the output that have been shown.
        looked: When its denials were shown, a moment of `time.monotonic`.
        stdin: Whether its standard input is open.
    """

    def __init__(
        self, job_id: str, command: str, process: Process, path: str, *, stdin: bool
    ) -> None:
        self.id = job_id
        self.command = command
        self.path = path
        self.position = 0
        self.looked = time.monotonic()
        self.stdin = stdin
        self.process = process
        self._ended = anyio.Event()
        process.on_end(lambda _: self._ended.set())

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._ended.wait()

    async def end(self) -> Exit | None:
        """Return how it ended, None while it runs.

        Raises:
            PathMissingError: It could not be started in its directory.
            SandboxLostError: The sandbox is gone.
        """
        return None if self.running else await self.process.wait()


async def start_job(
    session: Session, shell: Shell, command: str, *, stdin: bool
) -> ToolResult:
    """Start a command where the session's shell stands, with its variables."""
    preamble = "" if shell.fresh else await _state_of(shell)
    path = session.offload_path()
    process = await session.workspace._spawn(
        preamble + command, stdin=stdin, capture=0, spool=path, label="Bash"
    )
    job = Job(session.new_job_id(), command, process, path, stdin=stdin)
    session.jobs[job.id] = job
    return said(
        note(f"{job.id} runs in the background; its output goes to {path}"),
        metadata={"job_id": job.id, "full_output": path},
    )


async def _state_of(shell: Shell) -> str:
    try:
        result = await shell.run(_STATE, output_limit=_MOST_STATE)
    except UnsupportedError:
        return ""
    parts = result.stdout_bytes.rsplit(b"\0", 2)
    if len(parts) < 3:
        return ""
    _, directory, state = parts
    place = directory.decode("utf-8", "surrogateescape")
    entering = f"cd -- {shlex.quote(place)} || exit\n"
    if result.truncated:
        return entering
    # Some variables are read-only in every shell; they need no restoring.
    kept = shlex.quote(state.decode("utf-8", "surrogateescape"))
    return f"eval {kept} 2>/dev/null\n{entering}"


@dataclass(frozen=True, kw_only=True)
class BashOutputArguments:
    """What BashOutput takes."""

    job_id: str = text("Id that Bash gave, such as job-1.")
    wait: float = number(
        "Seconds to wait at most until the command has ended, or has printed `until`.",
        default=0,
        minimum=0,
        maximum=_MOST_WAIT,
    )
    until: str | None = optional_text(
        'Stop waiting when this text stands in the new output, such as "listening on".'
    )
    offset: int | None = whole(
        "First byte of the output to show. Left out, it goes on where the last call "
        "stopped.",
        default=None,
        minimum=0,
        maximum=FARTHEST,
    )


class BashOutput(SessionTool[BashOutputArguments]):
    """Shows what a job has printed since the last look."""

    name: str = "BashOutput"
    description = (
        "Show what a command in the background has printed since the last call, and "
        f"whether it runs or how it ended; at most {_PIECE:,} bytes a call, nothing "
        "is lost between calls. With `wait` it waits for the end, or for a text."
    )
    read_only: ClassVar[bool] = True
    arguments = BashOutputArguments

    @override
    async def _perform(self, given: BashOutputArguments) -> ToolResult:
        job = self.session.jobs.get(given.job_id)
        if job is None:
            return _unknown(self.session, given.job_id)
        start = job.position if given.offset is None else given.offset
        with anyio.move_on_after(given.wait):
            await _awaited(self.workspace, job, start, given.until)
        if given.offset and given.offset > (size := await _size(self.workspace, job)):
            return failed(
                f"offset={given.offset} is beyond the end: {job.id} has printed "
                f"{count(size, 'byte')}"
            )
        return await report(self.workspace, job, start)


@dataclass(frozen=True, kw_only=True)
class BashInputArguments:
    """What BashInput takes."""

    job_id: str = text("Id that Bash gave, such as job-1.")
    text: str | None = optional_text(
        "What the command is to read, as it stands: end a line with a newline. May "
        "be left out with `end`."
    )
    end: bool = flag("Then close its standard input, so that it reads the end.")


class BashInput(SessionTool[BashInputArguments]):
    """Gives a job something to read."""

    name: str = "BashInput"
    description = (
        "Send text to the standard input of a command in the background that was "
        "started with stdin=true. BashOutput shows what it answers."
    )
    read_only: ClassVar[bool] = False
    arguments = BashInputArguments

    @override
    async def _perform(self, given: BashInputArguments) -> ToolResult:
        if not given.text and not given.end:
            return failed(
                "BashInput was not run: text is missing; give what the command is to "
                "read, or end=true",
                error="arguments",
            )
        job = self.session.jobs.get(given.job_id)
        if job is None:
            return _unknown(self.session, given.job_id)
        if (end := await job.end()) is not None:
            return failed(f"{job.id} has ended and reads nothing: {ending(end)}")
        if not job.stdin:
            return failed(
                f"the standard input of {job.id} is closed; start a command with "
                "run_in_background=true and stdin=true to send it text"
            )
        try:
            taken = await _sent(job, given)
        except BrokenPipeError:
            return failed(
                f"{job.id} has closed its standard input, or ended; BashOutput shows "
                "which"
            )
        if not taken:
            return failed(
                f"{job.id} did not read all of it within {_PATIENCE:g} s; see with "
                "BashOutput what it does"
            )
        closed = " and its standard input was closed" if given.end else ""
        sent = count(len(given.text or ""), "character")
        return said(note(f"{sent} went to {job.id}{closed}"))


async def _sent(job: Job, given: BashInputArguments) -> bool:
    if not job.running:
        raise BrokenPipeError
    with anyio.move_on_after(_PATIENCE) as scope:
        await job.process.write((given.text or "").encode())
        if given.end:
            await job.process.write_eof()
            job.stdin = False
    return not scope.cancelled_caught


@dataclass(frozen=True, kw_only=True)
class BashKillArguments:
    """What BashKill takes."""

    job_id: str = text("Id that Bash gave, such as job-1.")
    signal: str = optional_text(
        "KILL ends the command and everything that it started before this returns; "
        "another signal is sent to its process group, to do as it will.",
        default="KILL",
        choices=_SIGNALS,
    )


class BashKill(SessionTool[BashKillArguments]):
    """Ends a job, or sends it a signal."""

    name: str = "BashKill"
    description = (
        "Kill a command in the background with everything that it started, or send "
        "it a signal. Returns its new output and how it ended."
    )
    read_only: ClassVar[bool] = False
    arguments = BashKillArguments

    @override
    async def _perform(self, given: BashKillArguments) -> ToolResult:
        job = self.session.jobs.get(given.job_id)
        if job is None:
            return _unknown(self.session, given.job_id)
        if given.signal == "KILL":
            await job.process.kill()
            await job.wait()
        elif job.running:
            await job.process.signal(signal.Signals[f"SIG{given.signal}"])
            with anyio.move_on_after(1):
                await job.wait()
        return await report(self.workspace, job)


async def report(
    workspace: WorkspaceBase, job: Job, start: int | None = None
) -> ToolResult:
    """Return a job's output from `start` on and its state; moves its position.

    Without `start` it is what the last call has not shown.
    """
    # Asked before the output is read: what ended then has printed all of it.
    end = await job.end()
    start = job.position if start is None else start
    data = await _output(workspace, job, start, _PIECE + 1)
    piece = data[:_PIECE]
    more = len(data) > _PIECE
    if more or end is None:
        piece = _whole_characters(piece)
    job.position = start + len(piece)
    denials = workspace._denials(job.looked)
    job.looked = time.monotonic()
    state = "is running" if end is None else f"has ended: {ending(end)}"
    lost = end is not None and end.spool is None
    return said(
        piece.decode("utf-8", "replace") or note("no new output"),
        note(f"there is more: call again, or read {job.path}") if more else "",
        note(f"the file system was full: not all is in {job.path}") if lost else "",
        note(f"{job.id} {state}"),
        *network(denials),
        metadata={
            "job_id": job.id,
            "running": end is None,
            "exit_code": None if end is None else end.exit_code,
            "signal": None if end is None else end.signal,
            "offset": start,
            "next_offset": job.position,
            "full_output": job.path,
            "denials": [str(denial) for denial in denials],
        },
    )


async def _output(
    workspace: WorkspaceBase, job: Job, offset: int, length: int
) -> bytes:
    try:
        return await workspace.read_bytes(job.path, offset=offset, length=length)
    except PathMissingError:
        # The command, or another, has removed the file.
        return b""


async def _size(workspace: WorkspaceBase, job: Job) -> int:
    try:
        return (await workspace.stat(job.path)).size
    except PathMissingError:
        return 0


async def _awaited(
    workspace: WorkspaceBase, job: Job, start: int, until: str | None
) -> None:
    if until is None:
        await job.wait()
        return
    wanted = until.encode()
    position, tail = start, b""
    while True:
        running = job.running
        data = await _output(workspace, job, position, 1 << 18)
        if wanted in tail + data or (not data and not running):
            return
        position += len(data)
        tail = (tail + data)[-len(wanted) :]
        if not data:
            with anyio.move_on_after(_LOOK):
                await job.wait()


def _whole_characters(data: bytes) -> bytes:
    """Return UTF-8 without the character at its end that is not all there."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            length = 2 + (lead >= 0xE0) + (lead >= 0xF0) if lead >= 0xC0 else 1
            return data[:-back] if back < length else data
    return data


def _unknown(session: Session, job_id: str) -> ToolResult:
    known = ", ".join(
        f"{job.id} ({'running' if job.running else 'ended'})"
        for job in session.jobs.values()
    )
    there_are = f"there are: {known}" if known else "none was started in this session"
    return failed(f"there is no job {job_id!r}; {there_are}")
