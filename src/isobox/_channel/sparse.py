"""Files in which what a sandbox left empty takes no room."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK: Final = 1 << 16
_ZEROS: Final = bytes(_BLOCK)


class SparseWriter:
    """Writes a new file from its start, blocks of zeros as holes.

    SAFETY: a hole of gigabytes costs a sandbox nothing; on the host it must not
    cost more.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append."""
        view = memoryview(data)
        for start, end in _solid(data, self._size):
            _write(self._fd, view[start:end], self._size + start)
        self._size += len(data)

    def finish(self) -> None:
        """Give the file its size, which a hole at its end does not."""
        os.ftruncate(self._fd, self._size)


def _solid(data: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of data between the blocks of the file that are zero."""
    solid_from = at = 0
    while at < len(data):
        end = min(len(data), at + _BLOCK - (offset + at) % _BLOCK)
        if data.startswith(_ZEROS[: end - at], at):
            if solid_from < at:
                yield solid_from, at
            solid_from = end
        at = end
    if solid_from < at:
        yield solid_from, at


def _write(fd: int, view: memoryview, offset: int) -> None:
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
