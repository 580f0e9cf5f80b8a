"""A duplex stream to a process in a container, over the engine's socket.

The engine answers one request with an upgrade and hands the connection over.
What we write is the process's input as it is; what it prints comes in pieces
with a header of eight bytes: which output it is, and how long the piece is.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

import h11
from typing_extensions import override

from isobox.errors import SandboxLostError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from isobox._backends.docker.places import Place

_HEADER: Final = 8
_STDOUT: Final = 1
_STDERR: Final = 2
#: The engine's own, in the place of an output's number, for its errors.
_SYSTEM: Final = 3
_LONGEST_COMPLAINT: Final = 8192
#: Bytes that a process may print before somebody listens, and then has to wait.
_EARLY: Final = 65536


class Hijacked(asyncio.Protocol):
    """A connection that the engine hands over to a process.

    Attributes:
        complaint: What the process wrote to its standard error, its beginning.
        on_piece: Takes what it prints, with the output's number, in the receiver's
            place. Set before `give`, it is told of all, what is printed at once too.
        on_end: Told once when it ends; the receiver is told after that is done.
    """

    def __init__(
        self, path: str, body: object | None, host: str, *, plain: bool = False
    ) -> None:
        self.complaint = bytearray()
        self.on_end: Callable[[], asyncio.Future[None] | None] | None = None
        self.on_piece: Callable[[int, bytes], None] | None = None
        self._request = _request(path, body, host)
        self._http = h11.Connection(h11.CLIENT)
        self._upgraded: asyncio.Future[None] = asyncio.Future()
        self._receiver: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._early: list[tuple[int, bytes]] = []
        self._early_size = 0
        self._ended = False
        self._cutter = Cutter(self._printed)
        self._plain = plain
        self._ending: set[asyncio.Future[None]] = set()

    # asyncio's side.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream's
        self._transport = transport
        for event in self._request:
            transport.write(self._http.send(event) or b"")

    @override
    def data_received(self, data: bytes) -> None:
        if self._upgraded.done():
            self._carry(data)
        else:
            self._answered(data)

    @override
    def eof_received(self) -> bool:
        # Nobody is there to take what is still to be written: a close would wait.
        self.abort()
        return True

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self._upgraded.done():
            self._fail("the container engine hung up")
        waiting = None if self.on_end is None else self.on_end()
        if waiting is None:
            self._tell_end()
            return
        self._ending.add(waiting)
        waiting.add_done_callback(lambda _: self._tell_end())

    @override
    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.pause_writing()

    @override
    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.resume_writing()

    # The upgrade.

    def _answered(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._refuse(f"the engine does not speak HTTP: {error}")
            return
        if event is h11.NEED_DATA:
            return
        if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            self._hand_over()
        elif isinstance(event, h11.Response):
            self._refuse(_said(event, self._http))

    def _hand_over(self) -> None:
        self._upgraded.set_result(None)
        rest, _closed = self._http.trailing_data
        if rest:
            self._carry(rest)

    def _refuse(self, why: str) -> None:
        self._fail(why)
        self.abort()

    def _fail(self, why: str) -> None:
        self._upgraded.set_exception(SandboxLostError(why))
        # Who waited may have been cancelled; then nobody is to be told.
        self._upgraded.exception()

    async def upgraded(self) -> None:
        """Wait until the process has the connection.

        Raises:
            SandboxLostError: The engine refused.
        """
        await asyncio.shield(self._upgraded)

    # What is carried.

    def give(self, receiver: asyncio.Protocol) -> None:
        """Lead what the process prints, and has printed, to `receiver`.

        It is told of all in the order in which it was printed, and of the end after
        that, as if it had a socket.
        """
        assert self._transport is not None  # noqa: S101 - it is upgraded
        self._receiver = receiver
        receiver.connection_made(self._transport)
        early, self._early = self._early, []
        # Whoever listens may pause it again while they take what is there.
        self.resume()
        for output, piece in early:
            self._pass_on(output, piece)
        if self._ended:
            receiver.connection_lost(None)

    def write(self, data: bytes) -> None:
        """Send the process input."""
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def write_eof(self) -> None:
        """Close the process's input."""
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def pause(self) -> None:
        """Take nothing of what the process prints, until `resume`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Take it again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _printed(self, output: int, piece: bytes) -> None:
        if self.on_piece is None and output in (_STDERR, _SYSTEM):
            room = _LONGEST_COMPLAINT - len(self.complaint)
            self.complaint += piece[: max(room, 0)]
        if self._receiver is not None:
            self._pass_on(output, piece)
        else:
            self._hold(output, piece)

    def _pass_on(self, output: int, piece: bytes) -> None:
        if self.on_piece is not None:
            self.on_piece(output, piece)
        elif self._receiver is not None and output not in (_STDERR, _SYSTEM):
            self._receiver.data_received(piece)

    def _hold(self, output: int, piece: bytes) -> None:
        """Keep what is printed before somebody listens."""
        self._early.append((output, piece))
        self._early_size += len(piece)
        if self._early_size >= _EARLY:
            self.pause()

    def _carry(self, data: bytes) -> None:
        # A terminal has one output, and no headers.
        if self._plain:
            self._printed(_STDOUT, data)
        else:
            self._cutter.feed(data)

    def _tell_end(self) -> None:
        self._ended = True
        self._ending.clear()
        if self._receiver is not None:
            self._receiver.connection_lost(None)


class Cutter:
    """Takes the engine's headers out; keeps at most one header."""

    def __init__(self, printed: Callable[[int, bytes], None]) -> None:
        self._printed = printed
        self._header = bytearray()
        self._output = 0
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Pass on the pieces in `data`, each as far as it is there."""
        at = 0
        while at < len(data):
            if not self._left:
                at += self._take_header(data, at)
                continue
            piece = data[at : at + self._left]
            self._left -= len(piece)
            at += len(piece)
            self._printed(self._output, piece)

    def _take_header(self, data: bytes, at: int) -> int:
        part = data[at : at + _HEADER - len(self._header)]
        self._header += part
        if len(self._header) == _HEADER:
            self._output = self._header[0]
            self._left = int.from_bytes(self._header[4:], "big")
            self._header.clear()
        return len(part)


async def open_stream(
    place: Place,
    path: str,
    body: object | None = None,
    *,
    security: ssl.SSLContext | None = None,
    plain: bool = False,
) -> Hijacked:
    """Post a request whose answer is a stream to a process.

    Raises:
        OSError: The engine is not reached.
        SandboxLostError: It refused, or hung up.
    """
    loop = asyncio.get_running_loop()
    host = "docker" if place.is_local else place.address[0]

    def made() -> Hijacked:
        return Hijacked(path, body, host, plain=plain)

    if place.path is not None:
        _, stream = await loop.create_unix_connection(made, place.path)
    else:
        _, stream = await loop.create_connection(made, *place.address, ssl=security)
    try:
        await stream.upgraded()
    except BaseException:
        stream.abort()
        raise
    return stream


def _request(path: str, body: object | None, host: str) -> list[h11.Event]:
    content = b"" if body is None else json.dumps(body).encode()
    headers = [
        ("Host", host),
        ("Connection", "Upgrade"),
        ("Upgrade", "tcp"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(content))),
    ]
    begin = h11.Request(method="POST", target=path, headers=headers)
    return [begin, h11.Data(data=content), h11.EndOfMessage()]


def _said(response: h11.Response, http: h11.Connection) -> str:
    """Return what the engine says of a refusal, as far as it is there."""
    event = http.next_event()
    text = (
        bytes(event.data[:500]).decode("utf-8", "replace")
        if (isinstance(event, h11.Data))
        else ""
    )
    return f"the engine refused ({response.status_code}): {text.strip()}"
