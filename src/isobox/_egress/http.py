"""Requests that the filter reads: parsed, decided, and written anew."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import anyio
import h11

from isobox._channel.background import collapsed
from isobox._channel.join import join
from isobox._egress import answer as answers
from isobox._egress import bounds
from isobox._egress import headers as heads
from isobox._egress import place as places
from isobox._egress.headers import LARGEST_HEAD
from isobox._egress.overrides import is_overridden
from isobox._egress.place import BadRequestError
from isobox._egress.refusal import phrase
from isobox._egress.request import Request
from isobox._egress.sources import SecretError
from isobox._egress.wire import BROKEN, is_silent
from isobox.errors import IsoboxError, LimitError, PolicyDeniedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox._core.results import Connection
    from isobox._egress.answer import Answer
    from isobox._egress.headers import Headers
    from isobox._egress.place import Place
    from isobox._egress.placeholders import Scanner
    from isobox._egress.redact import Redactor
    from isobox._egress.wire import Peeked

#: Bytes of a body that is held to be signed.
LARGEST_SIGNED: Final = 16 << 20
#: Seconds that a head may take from its first byte to its last.
_HEAD: Final = 30.0
#: Seconds that a client may keep a connection on which it asks nothing.
_IDLE: Final = 120.0
#: Seconds that the answer of a client that says no more is waited for: most have
#: left then, and what only shut its side down is as patient.
_PATIENCE: Final = 30.0
#: Seconds that an answer may take before it is looked whether the client is there.
_AT_ONCE: Final = 0.05
#: Seconds for which a client that is told no more is still heard, so that it gets to
#: read what it was told: in the middle of a body, and once it says nothing.
_LINGER, _SILENCE = 30.0, 1.0
#: Seconds that the end of a piece waits for the next, if a secret begins like it:
#: longer than a packet that is lost and sent again takes.
_HELD_BACK: Final = 0.5

#: Requests that may be made again when a kept connection turns out to be dead.
_REPEATABLE: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))

#: What a request is refused with.
_REFUSALS: Final = (
    BadRequestError,
    LimitError,
    PolicyDeniedError,
    SecretError,
    UnreachableError,
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """How requests leave.

    Attributes:
        find: Says which place a proxy's client means.
        connect: Connects to a place, once that is allowed.
        leave: Takes a connection to a place back on which nothing is under way;
            closes it, or keeps it for another client.
        renew: Connects to a place again, instead of by a connection that was there
            for another client before.
        needs_body: Whether `prepare` must be given the body as well.
        hold: Counts bytes of a body that are held for it, and fewer of them.
        prepare: Decides on a request; returns it as it is to be sent.
        scanner: Makes what finds placeholders in a body that goes to a place.
        redactor: Makes what hides secrets in the answers of a place.
        tunnel: Serves a CONNECT, which it answers.
        explain: Says how an error is answered: the status, the text and more
            headers.
    """

    find: Callable[[Place], Place]
    connect: Callable[[Place], Awaitable[Connection]]
    leave: Callable[[Place, Connection], Awaitable[None]]
    renew: Callable[[Place, Connection], Awaitable[Connection]]
    needs_body: Callable[[Request, Place], bool]
    hold: Callable[[int], None]
    prepare: Callable[[Request, Place], Awaitable[Request]]
    scanner: Callable[[Place], Scanner | None]
    redactor: Callable[[Place], Awaitable[Redactor | None]]
    tunnel: Callable[[str, int, Peeked], Awaitable[None]]
    explain: Callable[[IsoboxError, Place | None], Awaitable[tuple[int, str, Headers]]]


class HttpSession:
    """The requests of one client connection, one after the other.

    Args:
        client: The connection.
        place: Where they all go; None for a proxy, whose requests say so.
        upstream: How they leave.
        link: A connection to `place` that is there already.
        may_be_asked: Says whether that still can be asked something, if it was there
            for another client before.
    """

    def __init__(
        self,
        client: Peeked,
        place: Place | None,
        upstream: Upstream,
        link: Connection | None = None,
        *,
        may_be_asked: Callable[[], bool] | None = None,
    ) -> None:
        self._client = client
        self._fixed = place
        self._upstream = upstream
        self._inbound = _connection(h11.SERVER)
        self._method = b""
        self._link = link
        self._outbound = _connection(h11.CLIENT)
        self._at = place if link is not None else None
        # The server may have tired of one that was there before the request.
        self._kept = link is not None
        self._may_be_asked = may_be_asked
        # Whether the server may know the client by the connection.
        self._bound = False
        # Whether part of an answer was said that no parser knows of.
        self._begun = False
        # Whether the client had not been told to go on when it was answered.
        self._waited = False

    async def serve(self) -> None:
        """Serve requests until either side has had enough.

        Raises:
            OSError: The client is gone, or one of the other errors in `BROKEN`.
        """
        try:
            while await self._serve_one():
                pass
        except asyncio.CancelledError:
            # Somebody needs the room.
            await self._drop()
            raise
        finally:
            await self._leave()

    async def _serve_one(self) -> bool:
        where = self._fixed
        try:
            request = await self._request()
            if request is None:
                return False
            if request.method == b"CONNECT":
                await self._connect(request)
                return False
            where, target = self._target(request)
            return await self._exchange(request, where, target)
        except _REFUSALS as error:
            await self._refuse(error, where)
            return False

    async def _request(self) -> h11.Request | None:
        self._method = b""
        if not await self._begins():
            return None
        event = self._event()
        if event is h11.NEED_DATA:
            event = await self._rest()
        if not isinstance(event, h11.Request):
            return None
        self._method = event.method
        heads.check(event.method, event.target, event.headers.raw_items())
        return event

    async def _rest(self) -> object:
        with anyio.move_on_after(_HEAD):
            while (event := self._event()) is h11.NEED_DATA:
                await self._more()
            return event
        raise BadRequestError("it took too long to arrive", status=408)

    async def _begins(self) -> bool:
        if self._inbound.trailing_data[0]:
            return True
        if self._client.has_more:
            return await self._more()
        try:
            async with asyncio.timeout(_IDLE):
                return await self._more()
        except TimeoutError:
            return False

    async def _more(self) -> bool:
        data = await self._client.receive()
        if len(data) > bounds.PIECE:
            self._client.unread(data[bounds.PIECE :])
        self._inbound.receive_data(data[: bounds.PIECE])
        return bool(data)

    def _event(self) -> object:
        inbound = self._inbound
        if inbound.their_state is h11.IDLE and bounds.too_many_lines(
            inbound.trailing_data[0]
        ):
            raise BadRequestError("the request's head is too large", status=431)
        try:
            event = inbound.next_event()
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            raise BadRequestError(bounds.described(error), status=status) from None
        if event is h11.NEED_DATA and bounds.too_long_trailer(inbound):
            raise BadRequestError("a malformed chunk")
        return event

    # Where to.

    async def _connect(self, request: h11.Request) -> None:
        if self._fixed is not None:
            raise BadRequestError("CONNECT is for the proxy")
        place = places.authority(request.target, port=None, secure=True)
        self._client.unread(self._inbound.trailing_data[0])
        try:
            await self._upstream.tunnel(place.host, place.port, self._client)
        except _REFUSALS as error:
            await self._refuse(error, place)

    def _target(self, request: h11.Request) -> tuple[Place, bytes]:
        """Return where a request goes, and the target for the server there.

        Raises:
            BadRequestError: It does not say so, or says two things.
            PolicyDeniedError: It is for another place than the connection.
        """
        host = heads.one(request.headers, b"host")
        target = bytes(request.target)
        whole = not (target.startswith(b"/") or target == b"*")
        if self._fixed is None:
            if not whole:
                raise BadRequestError(
                    "this is a proxy: ask for http://HOST/PATH, or use CONNECT"
                )
            place, target = places.absolute(target, secure=False)
        elif whole:
            place, target = places.absolute(target, secure=self._fixed.secure)
        elif host is None:
            raise BadRequestError("a request without a Host header")
        elif host == self._fixed.authority:
            return self._fixed, target
        else:
            place = self._named(host, self._fixed)
        if host is not None and self._named(host, place) != place:
            raise BadRequestError("the Host header is not the target's host")
        if self._fixed is None:
            return self._upstream.find(place), target
        self._check_place(place, self._fixed)
        return place, target

    def _named(self, host: bytes, there: Place) -> Place:
        # Who names no port means the one that it has come to.
        return places.authority(host, port=there.port, secure=there.secure)

    def _check_place(self, place: Place, fixed: Place) -> None:
        # SAFETY: a server behind another name's front goes by the Host header; so
        # it must be the name that the connection was allowed for.
        if place != fixed:
            raise PolicyDeniedError(
                f"the request is for {place.host}:{place.port}, on a connection to "
                f"{fixed.host}:{fixed.port}",
                rule="host",
            )

    # One request and its answer.

    async def _exchange(
        self, request: h11.Request, place: Place, target: bytes
    ) -> bool:
        asked = Request(
            host=place.host,
            port=place.port,
            method=bytes(request.method),
            target=target,
            headers=tuple(
                heads.forwarded(request.headers.raw_items(), place.authority)
            ),
        )
        event = self._event()
        if self._upstream.needs_body(asked, place):
            return await self._exchange_held(place, asked, event)
        asked = await self._upstream.prepare(asked, place)
        whole = isinstance(event, h11.EndOfMessage)
        upgrade = whole and request.http_version >= b"1.1"
        upgrade = upgrade and heads.asks_for_websocket(request.headers)
        head = _head(asked, list(asked.headers) + (_UPGRADE if upgrade else []))
        if whole:
            repeat = head if _is_repeatable(head) else None
            await self._ask(place, head, b"", repeatable=repeat is not None)
            return await self._answer(place, None, repeat=repeat)
        await self._ask(place, head, None)
        return await self._answer(place, event)

    async def _exchange_held(self, place: Place, asked: Request, event: object) -> bool:
        """Hold the body until it is whole, as what signs the request needs it."""
        body = bytearray()
        try:
            await self._fill(body, place, event)
            asked = await self._upstream.prepare(
                replace(asked, body=bytes(body)), place
            )
            head = _head(asked, heads.sized(asked.headers, len(body)))
            await self._ask(place, head, bytes(body))
        finally:
            self._upstream.hold(-len(body))
        return await self._answer(place, None)

    async def _fill(self, body: bytearray, place: Place, event: object) -> None:
        scanner, turns = self._upstream.scanner(place), bounds.Turns()
        if event is h11.NEED_DATA and self._inbound.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(
                status_code=100, headers=[], reason="Continue"
            )
            await self._client.send(self._inbound.send(go_on) or b"")
        while not isinstance(event, h11.EndOfMessage):
            await turns.step()
            if isinstance(event, h11.Data):
                self._upstream.hold(len(event.data))
                body += event.data
                _scan(scanner, bytes(event.data))
            else:
                await self._more()
            if len(body) > LARGEST_SIGNED:
                raise PolicyDeniedError(
                    f"a body over {LARGEST_SIGNED >> 20} MiB cannot be signed here; "
                    "let the client send its digest (x-amz-content-sha256)",
                    rule="sigv4",
                )
            event = self._event()

    async def _ask(
        self,
        place: Place,
        head: h11.Request,
        body: bytes | None,
        *,
        repeatable: bool = False,
    ) -> None:
        """Send a head, and the body if it is there whole."""
        if not await self._may_ask(place, repeatable):
            await self._renew(place)
        self._bound = self._bound or heads.binds_connection(head.headers)
        data = self._outbound.send(head) or b""
        if body:
            data += self._outbound.send(h11.Data(body)) or b""
        if body is not None:
            data += self._outbound.send(h11.EndOfMessage()) or b""
        await self._say(data)

    async def _say(self, data: bytes) -> bool:
        """Send to the server; returns whether it took it."""
        if not data:
            return True
        try:
            await cast("Connection", self._link).send(data)
        except BROKEN as error:
            # A server that takes no more may still say why.
            if isinstance(error, IsoboxError):
                raise
            return False
        return True

    async def _may_ask(self, place: Place, repeatable: bool) -> bool:
        """Whether the connection that is there, if one is, can take a request."""
        link, may_be_asked = self._link, self._may_be_asked
        if link is None or self._at != place:
            return False
        if may_be_asked is not None and not (repeatable and may_be_asked()):
            # The server may have tired of what was there for another client, and
            # what cannot be asked again is not risked on that.
            return False
        if self._outbound.our_state is not h11.IDLE:
            return False
        # SAFETY: what was said unasked would be taken for the answer. And the server
        # may have gone, while what is asked could not be asked again.
        silent = await is_silent(link)
        self._kept = self._kept and silent
        return silent

    async def _renew(self, place: Place) -> None:
        link, borrowed = self._link, self._may_be_asked is not None
        self._may_be_asked = None
        if link is None or not borrowed or self._at != place:
            await self._leave()
            connecting = self._upstream.connect(place)
        else:
            self._link = None
            connecting = self._upstream.renew(place, link)
        self._outbound = _connection(h11.CLIENT)
        self._kept = self._bound = False
        self._link, self._at = await connecting, place

    async def _leave(self) -> None:
        """Have no connection to a server any more."""
        states = (self._outbound.our_state, self._outbound.their_state)
        if not self._kept or self._bound or states != _UNUSED or self._at is None:
            await self._drop()
            return
        link, self._link = self._link, None
        if link is not None:
            with contextlib.suppress(*BROKEN):
                await self._upstream.leave(self._at, link)

    async def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with contextlib.suppress(*BROKEN):
                await link.aclose()

    async def _answer(
        self, place: Place, event: object, repeat: h11.Request | None = None
    ) -> bool:
        """Carry the answer to the client, while the rest of the body is sent.

        Args:
            place: Where it goes.
            event: The beginning of the body, None if it was sent.
            repeat: The request, if it could be made again.

        Returns:
            Whether another request may follow.
        """
        if event is None:
            first = await self._first(place, repeat)
            answer = answers.read(first) if self._may_be_plain() else None
            if answer is not None:
                await self._pass_on(place, answer, first[answer.start :])
                return True
            whole, switched = True, await self._carry(place, self._patient, first)
        else:
            whole, switched = await self._trade(place, event)
        if switched:
            await self._join(place)
            return False
        if not whole:
            await self._part()
            return False
        if self._goes_on():
            return True
        await self._leave()
        await self._part(_SILENCE)
        return False

    async def _first(self, place: Place, repeat: h11.Request | None) -> bytes:
        """Return the beginning of an answer, empty if there is none."""
        data = await self._patient(place)
        if data or repeat is None or not self._kept:
            return data
        # A connection that was kept had ended before the request came there.
        await self._renew(place)
        await self._ask(place, repeat, b"")
        return await self._patient(place)

    def _may_be_plain(self) -> bool:
        """Whether both connections go on after an answer of the plain kind."""
        inbound, outbound = self._inbound, self._outbound
        mine = (inbound.our_state, inbound.their_state) == _ASKED
        whole = outbound.our_state is h11.DONE and not outbound.trailing_data[0]
        return (
            mine
            and whole
            and inbound.their_http_version == b"1.1"
            and self._method != b"HEAD"
        )

    async def _pass_on(self, place: Place, answer: Answer, body: bytes) -> None:
        """Carry a plain answer, of whose body nothing has to be understood."""
        redactor = await self._upstream.redactor(place)
        headers = heads.masked(heads.forwarded(answer.headers), redactor)
        reason = heads.mask(answer.reason, redactor)
        said = answers.written(answer.status, reason, headers)
        left, surplus = answer.length, False
        self._begun = True
        while True:
            # SAFETY: what came after the answer would be taken for the next one.
            surplus, body = len(body) > left, body[:left]
            left -= len(body)
            said += body if redactor is None else redactor.feed(body)
            if not left:
                break
            if said:
                await self._client.send(said)
            said = b""
            body = await self._piece(place, self._patient, redactor, bytes)
            if not body:
                raise UnreachableError(f"{place.host} broke off its answer")
        if redactor is not None:
            said += redactor.flush()
        if said:
            await self._client.send(said)
        self._begun = False
        if surplus:
            await self._drop()
        self._begin_again()

    def _begin_again(self) -> None:
        """Let another request follow, after an answer that no parser has seen."""
        early, ended = self._inbound.trailing_data
        self._inbound, self._outbound = _connection(h11.SERVER), _connection(h11.CLIENT)
        self._kept, self._may_be_asked = self._link is not None, None
        if early:
            self._inbound.receive_data(early)
        if ended:
            self._inbound.receive_data(b"")

    async def _trade(self, place: Place, event: object) -> tuple[bool, bool]:
        """Carry an answer while the body is sent.

        Returns:
            Whether all of the body was taken, and whether something else than
            HTTP follows.
        """
        whole = switched = answered = False
        sent = anyio.Event()

        async def attend() -> None:
            nonlocal whole
            try:
                whole = await self._send_body(place, event)
            except BadRequestError:
                # A client that has its answer may leave.
                if not (answered and self._inbound.trailing_data[1]):
                    raise
            sent.set()
            if whole:
                await self._watch()
            else:
                await self._ignore()

        with collapsed():
            async with anyio.create_task_group() as group:
                group.start_soon(attend)
                switched = await self._carry(place, self._receive)
                answered = True
                # A server may answer early, and take the body all the same. Who waits
                # to be told to go on may not send it any more.
                if not self._waited:
                    await sent.wait()
                group.cancel_scope.cancel()
        return whole, switched

    async def _patient(self, place: Place) -> bytes:
        """Receive from the server, as long as the client waits for it."""
        # Most answers come at once, and starting to watch takes longer than they.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AT_ONCE):
                return await self._receive(place)
        data = b""
        with collapsed():
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch)
                data = await self._receive(place)
                group.cancel_scope.cancel()
        return data

    async def _piece(
        self,
        place: Place,
        receive: Callable[[Place], Awaitable[bytes]],
        redactor: Redactor | None,
        framed: Callable[[bytes], bytes],
    ) -> bytes:
        """Receive from the server; what is held back does not wait for long."""
        if redactor is not None and redactor.holds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HELD_BACK):
                    return await self._receive(place)
            await self._client.send(framed(redactor.hurry()))
        return await receive(place)

    async def _watch(self) -> None:
        """Read ahead, so that it is seen when the client leaves."""
        while len(self._inbound.trailing_data[0]) < LARGEST_HEAD:
            if not await self._more():
                await anyio.sleep(_PATIENCE)
                raise ConnectionAbortedError("the client has left")

    async def _send_body(self, place: Place, event: object) -> bool:
        """Send a body as it comes; returns whether all of it was taken."""
        scanner, turns = self._upstream.scanner(place), bounds.Turns()
        while not isinstance(event, h11.EndOfMessage):
            await turns.step()
            if event is h11.NEED_DATA:
                await self._more()
            elif isinstance(event, h11.Data):
                _scan(scanner, bytes(event.data))
                if not await self._say(self._outbound.send(event) or b""):
                    return False
            event = self._event()
        if list(event.headers):
            raise BadRequestError("trailers are not forwarded")
        return await self._say(self._outbound.send(h11.EndOfMessage()) or b"")

    def _goes_on(self) -> bool:
        """Whether another request may follow on both connections."""
        states = (self._outbound.our_state, self._outbound.their_state)
        # SAFETY: what came after the answer would be taken for the next one.
        self._kept = states == _DONE and not self._outbound.trailing_data[0]
        self._may_be_asked = None
        if self._kept:
            self._outbound.start_next_cycle()
        if (self._inbound.our_state, self._inbound.their_state) != _DONE:
            return False
        self._inbound.start_next_cycle()
        return True

    async def _carry(
        self,
        place: Place,
        receive: Callable[[Place], Awaitable[bytes]],
        first: bytes | None = None,
    ) -> bool:
        """Carry an answer; returns whether something else than HTTP follows."""
        redactor = await self._upstream.redactor(place)
        said, arrived, turns = bytearray(), first, bounds.Turns()
        interim = 0
        while not isinstance(event := self._next(place), h11.EndOfMessage):
            await turns.step()
            if event is h11.NEED_DATA:
                if arrived is None and said:
                    await self._client.send(bytes(said))
                    said.clear()
                data = arrived
                if data is None:
                    data = await self._piece(place, receive, redactor, self._said)
                self._feed(data[: bounds.PIECE], place)
                arrived = data[bounds.PIECE :] or None
            elif isinstance(event, h11.InformationalResponse):
                interim += 1
                if interim > bounds.MOST_INTERIM:
                    raise _no_http(place, "too many interim answers")
                said += self._informed(event, redactor)
                if event.status_code == 101:
                    self._feed_rest(arrived, place)
                    await self._client.send(bytes(said))
                    return True
            else:
                said += self._passed(event, place, redactor)
        self._feed_rest(arrived, place)
        if redactor is not None:
            said += self._said(redactor.flush())
        said += self._inbound.send(h11.EndOfMessage()) or b""
        if said:
            await self._client.send(bytes(said))
        return False

    def _passed(
        self, event: object, place: Place, redactor: Redactor | None
    ) -> bytes | bytearray:
        if isinstance(event, h11.Response):
            answer = h11.Response(
                status_code=event.status_code,
                headers=heads.masked(
                    heads.forwarded(event.headers.raw_items()), redactor
                ),
                reason=heads.mask(bytes(event.reason), redactor),
            )
            self._waited = self._inbound.they_are_waiting_for_100_continue
            return self._inbound.send(answer) or b""
        if isinstance(event, h11.Data):
            data = bytes(event.data)
            return self._said(data if redactor is None else redactor.feed(data))
        raise UnreachableError(f"{place.host} closed without an answer")

    def _next(self, place: Place) -> object:
        outbound = self._outbound
        if outbound.their_state is h11.SEND_RESPONSE:
            early, ended = outbound.trailing_data
            if ended and not early:
                raise UnreachableError(f"{place.host} closed without an answer")
            if bounds.too_many_lines(early):
                raise _no_http(place, "the answer's head is too large")
        try:
            event = outbound.next_event()
        except h11.RemoteProtocolError as error:
            raise _no_http(place, bounds.described(error)) from None
        if isinstance(event, h11.Response | h11.InformationalResponse):
            size = len(event.reason) + heads.size(event.headers.raw_items())
            if size > LARGEST_HEAD:
                raise _no_http(place, "the answer's head is too large")
        if event is h11.NEED_DATA and bounds.too_long_trailer(outbound):
            raise _no_http(place, "a malformed chunk")
        return event

    def _feed_rest(self, data: bytes | None, place: Place) -> None:
        if data:
            self._feed(data, place)

    def _feed(self, data: bytes, place: Place) -> None:
        try:
            self._outbound.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise _no_http(place, bounds.described(error)) from None

    async def _receive(self, place: Place) -> bytes:
        try:
            return await cast("Connection", self._link).receive()
        except BROKEN as error:
            if isinstance(error, IsoboxError):
                raise
            # SAFETY: what was cut off must not pass for the end.
            if self._outbound.their_state is h11.SEND_BODY:
                raise UnreachableError(f"{place.host} broke off its answer") from None
            return b""

    def _informed(
        self, event: h11.InformationalResponse, redactor: Redactor | None
    ) -> bytes:
        if (self._inbound.their_http_version or b"") < b"1.1":
            return b""  # which has no such answers
        passed = heads.unframed(heads.forwarded(event.headers.raw_items()))
        answer = h11.InformationalResponse(
            status_code=event.status_code,
            headers=heads.masked(passed, redactor)
            + (_UPGRADE if event.status_code == 101 else []),
            reason=heads.mask(bytes(event.reason), redactor),
        )
        return self._inbound.send(answer) or b""

    def _said(self, data: bytes) -> bytes:
        return (self._inbound.send(h11.Data(data)) or b"") if data else b""

    async def _join(self, place: Place) -> None:
        link = cast("Connection", self._link)
        early, _ = self._outbound.trailing_data
        if early:
            await self._client.send(early)
        self._client.unread(self._inbound.trailing_data[0])
        # TLS has no half-closed state that programs could rely on.
        await join(self._client, link, halves=not place.secure)

    # Refusals.

    async def _refuse(self, error: IsoboxError, place: Place | None) -> None:
        status, text, more = await self._upstream.explain(error, place)
        states = (h11.IDLE, h11.SEND_RESPONSE)
        if self._begun or self._inbound.our_state not in states:
            # Part of an answer was sent: nobody may take it for the whole.
            await self._client.abort()
            return
        body = text.encode("utf-8", "replace")
        head = h11.Response(
            status_code=status,
            reason=phrase(text),
            headers=[
                (b"Content-Type", b"text/plain; charset=utf-8"),
                (b"Content-Length", str(len(body)).encode("ascii")),
                (b"Connection", b"close"),
                *more,
            ],
        )
        data = self._inbound.send(head) or b""
        if self._method != b"HEAD":
            data += self._inbound.send(h11.Data(body)) or b""
        data += self._inbound.send(h11.EndOfMessage()) or b""
        await self._client.send(data)
        await self._part()

    async def _part(self, longest: float | None = None) -> None:
        """Say nothing more, and let the client read what was said."""
        longest = _LINGER if longest is None else longest
        in_body = self._inbound.their_state is h11.SEND_BODY
        silence = longest if in_body else _SILENCE
        with anyio.move_on_after(longest):
            await self._client.send_eof()
            while await self._hears(silence):
                pass

    async def _hears(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return bool(await self._client.receive())
        return False

    async def _ignore(self) -> None:
        """Take what the client says, so that it comes to read."""
        while await self._client.receive():
            pass


_UNUSED: Final = (h11.IDLE, h11.IDLE)
_DONE: Final = (h11.DONE, h11.DONE)
_ASKED: Final = (h11.SEND_RESPONSE, h11.DONE)
_UPGRADE: Final = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]


def _connection(role: type[h11.CLIENT | h11.SERVER]) -> h11.Connection:
    return h11.Connection(role, max_incomplete_event_size=LARGEST_HEAD)


def _head(asked: Request, headers: Headers) -> h11.Request:
    try:
        return h11.Request(method=asked.method, target=asked.target, headers=headers)
    except h11.LocalProtocolError:
        # What it says would quote a secret.
        raise BadRequestError("with its secrets it is no request") from None


def _is_repeatable(head: h11.Request) -> bool:
    return head.method in _REPEATABLE and not is_overridden(head.headers)


def _no_http(place: Place, words: str) -> UnreachableError:
    return UnreachableError(f"{place.host} answers no HTTP: {words}")


def _scan(scanner: Scanner | None, data: bytes) -> None:
    name = None if scanner is None else scanner.feed(data)
    if name is not None:
        raise PolicyDeniedError(
            f"the placeholder of secret {name!r} is in the request's body, where it "
            "is not replaced",
            rule=f"secret {name}",
        )
