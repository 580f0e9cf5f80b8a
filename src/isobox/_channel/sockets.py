"""A socket of the host's as a connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Final

from typing_extensions import override

from isobox._core.results import Connection

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
        # By number: the loop's tables describe a socket that they do not have in words.
        self._number = sock.fileno()
        self._loop = asyncio.get_running_loop()
        self._early = b""
        self._watched = False
        self._reader: asyncio.Future[bytes] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._steps = 0
        self._closed = False

    @override
    async def receive(self) -> bytes:
        await self._turn()
        if self._early:
            early, self._early = self._early, b""
            return early
        if self._closed:
            return b""
        try:
            return self._sock.recv(PIECE)
        except BlockingIOError:
            return await self._arrival()

    @override
    def receive_nowait(self) -> bytes:
        pieces, self._early = [self._early], b""
        with contextlib.suppress(BlockingIOError):
            while not self._closed and (piece := self._sock.recv(PIECE)):
                pieces.append(piece)
        return b"".join(pieces)

    def peek_nowait(self) -> bytes | None:
        """Return some of what has arrived, and leave it; b"" at the end, None yet."""
        if self._early or self._closed:
            return self._early
        try:
            return self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:  # the other side broke off
            return b""

    async def is_silent(self) -> bool:
        """Return whether nothing has come that nobody received, nor the end."""
        return self.peek_nowait() is None

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
        self._early = b""
        if self._watched:
            self._loop.remove_reader(self._number)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(b"")
        if self._writer is not None:
            self._loop.remove_writer(self._number)
            _wake(self._writer)
        self._sock.close()
        self._ended({})

    async def _turn(self) -> None:
        # What never waits would have the loop for itself.
        self._steps += 1
        if self._steps % _TURN == 0:
            await asyncio.sleep(0)

    async def _arrival(self) -> bytes:
        waiter: asyncio.Future[bytes] = self._loop.create_future()
        self._reader = waiter
        if not self._watched:
            self._watched = True
            self._loop.add_reader(self._number, self._arrived)
        try:
            return await waiter
        except asyncio.CancelledError:
            # It was read for a task that is not there to take it.
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                self._early = waiter.result()
            raise
        finally:
            self._reader = None

    def _arrived(self) -> None:
        waiter = self._reader
        if waiter is None or waiter.done():
            # Nobody waits; the loop would come here again and again.
            self._watched = False
            self._loop.remove_reader(self._number)
            return
        # Still watched: the next wait is without a call to the kernel for that.
        try:
            waiter.set_result(self._sock.recv(PIECE))
        except BlockingIOError:
            return
        except OSError as error:
            waiter.set_exception(error)

    async def _writable(self) -> None:
        self._writer = self._loop.create_future()
        self._loop.add_writer(self._number, _wake, self._writer)
        try:
            await self._writer
        finally:
            # Closed, its number may already be another's.
            if not self._closed:
                self._loop.remove_writer(self._number)
            self._writer = None


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
