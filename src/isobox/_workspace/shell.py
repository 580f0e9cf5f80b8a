"""Shells that keep their state between commands."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from isobox._channel.background import collapsed
from isobox._core.ops import Script
from isobox._core.results import Captured, Exit, RunResult
from isobox._layers.limits import bounded
from isobox._workspace.outcome import checked
from isobox.errors import (
    BudgetError,
    ConflictError,
    InvalidArgumentError,
    LimitError,
    PolicyDeniedError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Self

    from isobox._core.network import Denial
    from isobox._core.results import ByteStream, Process, Turn
    from isobox._core.spec import Limits

#: Scripts come on standard input, each ended by a NUL; before the first, a word that
#: begins every report. After each, its status and the processes that run in the
#: background go out on descriptor 3. Commands get neither of the two. Scripts are
#: read as bytes: in UTF-8, half a character at the end would swallow the NUL behind
#: it. What traps print and `set -x` shows of the driver itself goes to /dev/null.
_REPORT: Final = (
    'builtin printf \'\\0%s %s %s\\n\' "$__isobox_word" "$__isobox_turn" "$?" >&9 && '
    "builtin jobs -rp >&9 && "
    "builtin printf '\\0%s\\0' \"$__isobox_word\" >&9 && "
)
#: It ends with what fails as long as nothing takes the place of `builtin`, and no
#: trap or option keeps commands from running: a shell that does goes no further.
_NEXT: Final = (
    "LC_ALL=C IFS= builtin read -r -d '' __isobox_script <&8 && "
    "(( ++__isobox_turn )) && ! builtin false; "
)
_DRIVER: Final = (
    "exec 7>/dev/null 8<&0 9>&3 3>&- </dev/null; "
    "LC_ALL=C IFS= builtin read -r -d '' __isobox_word <&8; __isobox_turn=0; "
    # Not even a redirection that fails has the loop go on.
    f"until ! {{ {{ {_REPORT}{_NEXT}}} >&7 2>&1; }}; do "
    'builtin eval "$__isobox_script" 7>&- 8<&- 9>&-; '
    "done; "
    "{ builtin printf '\\0%s lost %s\\0' "
    '"$__isobox_word" "$__isobox_turn" >&9; } >&7 2>&1; '
    "[[ '' ]]"
)
_LONGEST_REPORT: Final = 1 << 16
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Sink(Protocol):
    """Takes all that a command prints, while it arrives."""

    def put(self, data: bytes) -> None:
        """Take a piece."""

    async def room(self) -> None:
        """Wait until there is room for the next."""


class Shell:
    """A bash that keeps its working directory, variables and functions.

    Commands run one after another; a second caller waits for its turn. A
    command that ends the shell, or is killed by its timeout, ends the state
    with it: the next one starts in a new shell.

    Attributes:
        session_id: Its name within the workspace.
        fresh: Whether the next command starts a new shell.
    """

    def __init__(
        self,
        start: Callable[[Sequence[str], str], Awaitable[Process]],
        perform: Callable[[Script], Awaitable[Turn]],
        session_id: str,
        *,
        limits: Limits,
        denials: Callable[[float], tuple[Denial, ...]],
    ) -> None:
        if not _ID.fullmatch(session_id):
            raise InvalidArgumentError(
                f"session_id={session_id!r}: use letters, digits, '.', '_' and '-', "
                "at most 64"
            )
        self.session_id = session_id
        self._start = start
        self._perform = perform
        self._limits = limits
        self._denials = denials
        self._process: Process | None = None
        self._reports = _Reports()
        self._background: frozenset[bytes] = frozenset()
        self._lock = anyio.Lock()

    @property
    def fresh(self) -> bool:
        """Whether the next command starts a new shell."""
        return self._process is None

    async def run(
        self,
        script: str,
        *,
        timeout: float | None = None,
        output_limit: int | None = None,
        check: bool = False,
    ) -> RunResult:
        """Run a script in this shell and return what it printed.

        Args:
            script: Text for bash, of any number of lines.
            timeout: Seconds until it is killed, and the shell with it.
            output_limit: Bytes kept of each output.
            check: Raise when it fails.

        Raises:
            CommandFailedError: `check`, and the status is not 0.
            TimedOutError: `check`, and the time ran out.
            LimitError: `timeout` is over the workspace's.
            PolicyDeniedError: The policy denies it; the shell goes on.
            ConflictError: An earlier one broke the shell; this one was not run, and
                the next starts in a new shell.
            UnsupportedError: There is no bash in the sandbox.
            SandboxLostError: The sandbox is gone.
        """
        keep = self._limits.output if output_limit is None else output_limit
        result = await self._run_into(None, script, timeout=timeout, keep=keep)
        return checked(result, script, check=check)

    async def _run_into(
        self, sink: Sink | None, script: str, *, timeout: float | None, keep: int
    ) -> RunResult:
        """Run a script, and give a sink everything that it prints."""
        if "\0" in script:
            raise InvalidArgumentError("the script holds a NUL byte")
        timeout = bounded(self._limits, timeout)
        async with self._lock:
            began = time.monotonic()
            try:
                result = await self._turn(sink, script, timeout, keep)
                return replace(result, denials=self._denials(began))
            except (PolicyDeniedError, LimitError) as error:
                # Nothing was sent, and the shell is as it was; unless it printed
                # more than the budget has.
                if isinstance(error, BudgetError):
                    await self.aclose()
                raise
            except BaseException:
                await self.aclose()
                raise

    async def restart(self) -> None:
        """End the shell with all that it runs; the next command starts anew."""
        async with self._lock:
            await self.aclose()

    async def aclose(self) -> None:
        """End the shell with all that it runs; safe to call again."""
        process, self._process = self._process, None
        if process is not None:
            with anyio.CancelScope(shield=True):
                await process.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _turn(
        self, sink: Sink | None, script: str, timeout: float | None, keep: int
    ) -> RunResult:
        process = await self._running()
        started = time.monotonic()
        printing = _Printing(process, keep, sink, self._reports)
        op = Script(process=process, session_id=self.session_id, script=script)
        turn: Turn | None = None
        try:
            with anyio.move_on_after(timeout) as scope:
                turn = await self._perform(op)
                self._reports.begin()
                await printing.run()
            late = scope.cancelled_caught
            end = await self._ending(process, printing, late=late)
        except BaseException as error:
            if turn is not None:
                turn.end({"error": type(error).__name__})
            raise
        result = RunResult(
            exit_code=end.exit_code,
            signal=end.signal,
            output=printing.output.captured(),
            errors=printing.errors.captured(),
            timed_out=late,
            background=end.background,
            duration=time.monotonic() - started,
        )
        if turn is not None:
            turn.end(_facts(result))
        return result

    async def _ending(
        self, process: Process, printing: _Printing, *, late: bool
    ) -> Exit:
        if late:
            return await self._killed(process, printing)
        status = self._reports.status
        if status is None:
            return await self._over(process)
        return Exit(exit_code=status, background=self._left())

    def _left(self) -> bool:
        """Whether a command left processes that were not there before it."""
        before, self._background = self._background, self._reports.background
        return bool(self._background - before)

    async def _running(self) -> Process:
        if self._process is None:
            self._background = frozenset()
            self._reports = _Reports()
            self._process = await self._start(
                ["bash", "--noprofile", "--norc", "-c", _DRIVER, "bash"],
                f"shell {self.session_id}",
            )
            with contextlib.suppress(BrokenPipeError):
                await self._process.write(self._reports.word + b"\0")
        return self._process

    async def _killed(self, process: Process, printing: _Printing) -> Exit:
        self._process = None
        with anyio.CancelScope(shield=True):
            await process.kill()
            await printing.rest()
        return await process.wait()

    async def _over(self, process: Process) -> Exit:
        self._process = None
        end = await process.wait()
        if end.exit_code == 127 and not process.pid:
            raise UnsupportedError("sessions need bash, and the sandbox has none")
        if self._reports.unread:
            raise ConflictError(
                "an earlier command broke the shell, and this one was not run; the "
                "next command finds a new shell, without its directory and variables"
            )
        return end


class _Printing:
    """What one command of the shell prints, up to its status."""

    def __init__(
        self, process: Process, keep: int, sink: Sink | None, reports: _Reports
    ) -> None:
        self.output = _Keeper(keep)
        self.errors = _Keeper(keep)
        self._sink = sink
        self._process = process
        self._reports = reports

    async def run(self) -> None:
        """Collect until the status comes, or the shell is over."""
        with collapsed():
            async with anyio.create_task_group() as group:
                group.start_soon(self._collect, self._process.stdout, self.output)
                group.start_soon(self._collect, self._process.stderr, self.errors)
                await self._await_status()
                # The guest sends a status behind what was printed before it.
                if self._reports.status is not None:
                    self._keep(self._process.stdout.receive_nowait(), self.output)
                    self._keep(self._process.stderr.receive_nowait(), self.errors)
                    group.cancel_scope.cancel()

    async def rest(self) -> None:
        """Collect what a killed command has left."""
        with collapsed():
            async with anyio.create_task_group() as group:
                group.start_soon(self._collect, self._process.stdout, self.output)
                group.start_soon(self._collect, self._process.stderr, self.errors)

    async def _await_status(self) -> None:
        while piece := await self._process.report.receive():
            if self._reports.take(piece):
                return

    async def _collect(self, stream: ByteStream, keeper: _Keeper) -> None:
        async for piece in stream:
            self._keep(piece, keeper)
            if self._sink is not None:
                await self._sink.room()

    def _keep(self, data: bytes, keeper: _Keeper) -> None:
        keeper.add(data)
        if self._sink is not None:
            self._sink.put(data)


class _Reports:
    """What a shell's driver reports, among what else is written there.

    Attributes:
        word: What begins each; nothing else that writes there knows it by chance.
        status: The present script's status, once that has come.
        background: The processes that ran in the background after it.
    """

    def __init__(self) -> None:
        self.word = secrets.token_hex(8).encode()
        self.status: int | None = None
        self.background: frozenset[bytes] = frozenset()
        self._turn = 0
        self._raw = b""

    @property
    def unread(self) -> bool:
        """Whether the driver has given up before it read the present script."""
        found = re.search(rb"\x00%b lost ([0-9]{1,9})\x00" % self.word, self._raw)
        return found is not None and int(found[1]) < self._turn

    def begin(self) -> None:
        """Wait for the report of the next script."""
        self._turn += 1
        self.status = None

    def take(self, piece: bytes) -> bool:
        """Add what came; returns whether the present script's report is whole."""
        # SAFETY: the workload can write here too, and fools only itself; a report
        # is short.
        self._raw = (self._raw + piece)[-_LONGEST_REPORT:]
        if self.status is None:
            begin = rb"\x00%b %d ([0-9]{1,3})\n" % (self.word, self._turn)
            if (found := re.search(begin, self._raw)) is None:
                return False
            self.status = int(found[1]) & 0xFF
            self._raw = self._raw[found.end() :]
        jobs, end, rest = self._raw.partition(b"\0%b\0" % self.word)
        if not end:
            return False
        self.background = frozenset(filter(bytes.isdigit, jobs.split(b"\n")))
        self._raw = rest
        return True


def _facts(result: RunResult) -> dict[str, object]:
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "background": result.background,
        "stdout_bytes": result.stdout_total,
        "stderr_bytes": result.stderr_total,
    }


class _Keeper:
    """Keeps the head and the tail of an output."""

    def __init__(self, keep: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._room = keep - keep // 2
        self._keep = keep // 2
        self._total = 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        taken = data[: self._room - len(self._head)]
        self._head += taken
        self._tail += data[len(taken) :]
        if len(self._tail) > 2 * self._keep + (1 << 16):
            del self._tail[: len(self._tail) - self._keep]

    def captured(self) -> Captured:
        over = max(0, len(self._tail) - self._keep)
        tail = bytes(self._tail[over:])
        if len(self._head) + len(tail) == self._total:
            return Captured(bytes(self._head) + tail, b"", self._total)
        return Captured(bytes(self._head), tail, self._total)
