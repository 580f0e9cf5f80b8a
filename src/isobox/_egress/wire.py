"""Connections that can be looked into, counted, secured and joined."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import anyio
from typing_extensions import override

from isobox._core.results import Connection
from isobox._core.wrapped import WrappedConnection
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


@runtime_checkable
class Looked(Protocol):
    """A connection that can be looked at."""

    async def is_silent(self) -> bool:
        """Return whether nothing has come that nobody received, nor the end."""
        ...


async def is_silent(connection: Connection) -> bool:
    """Return whether nothing has come that nobody received, nor the end.

    Of what cannot be looked at, it is taken to be so.
    """
    return not isinstance(connection, Looked) or await connection.is_silent()


class Peeked(WrappedConnection):
    """A connection of which what was received can be given back."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self._kept = b""

    @property
    def has_more(self) -> bool:
        """Whether `receive` returns something without a wait."""
        return bool(self._kept)

    def unread(self, data: bytes) -> None:
        """Let `data` be received again, before anything else."""
        self._kept = data + self._kept

    async def is_silent(self) -> bool:
        """Return whether nothing has come that nobody received, nor the end."""
        return not self._kept and await is_silent(self._inner)

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


class Tally(WrappedConnection):
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
        super().__init__(inner)
        self._spend = spend
        self._facts_so_far = dict(facts)
        self._release = release
        self._closed = False
        self.bytes_in = 0
        self.bytes_out = 0

    def let_go(self) -> None:
        """Leave the connection, which is somebody else's from now on."""
        self._inner = Gone()

    def end(self) -> None:
        """Be at its end, and put on record."""
        if not self._closed:
            self._closed = True
            self._release()
            counts = {"bytes_in": self.bytes_in, "bytes_out": self.bytes_out}
            self._ended({**self._facts_so_far, **counts})

    async def is_silent(self) -> bool:
        """Return whether nothing has come that nobody received, nor the end."""
        return await is_silent(self._inner)

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
    async def abort(self) -> None:
        await self._end(self._inner.abort)

    @override
    async def aclose(self) -> None:
        await self._end(self._inner.aclose)

    async def _end(self, close: Callable[[], Awaitable[None]]) -> None:
        try:
            await close()
        finally:
            self.end()


class Gone(Connection):
    """What is left where a connection was."""

    @override
    async def receive(self) -> bytes:
        return b""

    @override
    async def send(self, data: bytes) -> None:
        raise BrokenPipeError("the connection is somebody else's")

    @override
    async def send_eof(self) -> None:
        pass

    @override
    async def aclose(self) -> None:
        pass


class Secured(Connection):
    """TLS over a connection.

    One task may receive while another sends. After a send that failed or was
    cancelled, every send fails.
    """

    def __init__(
        self, inner: Connection, context: ssl.SSLContext, *, host: str | None
    ) -> None:
        super().__init__()
        self._inner = inner
        self._arrived = ssl.MemoryBIO()
        self._leaving = ssl.MemoryBIO()
        # SAFETY: Python 3.11.2, which Debian 12 has, sets it: whoever cuts the
        # connection off would end what is said at a place of their choice.
        if context.options & ssl.OP_IGNORE_UNEXPECTED_EOF:
            context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        self._tls = context.wrap_bio(
            self._arrived,
            self._leaving,
            server_side=host is None,
            # As bytes: it is in the one form, and not to be encoded otherwise.
            server_hostname=None if host is None else host.encode("ascii"),
        )
        self._flushing = asyncio.Lock()
        self._torn = False
        self._records = Records()
        self._early: list[bytes] = []
        self._was_silent = True

    @classmethod
    async def accept(cls, inner: Connection, context: ssl.SSLContext) -> Secured:
        """Be the server.

        Raises:
            ssl.SSLError: The client does not trust us, or speaks no TLS.
        """
        made = cls(inner, context, host=None)
        await made.shake()
        return made

    @classmethod
    async def connect(
        cls, inner: Connection, context: ssl.SSLContext, host: str
    ) -> Secured:
        """Be the client of a server that proves to be `host`.

        Raises:
            ssl.SSLError: It does not prove that, or speaks no TLS.
        """
        made = cls(inner, context, host=host)
        await made.shake()
        return made

    async def greet(self) -> None:
        """Say the first that this side has to say; `shake` does the rest.

        A client's hello is awaited.

        Raises:
            ssl.SSLError: The other side is no client, or speaks no TLS.
        """
        if self._tls.server_side:
            await self._take()
        await self._step()
        await self._flush()

    async def shake(self) -> None:
        """Shake hands, as far as that was not done.

        Raises:
            ssl.SSLError: The other side does not trust this one, does not prove
                to be who it should, or speaks no TLS.
        """
        while not await self._step():
            await self._flush()
            await self._take()
        await self._flush()

    @override
    async def receive(self) -> bytes:
        if self._early:
            return self._early.pop(0)
        while True:
            pieces, ended = self._opened()
            if pieces or ended:
                return b"".join(pieces)
            # The answer to a new key, or to a session ticket.
            await self._flush()
            await self._take()

    async def is_silent(self) -> bool:
        """Return whether nothing was ever here that nobody received, nor the end.

        What is not for whoever receives, as a session ticket, is nothing. What was
        here may be lost.
        """
        for _ in range(_RECORDS):
            if await is_silent(self._inner):
                return self.says_nothing()
            with contextlib.suppress(OSError):
                await self._take()
        self._was_silent = False
        return False

    def says_nothing(self) -> bool:
        """Whether nothing was ever here that was received and not returned.

        The end and the beginning of a record are something. What was here may be
        lost.
        """
        # To look takes what was said: it is not seen again.
        self._was_silent = self._was_silent and self._is_between_records()
        return self._was_silent

    def _is_between_records(self) -> bool:
        try:
            self._tls.read(1)
        except ssl.SSLWantReadError:
            return not (self._early or self._arrived.pending) and self._records.is_whole
        except ssl.SSLError:
            pass
        return False

    def _opened(self) -> tuple[list[bytes], bool]:
        """Return what of the bytes that are here can be read, and if it is all."""
        pieces: list[bytes] = []
        try:
            for _ in range(_RECORDS):
                piece = self._tls.read(_RECORD)
                if not piece:
                    return pieces, True
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the end, where this side has ended too
            return pieces, True
        return pieces, False

    @override
    async def send(self, data: bytes) -> None:
        if data:
            self._tls.write(data)
            await self._flush()

    @override
    async def send_eof(self) -> None:
        with contextlib.suppress(ssl.SSLError):
            # What is here would be an error after that, and is received all the same.
            while (opened := self._opened())[0]:
                self._early.append(b"".join(opened[0]))
            self._tls.unwrap()
        await self._flush()

    @override
    async def abort(self) -> None:
        await self._inner.abort()

    @override
    async def aclose(self) -> None:
        with anyio.move_on_after(_GOODBYE, shield=True), contextlib.suppress(*BROKEN):
            # It says that this is the end; nobody waits for the other's.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            await self._flush()
        await self._inner.aclose()

    async def _step(self) -> bool:
        """Go on with the handshake; returns whether this side has ended it."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            # What it has to say of that.
            with contextlib.suppress(*BROKEN):
                await self._flush()
            raise
        return True

    async def _take(self) -> None:
        data = await self._inner.receive()
        self._records.feed(data)
        if data:
            self._arrived.write(data)
        else:
            self._arrived.write_eof()

    async def _flush(self) -> None:
        if not self._leaving.pending:
            return
        async with self._flushing:
            if self._torn:
                raise BrokenPipeError("a record was not sent whole")
            self._torn = True
            while self._leaving.pending:
                await self._inner.send(self._leaving.read())
            self._torn = False


class Records:
    """Says whether a stream of TLS is between two of its records."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    @property
    def is_whole(self) -> bool:
        """Whether no record has begun that has not ended."""
        return not self._left and not self._head

    def feed(self, data: bytes) -> None:
        """Go on with what has come."""
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
            else:
                step = min(_HEAD - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == _HEAD:
                    self._left = int.from_bytes(self._head[-2:], "big")
                    self._head = b""
            at += step


#: Bytes before each record, of which the last two are its length.
_HEAD: Final = 5
#: Seconds that the end of TLS may take to be sent.
_GOODBYE: Final = 0.5
#: Bytes of the largest record, and how many are read at once.
_RECORD: Final = 1 << 14
_RECORDS: Final = 16
