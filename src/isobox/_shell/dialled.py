"""Ports inside, reached by a program that dials."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._core.results import Connection
from isobox._shell.answers import refused
from isobox._shell.exec import ENDED, PIECE, STDOUT
from isobox._shell.quote import filled, loading
from isobox.errors import SandboxLostError

if TYPE_CHECKING:
    from isobox._core.ops import Dial
    from isobox._shell.exec import Exec, Running
    from isobox._shell.operators import Operators

#: Sockets that listen at an address, as /proc/net shows them; `nc` does not say
#: whether somebody answered.
_LISTENS: Final = "cat /proc/net/tcp /proc/net/tcp6 | grep -q -E <which> && printf yes"
_DIAL: Final = "exec nc <host> <port>"


async def dial(exec_: Exec, operators: Operators, op: Dial) -> Connection:
    """Connect to a port inside.

    Raises:
        PathMissingError: Nothing listens there.
    """
    which = f": ([0-9A-F]+):{op.port:04X} [0-9A-F]+:0000 0A "
    async with operators.one() as operator:
        if await operator.ask(filled(_LISTENS, which=which)) != b"yes":
            raise refused("refused", f"{op.host}:{op.port}", op="dial")
    host = str(ipaddress.ip_address(op.host))
    program = filled(_DIAL, host=host, port=str(op.port))
    running = await exec_.start(loading(program), tty=None)
    try:
        await running.send(program)
    except BaseException:
        await running.aclose()
        raise
    return Dialled(running)


class Dialled(Connection):
    """A connection that a program inside holds."""

    def __init__(self, running: Running) -> None:
        super().__init__()
        self._running = running
        self._count = 0

    @override
    async def receive(self) -> bytes:
        while True:
            try:
                kind, piece = await self._running.receive()
            except SandboxLostError:
                self._ended({"bytes": self._count})
                raise
            if kind == STDOUT:
                self._count += len(piece)
                return piece
            if kind == ENDED:
                self._ended({"bytes": self._count})
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
        self._ended({"bytes": self._count})
        with anyio.CancelScope(shield=True):
            await self.send_eof()
            await self._running.aclose()
