"""Bytes between tasks: bounded pipes, and captures that keep head and tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio
from typing_extensions import override

from isobox.abc import ByteStream, Captured
from isobox.errors import SandboxLostError

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOM = 65536


class Output(Protocol):
    """Where a program's output goes."""

    async def put(self, data: bytes) -> None:
        """Take all of `data`, waiting for room."""

    def end(self) -> None:
        """Take nothing more."""


class Pipe(ByteStream):
    """A bounded pipe; its writer waits while its reader is slow."""

    def __init__(self) -> None:
        super().__init__()
        self._data = bytearray()
        self._changed = anyio.Event()
        self._writer_gone = False
        self._reader_gone = False
        self._lost = False

    async def put(self, data: bytes) -> None:
        """Write all of `data`.

        Raises:
            BrokenPipeError: Nobody reads any more.
        """
        view = memoryview(data)
        while view:
            if self._reader_gone or self._writer_gone:
                raise BrokenPipeError("nobody reads")
            room = _ROOM - len(self._data)
            if room > 0:
                self._data += view[:room]
                view = view[room:]
                self._tell()
            else:
                await self._change()

    def end(self) -> None:
        """Let the reader see the end after what is there."""
        self._writer_gone = True
        self._tell()

    def lose(self) -> None:
        """Let the reader see that the sandbox is gone."""
        self._lost = True
        self._tell()

    @override
    async def receive(self) -> bytes:
        while not self._data:
            if self._lost:
                raise SandboxLostError("the sandbox is gone")
            if self._writer_gone or self._reader_gone:
                self._ended({})
                return b""
            await self._change()
        data = bytes(self._data)
        self._data.clear()
        self._tell()
        return data

    @override
    async def aclose(self) -> None:
        self._reader_gone = True
        self._data.clear()
        self._tell()
        self._ended({})

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _change(self) -> None:
        await self._changed.wait()


class Content(ByteStream):
    """Bytes at hand, in pieces; `alive` raises once the sandbox is gone."""

    def __init__(self, data: bytes, alive: Callable[[], None]) -> None:
        super().__init__()
        self._rest = memoryview(data)
        self._alive = alive

    @override
    async def receive(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        self._alive()
        piece, self._rest = bytes(self._rest[:_ROOM]), self._rest[_ROOM:]
        if not piece:
            self._ended({})
        return piece

    @override
    async def aclose(self) -> None:
        self._rest = self._rest[:0]
        self._ended({})


class Capture:
    """Keeps the head and the tail of an output."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head_limit = limit - limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    async def put(self, data: bytes) -> None:
        """Take all of `data`."""
        self._total += len(data)
        room = max(self._head_limit - len(self._head), 0)
        self._head += data[:room]
        self._tail += data[room:]
        spare = len(self._tail) - self._limit // 2
        if spare > 0:
            del self._tail[:spare]
        await anyio.lowlevel.checkpoint()

    def end(self) -> None:
        """Nothing is held open."""

    def captured(self) -> Captured:
        """Return what was kept."""
        if self._total <= self._limit:
            return Captured(bytes(self._head + self._tail), b"", self._total)
        return Captured(bytes(self._head), bytes(self._tail), self._total)


class Tee:
    """Copies an output to a second place, and tells that something came."""

    def __init__(self, main: Output, tell: Callable[[bytes], None]) -> None:
        self._main = main
        self._tell = tell

    async def put(self, data: bytes) -> None:
        """Take all of `data`."""
        self._tell(data)
        await self._main.put(data)

    def end(self) -> None:
        """Take nothing more."""
        self._main.end()
