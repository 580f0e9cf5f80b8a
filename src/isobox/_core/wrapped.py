"""Streams, connections and processes that do as another one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from isobox._core.results import ByteStream, Connection, Exit, Process

if TYPE_CHECKING:
    from collections.abc import Callable


class WrappedStream(ByteStream):
    """Ends as another stream does; how it receives is its own."""

    def __init__(self, inner: ByteStream) -> None:
        super().__init__()
        self._inner = inner
        self.lost = inner.lost

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()

    @override
    def on_end(self, hook: Callable[[dict[str, object]], None]) -> None:
        self._inner.on_end(hook)


class WrappedConnection(Connection):
    """Does as another connection does, but for how it ends for the record."""

    def __init__(self, inner: Connection) -> None:
        super().__init__()
        self._inner = inner

    @override
    async def receive(self) -> bytes:
        return await self._inner.receive()

    @override
    async def send(self, data: bytes) -> None:
        await self._inner.send(data)

    @override
    async def send_eof(self) -> None:
        await self._inner.send_eof()

    @override
    async def abort(self) -> None:
        await self._inner.abort()

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


class WrappedProcess(Process):
    """Does as another process does, with outputs of its own."""

    def __init__(
        self, inner: Process, *, stdout: ByteStream, stderr: ByteStream
    ) -> None:
        super().__init__()
        self._inner = inner
        self.id = inner.id
        self.pid = inner.pid
        self.stdout = stdout
        self.stderr = stderr
        self.report = inner.report

    @override
    async def write(self, data: bytes) -> None:
        await self._inner.write(data)

    @override
    async def write_eof(self) -> None:
        await self._inner.write_eof()

    @override
    async def wait(self) -> Exit:
        return await self._inner.wait()

    @override
    async def signal(self, number: int) -> None:
        await self._inner.signal(number)

    @override
    async def kill(self) -> None:
        await self._inner.kill()

    @override
    async def resize(self, columns: int, rows: int) -> None:
        await self._inner.resize(columns, rows)

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()

    @override
    def on_end(self, hook: Callable[[dict[str, object]], None]) -> None:
        self._inner.on_end(hook)
