"""Bytes that are counted while they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from isobox._core.results import ByteStream

if TYPE_CHECKING:
    from collections.abc import Callable


class Metered(ByteStream):
    """A stream that tells how much of it was read.

    Args:
        inner: The stream.
        count: Told of the bytes of each piece.
    """

    def __init__(self, inner: ByteStream, count: Callable[[int], None]) -> None:
        super().__init__()
        self._inner = inner
        self._count = count

    @override
    async def receive(self) -> bytes:
        piece = await self._inner.receive()
        self._count(len(piece))
        return piece

    @override
    def receive_nowait(self) -> bytes:
        data = self._inner.receive_nowait()
        self._count(len(data))
        return data

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()

    @override
    def on_end(self, hook: Callable[[dict[str, object]], None]) -> None:
        self._inner.on_end(hook)
