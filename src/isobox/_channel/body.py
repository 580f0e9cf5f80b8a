"""What an operation leaves open: bytes out of the guest, or both ways."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
from typing_extensions import override

from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal
from isobox._core.results import ByteStream, Connection
from isobox._guest import agent
from isobox.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from isobox._channel.stream import Stream


@contextlib.asynccontextmanager
async def settled(stream: Stream, *, op: str, path: str) -> AsyncGenerator[None]:
    """Translate refusals; on the way out nothing of the operation goes on."""
    try:
        yield
    except GuestRefusal as refusal:
        raise error_for(refusal, op=op, path=path) from None
    except ProtocolError as error:
        stream.channel.fail(error)
        raise
    finally:
        if not stream.answered:
            with anyio.CancelScope(shield=True):
                await stream.cancel()


@contextlib.asynccontextmanager
async def opening(stream: Stream, *, op: str, path: str) -> AsyncGenerator[None]:
    """Translate refusals; what does not open does not go on."""
    try:
        yield
    except GuestRefusal as refusal:
        raise error_for(refusal, op=op, path=path) from None
    except BaseException:
        with anyio.CancelScope(shield=True):
            await stream.cancel()
        raise


async def opened(
    stream: Stream, *, op: str, path: str, most: int | None = None
) -> ByteStream:
    """Return the bytes of an operation once the first are there."""
    box = stream.inbox(agent.BODY)
    async with opening(stream, op=op, path=path):
        await box.wait()
        if not box:
            stream.raise_failure()
    return Body(stream, op=op, path=path, most=most)


class Body(ByteStream):
    """Bytes that an operation sends, at most so many."""

    def __init__(
        self, stream: Stream, *, op: str, path: str, most: int | None = None
    ) -> None:
        super().__init__()
        self._stream = stream
        self._op = op
        self._path = path
        self._most = most
        self._count = 0

    @override
    async def receive(self) -> bytes:
        piece = await self._stream.receive(agent.BODY)
        self._count += len(piece)
        if self._most is not None and self._count > self._most:
            error = ProtocolError("the guest sent more than was asked")
            self._stream.channel.fail(error)
            raise error
        if not piece:
            self._ended({"bytes": self._count})
            await self._conclude()
        return piece

    async def _conclude(self) -> None:
        # A read that broke off must never look like the end of the file.
        try:
            await self._stream.answer()
        except GuestRefusal as refusal:
            raise error_for(refusal, op=self._op, path=self._path) from None

    @override
    async def aclose(self) -> None:
        self._ended({"bytes": self._count})
        if not self._stream.answered:
            with anyio.CancelScope(shield=True):
                await self._stream.cancel()


class Dialled(Body, Connection):
    """A connection of the guest's."""

    @override
    async def _conclude(self) -> None:
        """The other side may have more to receive."""

    @override
    async def send(self, data: bytes) -> None:
        await self._stream.send(agent.BODY, data)

    @override
    async def send_eof(self) -> None:
        self._stream.end(agent.BODY)

    @override
    async def abort(self) -> None:
        self._stream.control("abort")
        await self.aclose()
