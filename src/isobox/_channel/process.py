"""Commands in the guest, as the host holds them."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, cast

import anyio
from typing_extensions import override

from isobox._channel.deadline import deadline
from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal
from isobox._core.ops import Spawn
from isobox._core.results import ByteStream, Captured, Exit, Process, signal_name
from isobox._guest import agent
from isobox.errors import (
    InvalidArgumentError,
    LimitError,
    ProtocolError,
    SandboxLostError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._channel.stream import Fields, Stream
    from isobox.errors import IsoboxError

#: Seconds that the guest has, beyond a command's timeout, to kill and answer.
_GRACE = 5.0
#: Seconds after which a guest that owes answers is silent, and what that means.
_SILENT = 2.0
_MUTE = "the sandbox does not answer; something outside has stopped or slowed it"


class Piped(ByteStream):
    """One output of a command that is streamed."""

    def __init__(self, process: GuestProcess, number: int) -> None:
        super().__init__()
        self._process = process
        self._number = number
        self._count = 0

    @override
    async def receive(self) -> bytes:
        piece = await self._process.stream.receive(self._number)
        self._count += len(piece)
        if not piece:
            self._ended({"bytes": self._count})
        return piece

    @override
    def receive_nowait(self) -> bytes:
        data = self._process.stream.receive_nowait(self._number)
        self._count += len(data)
        return data

    @override
    async def aclose(self) -> None:
        self._ended({"bytes": self._count})


class GuestProcess(Process):
    """A command in the guest."""

    def __init__(self, stream: Stream, op: Spawn, name: str) -> None:
        super().__init__()
        self.id = name
        self.pid = 0
        self.stream = stream
        self.stdout = Piped(self, agent.STDOUT)
        self.stderr = Piped(self, agent.STDERR)
        self.report = Piped(self, agent.REPORT)
        self._op = op
        self._no_more = False
        self._exit: asyncio.Future[Exit] = stream.channel.loop.create_future()
        self._exit.add_done_callback(_retrieved)
        #: What the host knows of an end that the guest does not.
        self.explain: Callable[[Exit], Exit] = as_it_is
        self._begun: asyncio.Future[None] = stream.channel.loop.create_future()
        stream.on_event = self._event
        window = agent.WINDOW if op.capture is None else op.capture + 1
        for number in (agent.STDOUT, agent.STDERR, agent.REPORT):
            stream.inbox(number, window=window)
        stream.on_answer(self._answered)
        if op.timeout is not None:
            self._overdue = stream.channel.loop.call_later(
                op.timeout + _GRACE, self._late
            )
            self._exit.add_done_callback(lambda _: self._overdue.cancel())

    async def started(self) -> None:
        """Wait until it runs, or is known not to.

        Raises:
            PathMissingError: The working directory does not exist.
            SandboxLostError: The sandbox is gone.
        """
        await asyncio.shield(self._begun)
        if self._exit.done():
            self._exit.result()

    # What the guest says.

    def _event(self, fields: Fields) -> None:
        pid = fields.get("pid")
        if fields.get("event") == "started" and isinstance(pid, int):
            if self._begun.done():
                raise ProtocolError("the guest started a command again")
            self.pid = pid
            self._begin()
        elif fields.get("event") == "exit":
            if "failed" in fields:
                raise ProtocolError("the guest ended what never started")
            if self._exit.done():
                raise ProtocolError("the guest ended a command again")
            self._end(self.explain(_exit(fields, self._op)))
        elif fields.get("event") == "printed" and self._op.meter is not None:
            self._metered(fields.get("bytes"), self._op.meter)
        else:
            raise ProtocolError("the guest reported an unknown event")

    def _metered(self, count: object, least: int) -> None:
        # SAFETY: less than was asked for would keep the host busy for nothing.
        if not isinstance(count, int) or count < least:
            raise ProtocolError("the guest counted output that it was not to count")
        self._printed(count)

    def _answered(self, fields: Fields, failure: BaseException | None) -> None:
        if failure is not None:
            self._fail(failure)
            return
        try:
            end = _exit(fields, self._op)
            end = self.explain(self._with_captured(end, fields))
        except ProtocolError as error:
            self._fail(error)
            self.stream.channel.fail(error)
            return
        except (LimitError, InvalidArgumentError) as error:
            self._fail(error)
            return
        untold = self._tell(exit_facts(end))
        if untold is None:
            self._end(end)
        elif not self._exit.done():
            # An outcome that could not be recorded is not passed off as one.
            self._exit.set_exception(untold)
        self._begin()

    def _tell(self, facts: dict[str, object]) -> Exception | None:
        """Say how it ended; returns what a record failed with."""
        try:
            self._ended(self._counted(facts))
        except Exception as error:  # noqa: BLE001 - it is whoever keeps the record's
            return error
        return None

    def _with_captured(self, end: Exit, fields: Fields) -> Exit:
        reason = _complaint(self._op, fields)
        if self._op.capture is None:
            if reason:
                self.stream.inbox(agent.STDERR).complain(reason)
            return end
        stderr = self._captured(fields, "stderr", agent.STDERR)
        if reason:
            stderr = Captured(reason, b"", len(reason))
        return Exit(
            exit_code=end.exit_code,
            signal=end.signal,
            timed_out=end.timed_out,
            idle_timed_out=end.idle_timed_out,
            background=end.background,
            duration=end.duration,
            stdout=self._captured(fields, "stdout", agent.STDOUT),
            stderr=stderr,
            spool=end.spool,
        )

    def _captured(self, fields: Fields, name: str, number: int) -> Captured:
        total, parts = fields.get(name + "_total", 0), fields.get(name, [b"", b""])
        if not isinstance(total, int) or not isinstance(parts, list):
            raise ProtocolError("the guest sent no captured output")
        head, tail, *more = [*cast("list[object]", parts), None, None]
        if len(more) != 2:
            raise ProtocolError("the guest sent no head and tail")
        if isinstance(head, int) and isinstance(tail, int):
            head, tail = self._sent(number, head, tail)
        if not isinstance(head, bytes) or not isinstance(tail, bytes):
            raise ProtocolError("the guest sent output that is no bytes")
        kept = len(head) + len(tail)
        if kept > (self._op.capture or 0) or kept > total:
            raise ProtocolError("the guest sent more output than was asked")
        if kept == total:
            head, tail = head + tail, b""
        return Captured(head, tail, total)

    def _sent(self, number: int, head: int, tail: int) -> tuple[bytes, bytes]:
        everything = self.stream.inbox(number).drain()
        if head < 0 or tail < 0 or head + tail != len(everything):
            raise ProtocolError("the guest sent less output than it said")
        return everything[:head], everything[head:]

    def _counted(self, facts: dict[str, object]) -> dict[str, object]:
        fed = {"stdin_bytes": self.stream.sent} if self._op.stdin else {}
        return {**facts, **fed}

    def _begin(self) -> None:
        if not self._begun.done():
            self._begun.set_result(None)

    def _end(self, end: Exit) -> None:
        if not self._exit.done():
            self._exit.set_result(end)

    def _fail(self, failure: BaseException) -> None:
        if isinstance(failure, GuestRefusal):
            failure = self._refused(failure)
        facts: dict[str, object] = {"error": type(failure).__name__}
        if self._exit.done():
            # It had ended; only the reading of what it left was cut short.
            facts = exit_facts(self._exit.result())
        else:
            self._exit.set_exception(failure)
        self._begin()
        self._tell(facts)

    def _refused(self, refusal: GuestRefusal) -> IsoboxError:
        return error_for(refusal, op="spawn", path=self._op.cwd)

    def _late(self) -> None:
        channel = self.stream.channel
        mute = channel.silence >= _SILENT
        why = _MUTE if mute else "the guest does not end a command"
        channel.fail(SandboxLostError(why))

    # What the host asks.

    @override
    async def write(self, data: bytes) -> None:
        self._check_input()
        await self.stream.send(agent.STDIN, data)
        self.stream.channel.check()

    @override
    def write_nowait(self, data: bytes) -> bool:
        self._check_input()
        return self.stream.send_nowait(agent.STDIN, data)

    def _check_input(self) -> None:
        if not self._op.stdin:
            raise InvalidArgumentError("standard input is not open; pass stdin=True")
        self.stream.channel.check()
        if self._no_more:
            raise InvalidArgumentError("standard input has been closed")
        if self._exit.done() or self.stream.answered:
            raise BrokenPipeError("the command has ended")

    @override
    async def write_eof(self) -> None:
        if self._op.stdin and not self._no_more:
            # On a terminal the end is a character, and more may follow it.
            self._no_more = self._op.tty is None
            self.stream.end(agent.STDIN)

    @override
    async def wait(self) -> Exit:
        return await asyncio.shield(self._exit)

    @override
    async def signal(self, number: int) -> None:
        self.stream.channel.check()
        if not 1 <= number <= 64:
            raise InvalidArgumentError(f"{number} is no signal")
        self.stream.control("signal", signal=number)

    @override
    async def kill(self) -> None:
        channel = self.stream.channel
        channel.check()
        kill = channel.open("kill", id=self.id)
        with anyio.CancelScope(shield=True):
            try:
                async with deadline(_GRACE):
                    await kill.answer()
            except TimeoutError:
                channel.fail(SandboxLostError("the guest does not kill a command"))
                channel.check()

    @override
    async def resize(self, columns: int, rows: int) -> None:
        if not (0 < columns < 65536 and 0 < rows < 65536):
            raise InvalidArgumentError(f"{columns} by {rows} is no terminal's size")
        self.stream.control("resize", columns=columns, rows=rows)

    @override
    async def aclose(self) -> None:
        if self.stream.answered:
            return
        with anyio.CancelScope(shield=True):
            await self.stream.cancel()


def exit_of(fields: Fields) -> Exit:
    """Return how a command of a list has ended.

    Raises:
        ProtocolError: It did not run.
    """
    if "failed" in fields:
        raise ProtocolError("the guest lists what never ran")
    return _exit(fields, Spawn(cwd=""))


def _exit(fields: Fields, op: Spawn) -> Exit:
    duration = fields.get("duration")
    timed_out = fields.get("timed_out")
    signal = fields.get("signal")
    if signal is not None and not (isinstance(signal, int) and 0 < signal < 128):
        raise ProtocolError("the guest reported no signal")
    return Exit(
        exit_code=_status(fields, op) if signal is None else 128 + signal,
        signal=None if signal is None else signal_name(signal),
        timed_out=timed_out is not None,
        idle_timed_out=timed_out == "idle_timeout",
        background=fields.get("background") is True,
        duration=duration if isinstance(duration, float) else 0.0,
        spool=op.spool if fields.get("spooled") is True else None,
    )


def _status(fields: Fields, op: Spawn) -> int:
    number = fields.get("failed")
    # SAFETY: strerror raises for a number that is no errno.
    if isinstance(number, int) and 0 < number < 4096:
        return _not_started(number, op)
    status = fields.get("exit")
    if isinstance(status, int) and 0 <= status <= 255:
        return status
    raise ProtocolError("the guest reported no exit status")


def _not_started(number: int, op: Spawn) -> int:
    if number == errno.E2BIG:
        raise InvalidArgumentError(
            "arguments and environment together are longer than the kernel takes; "
            "pass them on standard input or in a file",
            op="spawn",
        )
    if number == errno.EAGAIN:
        raise LimitError(
            "no further process can be started in this workspace", op="spawn"
        )
    if number == errno.EINVAL and op.limits:
        raise InvalidArgumentError("a resource limit cannot be set", op="spawn")
    return 127 if number in (errno.ENOENT, errno.ENOTDIR) else 126


def _complaint(op: Spawn, fields: Fields) -> bytes:
    number = fields.get("failed")
    if not isinstance(number, int):
        return b""
    name = op.argv[0] if op.argv else "the shell"
    return f"{name}: {os.strerror(number)}\n".encode("utf-8", "surrogateescape")


def exit_facts(end: Exit) -> dict[str, object]:
    """Return what a record says of an end."""
    facts: dict[str, object] = {
        "exit_code": end.exit_code,
        "signal": end.signal,
        "timed_out": end.timed_out,
        "background": end.background,
    }
    if end.limit is not None:
        facts["limit"] = end.limit
    if end.stdout is not None and end.stderr is not None:
        facts["stdout_bytes"] = end.stdout.total
        facts["stderr_bytes"] = end.stderr.total
    return facts


def as_it_is(end: Exit) -> Exit:
    """Return an end to which there is nothing to add."""
    return end


def _retrieved(future: asyncio.Future[Exit]) -> None:
    if not future.cancelled():
        future.exception()
