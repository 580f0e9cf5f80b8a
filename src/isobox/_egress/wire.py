"""Connections that can be looked into, counted, secured and joined."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import ByteStream as AnyByteStream
from anyio.streams.tls import TLSStream
from typing_extensions import override

from isobox._channel.background import collapsed
from isobox._core.results import Connection
from isobox._egress.parsing import ParseError
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

#: What a connection fails with when the other side is gone, or lies.
BROKEN: Final = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    ssl.SSLError,
    OSError,
    IsoboxError,
)

#: Bytes that are kept to be looked at: the largest ClientHello in its records. A
#: piece more may be.
LARGEST_LOOK: Final = 1 << 17


class Peeked(Connection):
    """A connection of which what was received can be given back."""

    def __init__(self, inner: Connection) -> None:
        super().__init__()
        self._inner = inner
        self._kept = b""

    def unread(self, data: bytes) -> None:
        """Let `data` be received again, before anything else."""
        self._kept = data + self._kept

    @override
    async def receive(self) -> bytes:
        if self._kept:
            data, self._kept = self._kept, b""
            return data
        return await self._inner.receive()

    async def peek(self) -> bytes:
        """Return what comes next, which stays; b"" at the end."""
        if not self._kept:
            self._kept = await self._inner.receive()
        return self._kept

    async def peek_more(self) -> bool:
        """Let `peek` return more than it did; false if nothing more comes.

        Raises:
            ParseError: It could return too much already.
        """
        if len(self._kept) > LARGEST_LOOK:
            raise ParseError(f"more than {LARGEST_LOOK} bytes before they are clear")
        more = await self._inner.receive()
        self._kept += more
        return bool(more)

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


class Tally(Connection):
    """A connection to a host, whose bytes are counted, and bounded by `spend`.

    Args:
        inner: The connection.
        spend: Called with the bytes received and sent, as they are; raises
            LimitError once there were too many.
        facts: What is known of it, for the record of its end.
        release: Called once, when it ends.
    """

    def __init__(
        self,
        inner: Connection,
        spend: Callable[[int, int], None],
        facts: Mapping[str, object],
        release: Callable[[], None],
    ) -> None:
        super().__init__()
        self._inner = inner
        self._spend = spend
        self._facts_so_far = dict(facts)
        self._release = release
        self._closed = False
        self.bytes_in = 0
        self.bytes_out = 0

    @override
    async def receive(self) -> bytes:
        data = await self._inner.receive()
        self.bytes_in += len(data)
        self._spend(len(data), 0)
        return data

    @override
    async def send(self, data: bytes) -> None:
        self.bytes_out += len(data)
        self._spend(0, len(data))
        await self._inner.send(data)

    @override
    async def send_eof(self) -> None:
        await self._inner.send_eof()

    @override
    async def abort(self) -> None:
        await self._end(self._inner.abort)

    @override
    async def aclose(self) -> None:
        await self._end(self._inner.aclose)

    async def _end(self, close: Callable[[], Awaitable[None]]) -> None:
        if not self._closed:
            self._closed = True
            self._release()
        try:
            await close()
        finally:
            counts = {"bytes_in": self.bytes_in, "bytes_out": self.bytes_out}
            self._ended({**self._facts_so_far, **counts})


class Secured(Connection):
    """TLS over a connection."""

    def __init__(self, stream: TLSStream, inner: Connection) -> None:
        super().__init__()
        self._stream = stream
        self._inner = inner

    @classmethod
    async def accept(cls, inner: Connection, context: ssl.SSLContext) -> Secured:
        """Be the server.

        Raises:
            ssl.SSLError: The client does not trust us, or speaks no TLS.
        """
        stream = await TLSStream.wrap(
            _Bytes(inner), server_side=True, ssl_context=context
        )
        return cls(stream, inner)

    @classmethod
    async def connect(
        cls, inner: Connection, context: ssl.SSLContext, host: str
    ) -> Secured:
        """Be the client of a server that proves to be `host`.

        Raises:
            ssl.SSLError: It does not prove that, or speaks no TLS.
        """
        stream = await TLSStream.wrap(
            _Bytes(inner), hostname=host, server_side=False, ssl_context=context
        )
        return cls(stream, inner)

    @override
    async def receive(self) -> bytes:
        try:
            return await self._stream.receive(_PIECE)
        except anyio.EndOfStream:
            return b""

    @override
    async def send(self, data: bytes) -> None:
        await self._stream.send(data)

    @override
    async def send_eof(self) -> None:
        # TLS has no half-closed state that programs could rely on.
        pass

    @override
    async def abort(self) -> None:
        await self._inner.abort()

    @override
    async def aclose(self) -> None:
        with anyio.move_on_after(_GOODBYE, shield=True), contextlib.suppress(*BROKEN):
            await self._stream.unwrap()
        await self._inner.aclose()


#: Seconds that a peer has to answer the end of TLS.
_GOODBYE: Final = 0.5
_PIECE: Final = 1 << 18


class _Bytes(AnyByteStream):
    """A connection as anyio knows byte streams."""

    def __init__(self, inner: Connection) -> None:
        self._inner = inner
        self._sending = anyio.Lock()

    @override
    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = await self._inner.receive()
        if not data:
            raise anyio.EndOfStream
        return data

    @override
    async def send(self, item: bytes) -> None:
        # Who receives has something to send as well: the answer to a new key.
        async with self._sending:
            await self._inner.send(item)

    @override
    async def send_eof(self) -> None:
        await self._inner.send_eof()

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


async def join(one: Connection, other: Connection) -> None:
    """Carry bytes both ways until both sides have ended; raises what breaks."""
    with collapsed():
        async with anyio.create_task_group() as group:
            group.start_soon(carry, one, other)
            group.start_soon(carry, other, one)


async def carry(source: Connection, target: Connection) -> None:
    """Carry bytes one way, and then the end."""
    while data := await source.receive():
        await target.send(data)
    await target.send_eof()
