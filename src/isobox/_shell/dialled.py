"""Ports inside, reached by a program that dials."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import time
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._channel.deadline import deadline
from isobox._core.results import Connection
from isobox._shell import trees
from isobox._shell.answers import refused
from isobox._shell.exec import ENDED, MARK, PIECE, STDOUT
from isobox._shell.operators import SILENCE
from isobox._shell.quote import filled, loading
from isobox.errors import SandboxLostError

if TYPE_CHECKING:
    from isobox._core.ops import Dial
    from isobox._shell.exec import Exec, Running
    from isobox._shell.operators import Operators

#: Sockets that listen at an address, as /proc/net shows them; `nc` does not say
#: whether somebody answered.
_LISTENS: Final = "cat /proc/net/tcp /proc/net/tcp6 | grep -q -E <which> && printf yes"
#: What dials bears a mark before anybody knows of it, so that it is always found.
_DIAL: Final = "exec env <mark> sh -c <said> sh <host> <port>"
_SAID: Final = 'printf +; exec nc "$1" "$2"'
#: Seconds that the end of one may take.
_GRACE: Final = 5.0
#: Seconds of that in which it may end by itself, and between two looks.
_PATIENCE, _PAUSE = 1.0, 0.02


async def dial(exec_: Exec, operators: Operators, op: Dial) -> Connection:
    """Connect to a port inside.

    Raises:
        PathMissingError: Nothing listens there.
        SandboxLostError: There is no sandbox, or nothing in it dials.
    """
    which = f": ([0-9A-F]+):{op.port:04X} [0-9A-F]+:0000 0A "
    async with operators.one() as operator:
        if await operator.ask(filled(_LISTENS, which=which)) != b"yes":
            raise refused("refused", f"{op.host}:{op.port}", op="dial")
    mark = f"{MARK}={secrets.token_hex(8)}"
    host = str(ipaddress.ip_address(op.host))
    program = filled(_DIAL, mark=mark, said=_SAID, host=host, port=str(op.port))
    dialled = Dialled(await exec_.start(loading(program), tty=None), operators, mark)
    try:
        await dialled.begin(program)
    except BaseException:
        await dialled.aclose()
        raise
    return dialled


class Dialled(Connection):
    """A connection that a program inside holds."""

    def __init__(self, running: Running, operators: Operators, mark: str) -> None:
        super().__init__()
        self._running = running
        self._operators = operators
        self._mark = mark
        self._first = b""
        self._count = 0
        self._over = self._closed = False

    async def begin(self, program: bytes) -> None:
        """Start what dials; it bears the mark when this returns.

        Raises:
            SandboxLostError: It does not start.
        """
        try:
            async with deadline(SILENCE):
                await self._running.send(program)
                said = await self._piece()
        except (BrokenPipeError, TimeoutError):
            said = b""
        if said[:1] != b"+":
            raise SandboxLostError("the shell inside dials nothing")
        self._first = said[1:]

    @override
    async def receive(self) -> bytes:
        piece, self._first = self._first, b""
        try:
            piece = piece or await self._piece()
        except SandboxLostError:
            self._ended({"bytes": self._count})
            raise
        self._count += len(piece)
        if not piece:
            self._ended({"bytes": self._count})
        return piece

    async def _piece(self) -> bytes:
        while True:
            kind, piece = await self._running.receive()
            if kind == STDOUT:
                return piece
            if kind == ENDED:
                self._over = True
                return b""

    @override
    async def send(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE):
            await self._running.send(data[at : at + PIECE])

    @override
    async def send_eof(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            await self._running.send_eof()

    @override
    async def aclose(self) -> None:
        await self._close(_PATIENCE)

    @override
    async def abort(self) -> None:
        await self._close(0.0)

    async def _close(self, patience: float) -> None:
        if self._closed:
            return
        self._closed = True
        self._ended({"bytes": self._count})
        with anyio.CancelScope(shield=True):
            try:
                with contextlib.suppress(SandboxLostError, TimeoutError):
                    async with deadline(_GRACE):
                        await self.send_eof()
                        await self._end(patience)
            finally:
                await self._running.aclose()

    async def _end(self, patience: float) -> None:
        """End what dialled, which else waits until the other side ends, for ever.

        What was sent has to get there: it may end by itself first.
        """
        if self._over:
            return
        until = time.monotonic() + patience
        async with self._operators.one(spare=True, last=True) as operator:
            while await trees.running(operator, self._mark, 0):
                if time.monotonic() >= until:
                    await trees.kill(operator, self._mark)
                await asyncio.sleep(_PAUSE)
