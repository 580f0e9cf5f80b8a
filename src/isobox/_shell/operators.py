"""A shell inside that does what it is told, one piece of code after another."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Final

import anyio

from isobox._channel.deadline import deadline
from isobox._shell import trees
from isobox._shell.answers import PRELUDE
from isobox._shell.exec import ENDED, MARK, PIECE, STDOUT
from isobox.errors import ProtocolError, SandboxLostError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from typing import Self

    from isobox._shell.exec import Exec, Running

#: Takes code until its input ends. What is left open to a program is 1 alone.
_SERVE: Final = (
    "exec 2>/dev/null; export LC_ALL=C TZ=UTC0 QUOTING_STYLE=literal "
    "TAR_OPTIONS=--no-unquote; "
    "while IFS= read -r n; do "
    'eval "$(dd bs=$n count=1 iflag=fullblock)"; done'
)
#: Seconds that are waited for each MiB of an answer, and for the last of it, until the
#: shell that owes it counts as lost.
SILENCE: Final = 120.0
#: Seconds of silence after which one that has nothing to do counts as stopped.
_ASLEEP: Final = 2.0
#: Seconds that a shell has to end by itself once its input is at its end.
_LEAVE: Final = 0.3
_MOST_IDLE, _MOST = 4, 12


class Operator:
    """One shell inside, over one exec.

    Attributes:
        mark: What stands in the environment of all that it runs.
        free: Whether it has answered everything.
    """

    def __init__(self, running: Running, mark: str) -> None:
        self.mark = mark
        self.free = True
        self._running = running
        self._read = b""
        self._patience, self._waited, self._since = SILENCE, 0.0, 0

    @classmethod
    async def start(cls, exec_: Exec) -> Self:
        """Start one."""
        mark = f"{MARK}={secrets.token_hex(8)}"
        argv = ["sh", "-c", f"exec env {mark} sh -c {_single(_SERVE)}"]
        return cls(await exec_.start(argv, tty=None), mark)

    async def ask(
        self, code: bytes, *, most: int = 1 << 20, patience: float | None = None
    ) -> bytes:
        """Run code and return what it prints.

        Args:
            code: The code.
            most: Bytes that it may print.
            patience: Seconds that each MiB of it may take, where that is more than
                each piece may.

        Raises:
            ProtocolError: It printed more than `most`.
            SandboxLostError: The shell has ended, or does not answer.
        """
        await self.tell(code, patience=patience)
        return await self.rest(most=most)

    async def rest(self, *, most: int = 1 << 16) -> bytes:
        """Return what is left of what the code prints.

        Raises:
            ProtocolError: It is more than `most`.
            SandboxLostError: The shell has ended, or does not answer.
        """
        answer: list[bytes] = []
        size = 0
        async for piece in self.answer():
            size += len(piece)
            # SAFETY: what the workload can make a shell print is without end.
            if size > most:
                raise ProtocolError("the shell inside says more than can be")
            answer.append(piece)
        return b"".join(answer)

    async def pieces(self, code: bytes) -> AsyncIterator[bytes]:
        """Run code and yield what it prints."""
        await self.tell(code)
        async for piece in self.answer():
            yield piece

    async def tell(self, code: bytes, *, patience: float | None = None) -> None:
        """Run code; `answer` returns what it prints."""
        self._end = secrets.token_hex(16).encode()
        self.free = False
        self._waited, self._since = 0.0, 0
        self._patience = SILENCE if patience is None else patience
        code += b"\nprintf %s " + self._end
        await self.send(b"%d\n%s" % (len(code), code))

    async def send(self, data: bytes) -> None:
        """Give the code that runs something to read.

        Raises:
            SandboxLostError: Nobody reads it.
        """
        try:
            async with deadline(SILENCE):
                await self._running.send(data)
        except (BrokenPipeError, TimeoutError):
            raise SandboxLostError("the shell inside takes no more") from None

    async def line(self, *, most: int = 4096) -> bytes:
        """Return the next line that the code prints; b"" when it has ended."""
        while (at := self._read.find(b"\n")) < 0:
            if self._end in self._read:
                return b""
            if len(self._read) > most:
                raise ProtocolError("the shell inside prints no line")
            self._read += await self._receive()
        line, self._read = self._read[: at + 1], self._read[at + 1 :]
        return line

    async def answer(self) -> AsyncIterator[bytes]:
        """Yield what is left of what the code prints."""
        end = self._end
        while (at := self._read.find(end)) < 0:
            # SAFETY: the end is of 128 random bits, new each time: no file has it.
            known = max(0, len(self._read) - len(end))
            piece, self._read = self._read[:known], self._read[known:]
            if piece:
                yield piece
            self._read += await self._receive()
        piece, self._read = self._read[:at], self._read[at + len(end) :]
        self.free = not self._read
        if piece:
            yield piece

    async def _receive(self) -> bytes:
        began = time.monotonic()
        try:
            # SAFETY: not anew for each piece, of which one may drip without end.
            async with deadline(min(SILENCE, max(0.0, self._patience - self._waited))):
                piece = await self._piece()
        except TimeoutError:
            raise SandboxLostError("the shell inside does not answer") from None
        self._waited += time.monotonic() - began
        self._since += len(piece)
        if self._since >= PIECE:
            self._waited, self._since = 0.0, 0
        return piece

    async def _piece(self) -> bytes:
        while True:
            kind, piece = await self._running.receive()
            if kind == ENDED:
                raise SandboxLostError("the shell inside has ended")
            if kind == STDOUT:
                return piece

    async def alive(self) -> bool:
        """Whether it answers still, and soon."""
        try:
            async with deadline(_ASLEEP):
                return await self.ask(b":") == b""
        except (SandboxLostError, TimeoutError):
            return False

    async def ends(self) -> bool:
        """Tell it to end; returns whether it has."""
        with contextlib.suppress(SandboxLostError, TimeoutError):
            async with deadline(_LEAVE):
                await self._running.send_eof()
                await self._drained()
                return True
        return False

    async def _drained(self) -> None:
        kind = STDOUT
        while kind != ENDED:
            kind, _ = await self._running.receive()
            await asyncio.sleep(0)  # what never ends must not hold us up

    async def aclose(self) -> None:
        """Let go of it."""
        await self._running.aclose()


class Operators:
    """The shells of one sandbox: as many as there is to do, some of them kept.

    To start one takes the engine as long as a hundred answers.
    """

    def __init__(self, exec_: Exec, kill: Callable[[str], Awaitable[None]]) -> None:
        self._exec = exec_
        self._kill = kill
        self._idle: list[Operator] = []
        self._all: set[Operator] = set()
        self._room = asyncio.Semaphore(_MOST)
        self._closed = False

    @contextlib.asynccontextmanager
    async def one(
        self, *, spare: bool = False, last: bool = False
    ) -> AsyncGenerator[Operator]:
        """Have a shell for a while; one that owes an answer then is ended.

        Args:
            spare: Do not wait for others, who may wait for this.
            last: It ends others: nobody is called to end it.
        """
        async with contextlib.nullcontext() if spare else self._room:
            operator = await self._ready()
            try:
                yield operator
            finally:
                with anyio.CancelScope(shield=True):
                    await self._leave(operator, last=last)

    async def _ready(self) -> Operator:
        if not self._idle:
            return await self._started()
        operator = self._idle.pop()
        try:
            if await operator.alive():
                return operator
        except BaseException:
            await self._drop(operator)
            raise
        return await self._instead_of([operator, *self._idle])

    async def _started(self) -> Operator:
        if self._closed:
            raise SandboxLostError("the sandbox is closed")
        operator = await Operator.start(self._exec)
        self._all.add(operator)
        try:
            await operator.ask(PRELUDE)
        except BaseException:
            await self._drop(operator)
            raise
        return operator

    async def _instead_of(self, silent: list[Operator]) -> Operator:
        """Start one, and end those of which one was stopped, and so all may be."""
        self._idle.clear()
        for each in silent:
            await self._drop(each)
        operator = await self._started()
        try:
            for each in silent:
                await trees.kill(operator, each.mark)
        except BaseException:
            await self._drop(operator)
            raise
        return operator

    async def _leave(self, operator: Operator, *, last: bool) -> None:
        if operator.free and len(self._idle) < _MOST_IDLE and not self._closed:
            self._idle.append(operator)
            return
        try:
            await self.end(operator, last=last)
        finally:
            await self._drop(operator)

    async def end(self, operator: Operator, *, last: bool = False) -> None:
        """End a shell with all that it runs; it does nothing any more."""
        with contextlib.suppress(SandboxLostError):  # what is gone needs no end
            if not await operator.ends() and not (last or self._closed):
                await self._kill(operator.mark)

    async def _drop(self, operator: Operator) -> None:
        self._all.discard(operator)
        await operator.aclose()

    async def aclose(self) -> None:
        """Let go of all of them."""
        self._closed = True
        self._idle.clear()
        for operator in list(self._all):
            await self._drop(operator)


def _single(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
