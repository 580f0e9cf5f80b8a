"""Output that is too long for a result, kept in a file of the workspace."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio

from isobox._channel.background import collapsed
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from isobox._workspace.base import WorkspaceBase

#: Bytes that may wait to be written before the command has to wait.
_MOST_WAITING: Final = 1 << 20
#: Bytes of output that are kept: a file that grows without end helps nobody.
_MOST_KEPT: Final = 256 << 20


class Offload:
    """Writes an output to a file while it arrives, once it is long.

    Attributes:
        path: The file.
        wanted: Write the file even if it holds little.
        failure: Why it could not be written.
        whole: Whether all of the output was kept.
    """

    def __init__(self, workspace: WorkspaceBase, path: str, *, after: int) -> None:
        self.path = path
        self.wanted = False
        self.failure: str | None = None
        self.whole = True
        self._workspace = workspace
        self._after = after
        self._waiting: deque[bytes] = deque()
        self._held = 0
        self._total = 0
        self._over = False
        self._changed = anyio.Event()

    @property
    def long(self) -> bool:
        """Whether there was so much output that the file is written."""
        return self.wanted or self._total > self._after

    def put(self, data: bytes) -> None:
        """Take what the command printed."""
        if self.failure is not None or self._total + len(data) > _MOST_KEPT:
            self.whole = False
            return
        self._waiting.append(data)
        self._held += len(data)
        self._total += len(data)
        self._wake()

    async def room(self) -> None:
        """Wait while too much waits to be written."""
        while self.long and self._held > _MOST_WAITING and self.failure is None:
            await self._changed.wait()

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncGenerator[None]:
        """Write what arrives meanwhile; all is written on the way out."""
        with collapsed():
            async with anyio.create_task_group() as group:
                group.start_soon(self._write)
                try:
                    yield
                finally:
                    self._over = True
                    self._wake()

    async def _write(self) -> None:
        while not (self.long or self._over):
            await self._changed.wait()
        if self.long:
            try:
                await self._workspace.write(self.path, self._pieces())
            except IsoboxError as error:
                self.failure = error.message
                self._wake()

    async def _pieces(self) -> AsyncIterator[bytes]:
        while self._waiting or not self._over:
            if not self._waiting:
                await self._changed.wait()
                continue
            piece = self._waiting.popleft()
            self._held -= len(piece)
            self._wake()
            yield piece

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
