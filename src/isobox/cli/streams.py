"""Bytes between the command line's own descriptors and a process."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from isobox._core.results import Captured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
    from typing import Any

    from isobox._core.results import ByteStream, Exit, Process

    Tasks = Iterable[Callable[[], Coroutine[Any, Any, None]]]

STDIN, STDOUT, STDERR = 0, 1, 2
_PIECE = 65536


async def carry(process: Process, *, outputs: Tasks, meanwhile: Tasks) -> Exit:
    """Carry bytes until the process has ended and its output is through.

    Args:
        process: The one whose end is awaited and returned.
        outputs: What ends by itself, with the process's output.
        meanwhile: What is cancelled when the process has ended.
    """
    async with anyio.create_task_group() as others:
        for task in meanwhile:
            others.start_soon(task)
        async with anyio.create_task_group() as group:
            for task in outputs:
                group.start_soon(task)
        await process.wait()
        others.cancel_scope.cancel()
    return await process.wait()


async def feed(process: Process) -> None:
    """Pass our standard input on, up to its end or to the process's."""
    with contextlib.suppress(BrokenPipeError):
        async for piece in _arriving(STDIN):
            await process.write(piece)
        await process.write_eof()


async def copy(source: ByteStream, descriptor: int) -> None:
    """Write all that comes to one of our descriptors, as it comes.

    Raises:
        BrokenPipeError: Nobody reads it any more.
    """
    async for piece in source:
        await write(descriptor, piece)


async def write(descriptor: int, data: bytes) -> None:
    """Write all of `data`, without keeping anybody else waiting.

    Raises:
        BrokenPipeError: Nobody reads it any more.
    """
    await to_thread.run_sync(_write_all, descriptor, data, abandon_on_cancel=True)


class Collector:
    """Keeps an output's head and tail, `limit` bytes together."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    async def collect(self, source: ByteStream) -> None:
        """Take all that comes."""
        async for piece in source:
            self._total += len(piece)
            room = self._half - len(self._head)
            self._head += piece[:room]
            self._tail += piece[room:]
            del self._tail[: -self._half or None]

    def captured(self) -> Captured:
        """Return what was kept."""
        return Captured(bytes(self._head), bytes(self._tail), self._total)


async def _arriving(descriptor: int) -> AsyncIterator[bytes]:
    while True:
        # epoll refuses regular files, which are always ready.
        with contextlib.suppress(PermissionError):
            await anyio.wait_readable(descriptor)
        piece = os.read(descriptor, _PIECE)
        if not piece:
            return
        yield piece


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
