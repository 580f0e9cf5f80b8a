"""Commands, each in an exec of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, Protocol

import anyio
from typing_extensions import override

from isobox._channel.deadline import deadline
from isobox._channel.process import exit_facts
from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal
from isobox._core.results import Captured, Exit, Process, signal_name
from isobox._guest import agent
from isobox._shell.exec import ENDED, PIECE, STDERR, STDOUT
from isobox._shell.launch import ending
from isobox._shell.operators import SILENCE
from isobox._shell.outputs import Piped, Reported, Words
from isobox.errors import InvalidArgumentError, ProtocolError, SandboxLostError

if TYPE_CHECKING:
    from isobox._core.ops import Spawn
    from isobox._shell.exec import Running
    from isobox._shell.kit import Witness
    from isobox._shell.launch import Launch

#: Seconds that the killing of a command may take.
_DEADLY: Final = 30.0
#: Seconds that a command's end may take to be told once it was killed.
_GRACE: Final = 5.0
#: Bytes of what a spool says at its end, and one that is too many.
_VERDICT: Final = 3
#: Seconds from the end of its input to the news of its own.
_SHORTLY: Final = 1.0


class House(Protocol):
    """What a command needs of its sandbox."""

    async def kill(self, mark: str, pid: int) -> None:
        """Kill who bears a mark, or descends from a process."""

    async def strike(self, mark: str, pid: int, number: int) -> None:
        """Send a signal to a process group."""

    async def alive(self) -> None:
        """Raise SandboxLostError if the sandbox is not."""


class ShellProcess(Process):
    """A command in an exec."""

    def __init__(
        self,
        launch: Launch,
        running: Running,
        house: House,
        *,
        number: int,
        witness: Witness,
        spool: Running | None,
    ) -> None:
        super().__init__()
        self.id = f"p{number}"
        self.pid = 0
        self.stdout = self._out = Piped()
        self.stderr = self._err = Piped()
        self.report = self._rep = Piped()
        self._op = launch.op
        self._mark = launch.mark
        self._running = running
        self._house = house
        self._witness: Witness = witness
        self._spool = spool
        self._words = {kind: Words(launch.nonce) for kind in (STDOUT, STDERR)}
        keep = launch.op.capture or 0
        self._captures = {kind: agent.Capture(keep) for kind in (STDOUT, STDERR)}
        self._synced = self._unmetered = 0
        self._reports: list[bytes] = []
        self._third = Reported(launch.nonce)
        self._timed_out: str | None = None
        self._no_more = self._given_up = self._heard_all = False
        self._never_began = self._may_run = False
        self._failure: SandboxLostError | None = None
        self._fed = 0
        loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = loop.create_future()
        self._exit: asyncio.Future[Exit] = loop.create_future()
        self._exit.add_done_callback(_retrieved)
        self._told: tuple[int, int | None, bool] | None = None
        self._killed = False
        self._started = self._heard = time.monotonic()
        self._life = loop.create_task(self._live())
        self._tasks: set[asyncio.Task[None]] = {self._life}
        if self._op.timeout is not None or self._op.idle_timeout is not None:
            self._tasks.add(loop.create_task(self._watch()))

    async def started(self) -> None:
        """Wait until it runs, or is known not to.

        Raises:
            PathMissingError: The working directory does not exist.
            SandboxLostError: The sandbox is gone.
        """
        try:
            async with deadline(SILENCE):
                await asyncio.shield(self._begun)
        except TimeoutError:
            raise SandboxLostError("the shell inside starts no command") from None
        if self._exit.done():
            self._exit.result()

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._exit.done()

    # What it prints.

    async def _live(self) -> None:
        closed = SandboxLostError("the sandbox is closed")
        failure: BaseException | None = None
        try:
            await self._hear()
        except asyncio.CancelledError:
            failure = self._failure if self._given_up else closed
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            failure = error
            self._may_run = not self._never_began
        self._heard_all = True
        try:
            await self._let_go()
        except asyncio.CancelledError:
            failure = failure or closed
        except Exception as error:  # noqa: BLE001 - likewise
            failure = failure or error
        self._conclude(failure)

    async def _hear(self) -> None:
        outputs = (STDOUT,) if self._op.tty is not None else (STDOUT, STDERR)
        while not all(self._words[kind].over for kind in outputs):
            kind, data = await self._running.receive()
            if kind == ENDED:
                await self._broke_off()
                return
            for printed, said in self._words[kind].take(data):
                await self._print(kind, printed)
                await self._said(kind, said)
        await self._rep.put(self._third.rest())
        if self._told is None:
            raise ProtocolError("the shell inside did not say how a command ended")

    async def _print(self, kind: int, data: bytes) -> None:
        if not data:
            return
        self._heard = time.monotonic()
        if self._spool is not None:
            await self._spooled(self._spool, data)
        if self._op.capture is None:
            await (self._out if kind == STDOUT else self._err).put(data)
        else:
            self._captures[kind].add(data)
            self._meter(len(data))

    async def _spooled(self, spool: Running, data: bytes) -> None:
        """Write it out in full as well, for as long as that can be done."""
        try:
            async with deadline(SILENCE):
                for at in range(0, len(data), PIECE):
                    await spool.send(data[at : at + PIECE])
        except (BrokenPipeError, TimeoutError):
            # A full disk ends the spool, never the command.
            self._spool = None
            await spool.aclose()

    def _meter(self, count: int) -> None:
        self._unmetered += count
        if self._op.meter is not None and self._unmetered >= self._op.meter:
            count, self._unmetered = self._unmetered, 0
            self._printed(count)

    async def _said(self, kind: int, word: bytes) -> None:
        verb, _, rest = word.partition(b" ")
        if verb == b"pid" and not self._begun.done() and rest.isdigit():
            self.pid = int(rest[:9])
            self._begun.set_result(None)
        elif verb == b"no":
            self._never_began = True
            raise _refused(rest, self._op)
        elif verb == b"end":
            left, _, told = rest.partition(b" ")
            self._told = (*ending(told, self._witness), left == b"b")
            (self._out if kind == STDOUT else self._err).finish()
        elif verb in (b"sync", b"report"):
            await self._reported(verb, rest)
        elif word:
            raise ProtocolError("the shell inside says what it cannot")

    async def _reported(self, verb: bytes, digits: bytes) -> None:
        if verb == b"sync":
            self._synced += 1
        else:
            try:
                self._reports.append(bytes.fromhex(digits.decode("ascii")))
            except ValueError:
                raise ProtocolError("the shell inside reports no bytes") from None
        while self._synced and self._reports:
            self._synced -= 1
            await self._rep.put(self._third.take(self._reports.pop(0)))

    async def _broke_off(self) -> None:
        """Judge an end of which nothing was said: a process around it was killed."""
        for kind, words in self._words.items():
            await self._print(kind, words.rest())
        await self._rep.put(self._third.rest())
        if self._told is not None:
            return
        status = await self._running.wait()
        await self._house.alive()
        if not self._begun.done():
            raise SandboxLostError(f"the shell inside ended with status {status}")
        await self._house.kill(self._mark, self.pid)
        self._told = (137, 9, False)

    # How it ends.

    async def _let_go(self) -> None:
        """End what is around it, and itself where nobody knows that it has ended."""
        try:
            if self._may_run:
                with contextlib.suppress(SandboxLostError):
                    await self._end_it()
        finally:
            with contextlib.suppress(SandboxLostError):
                await self._running.aclose()
            await self._end_spool()

    def _conclude(self, failure: BaseException | None) -> None:
        for pipe in (self._out, self._err, self._rep):
            pipe.finish(failure)
        if failure is None:
            end = self._end()
            failure = self._tell(exit_facts(end))
            if failure is None:
                self._exit.set_result(end)
        else:
            self._tell({"error": type(failure).__name__})
        if failure is not None:
            self._exit.set_exception(failure)
        if not self._begun.done():
            self._begun.set_result(None)

    def _tell(self, facts: dict[str, object]) -> Exception | None:
        """Say how it ended; returns what a record failed with."""
        fed = {"stdin_bytes": self._fed} if self._op.stdin else {}
        try:
            self._ended({**facts, **fed})
        except Exception as error:  # noqa: BLE001 - it is whoever keeps the record's
            return error
        return None

    def _end(self) -> Exit:
        assert self._told is not None  # noqa: S101 - who has no end has a failure
        status, number, background = self._told
        return Exit(
            exit_code=status,
            signal=None if number is None else signal_name(number),
            timed_out=self._timed_out is not None,
            idle_timed_out=self._timed_out == "idle_timeout",
            # While it is killed, others of it may be seen that are about to be.
            background=background and not self._killed,
            duration=time.monotonic() - self._started,
            stdout=self._captured(STDOUT),
            stderr=self._captured(STDERR),
            spool=self._op.spool if self._spool is not None else None,
        )

    def _captured(self, kind: int) -> Captured | None:
        if self._op.capture is None:
            return None
        capture = self._captures[kind]
        head, tail = capture.result()
        if len(head) + len(tail) == capture.total:
            head, tail = head + tail, b""
        return Captured(head, tail, capture.total)

    async def _end_spool(self) -> None:
        """End the spool, and know of none that was not written to its end."""
        if (spool := self._spool) is None:
            return
        self._spool = None
        try:
            async with deadline(SILENCE):
                await spool.send_eof()
                if await _all_said(spool) == b"ok":
                    self._spool = spool
        except (BrokenPipeError, TimeoutError):
            pass
        finally:
            await spool.aclose()

    async def _watch(self) -> None:
        """Kill it when its time is over."""
        while not self._exit.done():
            name, left = self._nearest()
            if left <= 0:
                self._timed_out = name
                with contextlib.suppress(TimeoutError):
                    await self._begin_first()
                with contextlib.suppress(SandboxLostError):
                    await self.kill()
                return
            with contextlib.suppress(TimeoutError):
                async with deadline(left):
                    await asyncio.shield(self._exit)

    def _nearest(self) -> tuple[str, float]:
        now, op = time.monotonic(), self._op
        ends: list[tuple[float, str]] = []
        if op.timeout is not None:
            ends.append((self._started + op.timeout - now, "timeout"))
        if op.idle_timeout is not None:
            ends.append((self._heard + op.idle_timeout - now, "idle_timeout"))
        left, name = min(ends)
        return name, left

    async def _begin_first(self) -> None:
        async with deadline(_GRACE):
            await asyncio.shield(self._begun)

    # What the host asks.

    @override
    async def write(self, data: bytes) -> None:
        if not self._op.stdin:
            raise InvalidArgumentError("standard input is not open; pass stdin=True")
        if self._exit.done():
            self._lost()
            raise BrokenPipeError("the command has ended")
        if self._no_more:
            raise InvalidArgumentError("standard input has been closed")
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            await self._unless_ended(piece)
            self._fed += len(piece)

    async def _unless_ended(self, piece: bytes) -> None:
        sending = asyncio.ensure_future(self._running.send(piece))
        try:
            await asyncio.wait(
                (sending, self._exit), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not sending.done():
                sending.cancel()
        try:
            await sending
        except (BrokenPipeError, asyncio.CancelledError, SandboxLostError):
            # Whether it is the command that has ended is known a little later.
            await asyncio.wait((self._exit,), timeout=_SHORTLY)
            self._lost()
            raise BrokenPipeError("the command has ended") from None

    def _lost(self) -> None:
        if self._exit.done() and isinstance(self._exit.exception(), SandboxLostError):
            self._exit.result()

    @override
    async def write_eof(self) -> None:
        if not self._op.stdin or self._no_more or self._exit.done():
            return
        if self._op.tty is not None:
            # On a terminal the end is a character, and more may follow it.
            await self._unless_ended(b"\x04")
            return
        self._no_more = True
        with contextlib.suppress(BrokenPipeError):
            await self._running.send_eof()

    @override
    async def wait(self) -> Exit:
        return await asyncio.shield(self._exit)

    @override
    async def signal(self, number: int) -> None:
        if not 1 <= number <= 64:
            raise InvalidArgumentError(f"{number} is no signal")
        if self._exit.done():
            self._lost()
            return
        await self._house.strike(self._mark, self.pid, number)

    @override
    async def kill(self) -> None:
        if self._exit.done():
            self._lost()
            return
        for pipe in (self._out, self._err, self._rep):
            pipe.widen()
        self._killed = True
        with anyio.CancelScope(shield=True):
            try:
                await self._end_it()
            except SandboxLostError as error:
                self._give_up(error)
                raise
            await asyncio.wait((self._exit,), timeout=_GRACE)
            if not self._exit.done():
                # It has ended; who should say so may be killed or stopped as well.
                self._told = self._told or (137, 9, False)
                self._give_up(None)
            await asyncio.wait((self._exit,))

    async def _end_it(self) -> None:
        try:
            async with deadline(_DEADLY):
                await self._house.kill(self._mark, self.pid)
        except TimeoutError:
            raise SandboxLostError("the shell inside does not end a command") from None

    def _give_up(self, failure: SandboxLostError | None) -> None:
        """Wait no longer for news of the end."""
        if not self._heard_all:
            self._given_up, self._failure = True, failure
            self._life.cancel()

    @override
    async def resize(self, columns: int, rows: int) -> None:
        if not (0 < columns < 65536 and 0 < rows < 65536):
            raise InvalidArgumentError(f"{columns} by {rows} is no terminal's size")
        if not self._exit.done():
            with contextlib.suppress(SandboxLostError):
                await self._running.resize(columns, rows)

    @override
    async def aclose(self) -> None:
        if not self._exit.done():
            with contextlib.suppress(SandboxLostError):
                await self.kill()
        await self.lose()
        for pipe in (self._out, self._err, self._rep):
            await pipe.aclose()

    async def lose(self) -> None:
        """Follow it no more: it ends with its sandbox."""
        for task in self._tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait(self._tasks)


def _refused(reason: bytes, op: Spawn) -> Exception:
    if reason == b"invalid":
        return InvalidArgumentError("a resource limit cannot be set", op="spawn")
    code = reason.decode("ascii", "replace")
    if code not in ("missing", "not_directory", "access", "storage"):
        return ProtocolError("the shell inside refuses for no reason")
    return error_for(GuestRefusal(code, "", 5), op="spawn", path=op.cwd)


async def _all_said(running: Running) -> bytes:
    said = b""
    while True:
        kind, piece = await running.receive()
        if kind == ENDED:
            return said
        if kind == STDOUT:
            said = (said + piece)[:_VERDICT]
        await asyncio.sleep(0)  # what never ends must not hold us up


def _retrieved(future: asyncio.Future[Exit]) -> None:
    if not future.cancelled():
        future.exception()
