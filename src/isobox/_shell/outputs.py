"""What a command prints, and what the code around it says among that."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from typing_extensions import override

from isobox._core.results import ByteStream
from isobox.errors import ProtocolError

#: Bytes that wait for a reader before the command has to.
_WINDOW: Final = 1 << 20
#: Bytes of what the code says at once: 4 KiB as digits, and a little.
_LONGEST_WORD: Final = 9000


class Words:
    """Takes an output to pieces: what was printed, and what was said.

    Who prints the nonce says something. It is never told to the command, and
    one that finds it out can lie about itself alone.
    """

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce.encode()
        self._read = b""
        self.over = False

    def take(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return pieces that were printed, each with what was said behind it."""
        self._read += data
        found: list[tuple[bytes, bytes]] = []
        while not self.over and (at := self._read.find(self._nonce)) >= 0:
            word, ended, rest = self._read[at + len(self._nonce) :].partition(b";")
            if len(word) > _LONGEST_WORD:
                raise ProtocolError("the shell inside says more than can be")
            if not ended:
                found.append((self._read[:at], b""))
                self._read = self._read[at:]
                return found
            found.append((self._read[:at], word))
            self._read = rest
            self.over = word.startswith(b"end ")
        found.append((b"" if self.over else self._printed(), b""))
        return found

    def _printed(self) -> bytes:
        at = _known(self._read, self._nonce)
        printed, self._read = self._read[:at], self._read[at:]
        return printed

    def rest(self) -> bytes:
        """Return what was held back, when nothing more comes."""
        rest, self._read = self._read, b""
        return b"" if self.over else rest


class Reported:
    """Puts a third output together, up to the nonce that the code adds to it."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce.encode()
        self._read = b""
        self._over = False

    def take(self, data: bytes) -> bytes:
        """Return what the command has reported since."""
        self._read += b"" if self._over else data
        at = self._read.find(self._nonce)
        if at >= 0:
            self._over = True
            reported, self._read = self._read[:at], b""
            return reported
        at = _known(self._read, self._nonce)
        reported, self._read = self._read[:at], self._read[at:]
        return reported

    def rest(self) -> bytes:
        """Return what was held back, when nothing more comes."""
        rest, self._read = self._read, b""
        return rest


def _known(read: bytes, nonce: bytes) -> int:
    """Return how much of it surely is no beginning of a nonce."""
    keep = next(
        size
        for size in range(min(len(nonce), len(read)), -1, -1)
        if read.endswith(nonce[:size])
    )
    return len(read) - keep


class Piped(ByteStream):
    """One output that is streamed, held back while nobody reads it."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: deque[bytes] = deque()
        self._size = self._count = 0
        self._failure: BaseException | None = None
        self._over = self._closed = self._wide = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, data: bytes) -> None:
        """Add a piece, and wait until there is room for the next."""
        if not data or self._closed:
            return
        self._pieces.append(data)
        self._size += len(data)
        self._changed.set()
        if self._size >= _WINDOW and not self._wide:
            self._room.clear()
            await self._room.wait()

    def widen(self) -> None:
        """Wait for no reader any more: what is under way is all there is."""
        self._wide = True
        self._room.set()

    def finish(self, failure: BaseException | None = None) -> None:
        """Say that nothing more comes, or why not."""
        if not self._over:
            self._over, self._failure = True, failure
            self._changed.set()

    @override
    async def receive(self) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._over or self._closed:
                self._ended({"bytes": self._count})
                return b""
            self._changed.clear()
            await self._changed.wait()
        return self._taken(self._pieces.popleft())

    @override
    def receive_nowait(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return self._taken(data)

    def _taken(self, data: bytes) -> bytes:
        self._size -= len(data)
        self._count += len(data)
        if self._size < _WINDOW:
            self._room.set()
        return data

    @override
    async def aclose(self) -> None:
        self._closed = True
        self._pieces.clear()
        self._size = 0
        self._room.set()
        self._changed.set()
        self._ended({"bytes": self._count})
