"""A socket of the host's as a connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from isobox._core.results import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes that one receive returns at most: beyond these, larger pieces were not
#: faster, and each is held in memory.
PIECE: Final = 1 << 18
#: Steps that need no wait after which others have their turn.
_TURN: Final = 16
_AT_ONCE: Final = struct.pack("ii", 1, 0)


class SocketConnection(Connection):
    """A connected stream socket, which it owns.

    One task may receive while another sends. A cancelled receive has taken no
    bytes; a cancelled send may have sent some. Once it is closed, receiving is at
    its end, and sending raises BrokenPipeError.

    Receiving and sending raise ConnectionError where the other side broke off.
    """

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._steps = 0
        self._closed = False

    @override
    async def receive(self) -> bytes:
        await self._turn()
        while not self._closed:
            try:
                return self._sock.recv(PIECE)
            except BlockingIOError:
                await self._readable()
        return b""

    @override
    def receive_nowait(self) -> bytes:
        pieces: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while not self._closed and (piece := self._sock.recv(PIECE)):
                pieces.append(piece)
        return b"".join(pieces)

    @override
    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            await self._turn()
            if self._closed:
                raise BrokenPipeError("the connection is closed")
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                await self._writable()

    @override
    async def send_eof(self) -> None:
        # The other side may have broken off already.
        with contextlib.suppress(OSError):
            if not self._closed:
                self._sock.shutdown(socket.SHUT_WR)

    @override
    async def abort(self) -> None:
        if not self._closed:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        await self.aclose()

    @override
    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        for waiter in (self._reader, self._writer):
            if waiter is not None:
                _wake(waiter)
        self._sock.close()
        self._ended({})

    async def _turn(self) -> None:
        # What never waits would have the loop for itself.
        self._steps += 1
        if self._steps % _TURN == 0:
            await asyncio.sleep(0)

    async def _readable(self) -> None:
        self._reader = self._loop.create_future()
        self._loop.add_reader(self._sock, _wake, self._reader)
        await self._woken(self._reader, self._loop.remove_reader)

    async def _writable(self) -> None:
        self._writer = self._loop.create_future()
        self._loop.add_writer(self._sock, _wake, self._writer)
        await self._woken(self._writer, self._loop.remove_writer)

    async def _woken(
        self, waiter: asyncio.Future[None], remove: Callable[[socket.socket], bool]
    ) -> None:
        try:
            await waiter
        finally:
            # Closed, its number may already be another's.
            if not self._closed:
                remove(self._sock)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
