"""Requests that the filter reads: parsed, decided, and written anew."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import anyio
import h11

from isobox._channel.background import collapsed
from isobox._core import hosts
from isobox._egress.request import Request
from isobox._egress.wire import BROKEN, join
from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    LimitError,
    PolicyDeniedError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from isobox._core.results import Connection
    from isobox._egress.placeholders import Scanner
    from isobox._egress.redact import Redactor
    from isobox._egress.wire import Peeked

Headers = list[tuple[bytes, bytes]]

#: Bytes of a request's or an answer's head; what most servers take is 8 to 64 KiB.
LARGEST_HEAD: Final = 1 << 16
#: Bytes of a body that is held to be signed.
LARGEST_SIGNED: Final = 16 << 20
#: Seconds that a head may take from its first byte to its last.
_HEAD: Final = 30.0
#: Seconds that a client may keep a connection on which it asks nothing.
_IDLE: Final = 120.0
#: Seconds and bytes of a refused request that are still taken, so that the
#: client gets to read why.
_LINGER, _LINGER_BYTES = 1.0, 1 << 20

#: What is about one connection and not about the message (RFC 9110, 7.6.1).
_HOP: Final = frozenset(
    (
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"te",
        b"trailer",
        b"upgrade",
    )
)
#: Requests that may be made again when a kept connection turns out to be dead.
_REPEATABLE: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests go.

    Attributes:
        host: A name or an address, in the one form.
        port: The port there.
        secure: Whether it is spoken to over TLS.
    """

    host: str
    port: int
    secure: bool = False

    @property
    def authority(self) -> bytes:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.secure else 80
        return (host if self.port == usual else f"{host}:{self.port}").encode("ascii")


@dataclass(frozen=True, slots=True)
class Upstream:
    """How requests leave.

    Attributes:
        connect: Connects to a place, once that is allowed.
        needs_body: Whether `prepare` must be given the body as well.
        prepare: Decides on a request; returns it as it is to be sent.
        scanner: Makes what finds placeholders in a body that goes to a place.
        redactor: Makes what hides secrets in the answers of a place.
        tunnel: Serves a CONNECT, after it was answered.
        explain: Says how an error is answered: the status, the text and more
            headers; None closes the connection.
    """

    connect: Callable[[Place], Awaitable[Connection]]
    needs_body: Callable[[Request, Place], bool]
    prepare: Callable[[Request, Place], Awaitable[Request]]
    scanner: Callable[[Place], Scanner | None]
    redactor: Callable[[Place], Awaitable[Redactor | None]]
    tunnel: Callable[[str, int, Peeked], Awaitable[None]]
    explain: Callable[[Exception, str, int], Awaitable[tuple[int, str, Headers]]]


class BadRequestError(IsoboxError):
    """A request that no server should be asked to understand."""


class HttpSession:
    """The requests of one client connection, one after the other.

    Args:
        client: The connection.
        place: Where they all go; None for a proxy, whose requests say so.
        upstream: How they leave.
        link: A connection to `place` that is there already.
    """

    def __init__(
        self,
        client: Peeked,
        place: Place | None,
        upstream: Upstream,
        link: Connection | None = None,
    ) -> None:
        self._client = client
        self._fixed = place
        self._upstream = upstream
        self._inbound = _connection(h11.SERVER)
        self._link = link
        self._outbound = _connection(h11.CLIENT)
        self._at = place if link is not None else None
        self._reused = False

    async def serve(self) -> None:
        """Serve requests until either side has had enough."""
        try:
            while await self._serve_one():
                self._inbound.start_next_cycle()
        except (BadRequestError, h11.RemoteProtocolError) as error:
            await self._refuse(error, "", 0)
        except TimeoutError:
            # Whoever is slow is told so, where HTTP has a word for it.
            await self._answer(408, "the request took too long to arrive\n", [])
        finally:
            await self._drop()

    async def _serve_one(self) -> bool:
        request = await self._request()
        if request is None:
            return False
        if request.method == b"CONNECT" and self._fixed is None:
            await self._connect(request)
            return False
        place, target = self._target(request)
        try:
            self._check_place(place)
            return await self._exchange(request, place, target)
        except (PolicyDeniedError, UnreachableError, LimitError) as error:
            await self._refuse(error, place.host, place.port)
            return False

    async def _request(self) -> h11.Request | None:
        with anyio.move_on_after(_IDLE) as waiting:
            if not self._inbound.trailing_data[0] and not await self._more():
                return None
        if waiting.cancelled_caught:
            return None
        with anyio.fail_after(_HEAD):
            while (event := self._inbound.next_event()) is h11.NEED_DATA:
                if not await self._more():
                    return None
        if isinstance(event, h11.ConnectionClosed):
            return None
        return cast("h11.Request", event)

    async def _more(self) -> bool:
        data = await self._client.receive()
        self._inbound.receive_data(data)
        return bool(data)

    # Where to.

    async def _connect(self, request: h11.Request) -> None:
        place = _place(request.target, secure=True, named=True)
        self._client.unread(self._inbound.trailing_data[0])
        try:
            await self._upstream.tunnel(place.host, place.port, self._client)
        except (PolicyDeniedError, UnreachableError, LimitError) as error:
            await self._refuse(error, place.host, place.port)

    def _target(self, request: h11.Request) -> tuple[Place, bytes]:
        """Return where a request goes, and the target for the server there.

        Raises:
            BadRequestError: It does not say so, or says two things.
        """
        host = _one(request.headers, b"host")
        secure = self._fixed is not None and self._fixed.secure
        if request.target.startswith(b"/") or request.target == b"*":
            if host is None:
                raise BadRequestError("a request without a Host header")
            place, target = _place(host, secure=secure), bytes(request.target)
            if self._fixed is None:
                raise BadRequestError(
                    "this is a proxy: ask for http://HOST/PATH, or use CONNECT"
                )
        else:
            place, target = _absolute(request.target, secure=secure)
            if host is not None and _place(host, secure=secure) != place:
                raise BadRequestError("the Host header is not the target's host")
        return place, target

    def _check_place(self, place: Place) -> None:
        # SAFETY: a server behind another name's front goes by the Host header; so
        # it must be the name that the connection was allowed for.
        if self._fixed is not None and place != self._fixed:
            raise PolicyDeniedError(
                f"the request is for {place.host}:{place.port}, on a connection to "
                f"{self._fixed.host}:{self._fixed.port}",
                rule="host",
            )

    # One request and its answer.

    async def _exchange(
        self, request: h11.Request, place: Place, target: bytes
    ) -> bool:
        _check_framing(request.headers)
        upgrade = _websocket(request.headers)
        asked = Request(
            host=place.host,
            port=place.port,
            method=bytes(request.method),
            target=target,
            headers=tuple(_forwarded(request.headers.raw_items(), place.authority)),
        )
        body = self._inbound.next_event()
        if self._upstream.needs_body(asked, place):
            return await self._with_whole_body(place, asked, body)
        asked = await self._upstream.prepare(asked, place)
        headers = list(asked.headers)
        if upgrade:
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        head = h11.Request(method=asked.method, target=asked.target, headers=headers)
        if isinstance(body, h11.EndOfMessage):
            await self._ask(place, head)
            await self._answered(place, repeat=head)
            return self._goes_on()
        return await self._with_body(place, head, body)

    async def _with_body(self, place: Place, head: h11.Request, body: object) -> bool:
        link = await self._ask(place, head, whole=False)
        whole = False

        async def send() -> None:
            nonlocal whole
            try:
                await self._send_body(place, link, body)
                whole = True
            except OSError as error:
                # A server that takes no more may still say why.
                if isinstance(error, IsoboxError):
                    raise

        with collapsed():
            async with anyio.create_task_group() as group:
                group.start_soon(send)
                await self._answered(place)
                # An answer that does not wait for the body is the last one.
                group.cancel_scope.cancel()
        return whole and self._goes_on()

    async def _with_whole_body(
        self, place: Place, asked: Request, event: object
    ) -> bool:
        """Hold the body until it is whole, as what signs the request needs it."""
        scanner = self._upstream.scanner(place)
        body = bytearray()
        while not isinstance(event, h11.EndOfMessage):
            if isinstance(event, h11.Data):
                body += event.data
                _scan(scanner, bytes(event.data))
            elif event is not h11.NEED_DATA or not await self._more():
                raise BadRequestError("the request ended before its body did")
            if len(body) > LARGEST_SIGNED:
                raise PolicyDeniedError(
                    f"a body over {LARGEST_SIGNED >> 20} MiB cannot be signed here; "
                    "let the client send its digest (x-amz-content-sha256)",
                    rule="sigv4",
                )
            event = self._inbound.next_event()
        asked = await self._upstream.prepare(replace(asked, body=bytes(body)), place)
        head = h11.Request(
            method=asked.method,
            target=asked.target,
            headers=_sized(asked.headers, len(body)),
        )
        link = await self._ask(place, head, whole=False)
        data = self._outbound.send(h11.Data(bytes(body))) or b""
        await link.send(data + (self._outbound.send(h11.EndOfMessage()) or b""))
        await self._answered(place)
        return self._goes_on()

    def _goes_on(self) -> bool:
        """Whether another request may follow on both connections."""
        states = (self._outbound.our_state, self._outbound.their_state)
        self._reused = states == (h11.DONE, h11.DONE)
        if self._reused:
            self._outbound.start_next_cycle()
        mine = (self._inbound.our_state, self._inbound.their_state)
        return mine == (h11.DONE, h11.DONE)

    async def _ask(
        self, place: Place, head: h11.Request, *, whole: bool = True
    ) -> Connection:
        if self._link is None or self._at != place or not self._fresh():
            await self._renew(place)
        data = self._outbound.send(head) or b""
        if whole:
            data += self._outbound.send(h11.EndOfMessage()) or b""
        link = cast("Connection", self._link)
        await link.send(data)
        return link

    def _fresh(self) -> bool:
        return self._outbound.our_state is h11.IDLE

    async def _renew(self, place: Place) -> None:
        await self._drop()
        self._outbound, self._reused = _connection(h11.CLIENT), False
        self._link, self._at = await self._upstream.connect(place), place

    async def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with contextlib.suppress(*BROKEN):
                await link.aclose()

    async def _send_body(self, place: Place, link: Connection, event: object) -> None:
        scanner = self._upstream.scanner(place)
        while True:
            if event is h11.NEED_DATA:
                await self._more()
            elif isinstance(event, h11.Data):
                _scan(scanner, bytes(event.data))
                await link.send(self._outbound.send(h11.Data(event.data)) or b"")
            elif isinstance(event, h11.EndOfMessage):
                trailers = list(event.headers)
                if trailers:
                    raise BadRequestError("trailers are not forwarded")
                await link.send(self._outbound.send(h11.EndOfMessage()) or b"")
                return
            else:
                raise BadRequestError("the request ended before its body did")
            event = self._inbound.next_event()

    async def _answered(self, place: Place, repeat: h11.Request | None = None) -> None:
        """Carry the answer to the client.

        Args:
            place: Where it comes from.
            repeat: The request, if it has no body and so could be made again.
        """
        redactor = await self._upstream.redactor(place)
        said = bytearray()
        while not isinstance(event := self._next_answer(place), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                if said:
                    await self._client.send(bytes(said))
                    said.clear()
                repeat = await self._arrival(place, repeat)
            elif isinstance(event, h11.InformationalResponse):
                said += self._informed(event)
                if event.status_code == 101:
                    await self._client.send(bytes(said))
                    await self._switched()
                    return
            else:
                said += self._passed(event, place, redactor)
        if redactor is not None:
            said += self._said(redactor.flush())
        said += self._inbound.send(h11.EndOfMessage()) or b""
        await self._client.send(bytes(said))

    async def _arrival(
        self, place: Place, repeat: h11.Request | None
    ) -> h11.Request | None:
        """Take what the server sends; returns what could still be repeated."""
        data = await self._receive()
        if data or repeat is None or not self._can(repeat):
            self._feed(data, place)
            return None
        # A connection that was kept had ended before the request came there.
        await self._renew(place)
        await self._ask(place, repeat)
        return None

    def _passed(
        self, event: object, place: Place, redactor: Redactor | None
    ) -> bytes | bytearray:
        if isinstance(event, h11.Response):
            return self._inbound.send(_answer(event, redactor)) or b""
        if isinstance(event, h11.Data):
            data = bytes(event.data)
            return self._said(data if redactor is None else redactor.feed(data))
        raise UnreachableError(f"{place.host} closed without an answer")

    def _next_answer(self, place: Place) -> object:
        try:
            return self._outbound.next_event()
        except h11.RemoteProtocolError as error:
            raise UnreachableError(f"{place.host} answers no HTTP: {error}") from None

    def _feed(self, data: bytes, place: Place) -> None:
        try:
            self._outbound.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise UnreachableError(f"{place.host} answers no HTTP: {error}") from None

    async def _receive(self) -> bytes:
        link = cast("Connection", self._link)
        try:
            return await link.receive()
        except LimitError:
            raise
        except BROKEN:
            return b""

    def _can(self, head: h11.Request) -> bool:
        return self._reused and head.method in _REPEATABLE

    def _informed(self, event: h11.InformationalResponse) -> bytes:
        headers = [
            pair
            for pair in _forwarded(event.headers.raw_items())
            if pair[0].lower() not in (b"content-length", b"transfer-encoding")
        ]
        if event.status_code == 101:
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        return (
            self._inbound.send(
                h11.InformationalResponse(
                    status_code=event.status_code,
                    headers=headers,
                    reason=event.reason,
                )
            )
            or b""
        )

    def _said(self, data: bytes) -> bytes:
        return (self._inbound.send(h11.Data(data)) or b"") if data else b""

    async def _switched(self) -> None:
        link = cast("Connection", self._link)
        early, _ = self._outbound.trailing_data
        if early:
            await self._client.send(early)
        self._client.unread(self._inbound.trailing_data[0])
        await join(self._client, link)

    # Refusals.

    async def _refuse(self, error: Exception, host: str, port: int) -> None:
        status, text, headers = await self._upstream.explain(error, host, port)
        await self._answer(status, text, headers)

    async def _answer(self, status: int, text: str, headers: Headers) -> None:
        if self._inbound.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # Part of an answer was sent: nobody may take it for the whole.
            await self._client.abort()
            return
        with contextlib.suppress(*BROKEN):
            body = text.encode("utf-8", "replace")
            head = h11.Response(
                status_code=status,
                headers=[
                    (b"Content-Type", b"text/plain; charset=utf-8"),
                    (b"Content-Length", str(len(body)).encode("ascii")),
                    (b"Connection", b"close"),
                    *headers,
                ],
            )
            data = self._inbound.send(head) or b""
            data += self._inbound.send(h11.Data(body)) or b""
            data += self._inbound.send(h11.EndOfMessage()) or b""
            await self._client.send(data)
            await self._client.send_eof()
            await self._linger()

    async def _linger(self) -> None:
        taken = 0
        with anyio.move_on_after(_LINGER):
            while taken < _LINGER_BYTES and (data := await self._client.receive()):
                taken += len(data)


def _connection(role: type[h11.CLIENT | h11.SERVER]) -> h11.Connection:
    return h11.Connection(role, max_incomplete_event_size=LARGEST_HEAD)


def _one(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    found = [value for key, value in headers if key == name]
    if len(found) > 1:
        raise BadRequestError(f"more than one {name.decode('ascii')} header")
    return found[0] if found else None


def _check_framing(headers: Iterable[tuple[bytes, bytes]]) -> None:
    # Whoever reads the one and whoever reads the other see different requests.
    names = {name for name, _ in headers}
    if b"content-length" in names and b"transfer-encoding" in names:
        raise BadRequestError("both Content-Length and Transfer-Encoding")


def _forwarded(
    headers: Iterable[tuple[bytes, bytes]], authority: bytes | None = None
) -> Headers:
    """Return the headers that go on, Host first where there is an authority."""
    pairs = [(bytes(name), bytes(value)) for name, value in headers]
    dropped = set(_HOP)
    for name, value in pairs:
        if name.lower() == b"connection":
            dropped.update(part.strip().lower() for part in value.split(b","))
    # What frames the message goes on whatever `Connection` says of it.
    dropped -= {b"content-length", b"transfer-encoding", b"host"}
    if authority is not None:
        dropped.add(b"host")
    kept = [pair for pair in pairs if pair[0].lower() not in dropped]
    return kept if authority is None else [(b"Host", authority), *kept]


def _sized(headers: Iterable[tuple[bytes, bytes]], size: int) -> Headers:
    framing = (b"content-length", b"transfer-encoding")
    kept = [pair for pair in headers if pair[0].lower() not in framing]
    return [*kept, (b"Content-Length", str(size).encode("ascii"))]


def _answer(event: h11.Response, redactor: Redactor | None) -> h11.Response:
    headers = _forwarded(event.headers.raw_items())
    if redactor is not None:
        headers = [(name, _masked(value, redactor.fresh())) for name, value in headers]
    return h11.Response(
        status_code=event.status_code, headers=headers, reason=event.reason
    )


def _masked(value: bytes, redactor: Redactor) -> bytes:
    return redactor.feed(value) + redactor.flush()


def _websocket(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"upgrade" and value.strip().lower() == b"websocket"
        for name, value in headers
    )


def _scan(scanner: Scanner | None, data: bytes) -> None:
    name = None if scanner is None else scanner.feed(data)
    if name is not None:
        raise PolicyDeniedError(
            f"the placeholder of secret {name!r} is in the request's body, where it "
            "is not replaced",
            rule=f"secret {name}",
        )


def _absolute(target: bytes, *, secure: bool) -> tuple[Place, bytes]:
    scheme, mark, rest = target.partition(b"://")
    wanted = b"https" if secure else b"http"
    if not mark or scheme.lower() != wanted:
        raise BadRequestError(
            f"a target must begin with / or {wanted.decode('ascii')}://; for https, "
            "use CONNECT"
        )
    end = min((at for at in map(rest.find, (b"/", b"?")) if at >= 0), default=len(rest))
    authority, path = rest[:end], rest[end:]
    if not path.startswith(b"/"):
        path = b"/" + path
    return _place(authority, secure=secure), path


def _place(authority: bytes, *, secure: bool, named: bool = False) -> Place:
    """Read HOST or HOST:PORT.

    Raises:
        BadRequestError: It is neither, or has no port though it must.
    """
    text = authority.decode("latin-1")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    if named and not port:
        raise BadRequestError("CONNECT needs HOST:PORT")
    if not text.isascii() or (port and not (port.isdigit() and len(port) <= 5)):
        raise BadRequestError("not HOST or HOST:PORT")
    number = int(port) if port else (443 if secure else 80)
    if not 0 < number < 65536:
        raise BadRequestError("no such port")
    try:
        return Place(hosts.normal(host), number, secure)
    except InvalidArgumentError as error:
        raise BadRequestError(str(error)) from None
