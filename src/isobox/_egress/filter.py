"""The filter: every connection of one sandbox, decided and carried out."""

from __future__ import annotations

import asyncio
import contextlib
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final, cast

import anyio
from typing_extensions import override

from isobox._channel.background import Background, collapsed
from isobox._core import hosts
from isobox._core.network import Outlet
from isobox._core.ops import Connect
from isobox._core.results import Ongoing
from isobox._egress import client_hello, dns, socks, upstream
from isobox._egress.budget import Budget
from isobox._egress.denial import Denials
from isobox._egress.http import BadRequestError, HttpSession, Place, Upstream
from isobox._egress.names import Names
from isobox._egress.parsing import ParseError
from isobox._egress.sniff import Kind, kind
from isobox._egress.wire import BROKEN, Peeked, Secured, Tally, carry, join
from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    LimitError,
    PolicyDeniedError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._core.ops import Via
    from isobox._core.results import Connection
    from isobox._core.stack import Perform
    from isobox._egress.authority import Authority
    from isobox._egress.placeholders import Scanner
    from isobox._egress.redact import Redactor
    from isobox._egress.request import Request
    from isobox._egress.vault import Vault
    from isobox._policy.network import Network

#: Seconds until a client has said who it is: a SOCKS request, a whole ClientHello.
_HELLO: Final = 30.0
#: Seconds that names inside may be kept by clients; what they stand for stays.
_TTL: Final = 60
#: Denied questions for names of which each is put on record, and how many more
#: may wait for it: names are free, and the log is not to be flooded.
_QUESTIONS: Final = 64
#: Where nothing but HTTP and TLS is spoken, whatever somebody makes of it.
_WEB: Final = (80, 443)

REFUSALS: Final = (PolicyDeniedError, UnreachableError, LimitError)

Report = dict[str, object]


class Filter(Outlet):
    """Serves what one sandbox sends out.

    Args:
        perform: The workspace's stack, which every `Connect` passes.
        network: What may be reached.
        vault: The secrets.
        authority: Makes certificates for hosts whose TLS is read.
        proxy_port: The port inside where programs find the proxy.
        report: Told of every decision, as it is made.
    """

    def __init__(
        self,
        perform: Perform,
        network: Network,
        *,
        vault: Vault | None = None,
        authority: Authority | None = None,
        proxy_port: int,
        report: Callable[[Report], None],
    ) -> None:
        self._perform = perform
        self._network = network
        self._vault = vault
        self._authority = authority
        self._proxy_port = proxy_port
        self._report = report
        self._budget = Budget(network)
        self._names = Names("198.18.0.0/15")
        self._questions: asyncio.Queue[str] = asyncio.Queue(_QUESTIONS)
        self._background = Background()
        self.denials = Denials()

    async def open(self) -> None:
        """Be ready to serve."""
        await self._background.open()
        self._background.start(self._record_questions)

    def lead(self, addresses: str) -> None:
        """Give names addresses of this network from now on."""
        self._names = Names(addresses)

    async def aclose(self) -> None:
        """Stop what it does by itself; safe to call again."""
        await self._background.aclose()

    # What the sandbox catches.

    @override
    async def connected(self, connection: Connection, address: str, port: int) -> None:
        client = Peeked(connection)
        try:
            with contextlib.suppress(*BROKEN, TimeoutError), collapsed():
                await self._serve(client, address, port)
        finally:
            with anyio.CancelScope(shield=True), contextlib.suppress(*BROKEN):
                await client.aclose()

    @override
    def asked(self, query: bytes) -> bytes | None:
        # SAFETY: nothing is forwarded, whatever the name: a question that
        # reached a server outside would carry data there.
        try:
            question = dns.parse(query)
        except ParseError:
            return dns.formerr(query)
        try:
            name = hosts.normal(question.name)
        except InvalidArgumentError:
            return dns.nxdomain(question)
        if name == "localhost":
            return dns.answer(question, _LOOPBACK, _TTL)
        if self._network.answers(name).verdict == "deny":
            self._note_question(name)
            return dns.nxdomain(question)
        if question.type != dns.A:
            return dns.empty(question)
        address = self._names.address(name)
        if address is None:
            return dns.servfail(question)
        return dns.answer(question, [address], _TTL)

    def _note_question(self, name: str) -> None:
        decision = self._network.answers(name)
        self.denials.add(name, 53, decision.rule, decision.reason)
        with contextlib.suppress(asyncio.QueueFull):
            self._questions.put_nowait(name)

    async def _record_questions(self) -> None:
        while True:
            name = await self._questions.get()
            with contextlib.suppress(IsoboxError):
                await self._connect(name, 53, "dns")

    async def _serve(self, client: Peeked, address: str, port: int) -> None:
        host = self._names.host(address)
        if port == self._proxy_port and hosts.address_of(address) in _LOOPBACK:
            await self._proxy(client)
        elif host is None:
            await client.abort()
        else:
            try:
                link = await self._connect(host, port, "direct")
            except REFUSALS as error:
                await self._note(error, host, port, "direct")
                await client.abort()
            else:
                await self._carry(client, link, Place(host, port), "direct")

    async def _proxy(self, client: Peeked) -> None:
        with anyio.fail_after(_HELLO):
            start = await client.peek()
        if start[:1] in (b"\x04", b"\x05"):
            await self._socks(client)
        elif start:
            await HttpSession(client, None, self._upstream("http")).serve()

    async def _socks(self, client: Peeked) -> None:
        session = socks.Socks()
        try:
            with anyio.fail_after(_HELLO):
                request = await _negotiated(session, client)
            host = hosts.normal(request.host)
        except ParseError as error:
            await client.send(error.reply)
            return
        except InvalidArgumentError:
            await client.send(socks.reply(socks.Reply.FAILED))
            return
        try:
            host = self._dialled(host)
            link = await self._connect(host, request.port, "socks5")
        except REFUSALS as error:
            await self._note(error, host, request.port, "socks5")
            unreachable = isinstance(error, UnreachableError)
            code = socks.Reply.HOST_UNREACHABLE if unreachable else socks.Reply.DENIED
            await client.send(socks.reply(code))
        else:
            await client.send(socks.reply(socks.Reply.SUCCEEDED))
            client.unread(session.rest)
            await self._carry(client, link, Place(host, request.port), "socks5")

    def _dialled(self, host: str) -> str:
        """Return what a proxy's client means by a host in the one form.

        Raises:
            PolicyDeniedError: It is the sandbox's own loopback.
        """
        address = hosts.address_of(host)
        if address is None and host != "localhost" and not host.endswith(".localhost"):
            return host
        found = None if address is None else self._names.host(host)
        if found is None:
            raise PolicyDeniedError(
                f"{host} is the sandbox's own; connect to it without the proxy",
                rule="localhost",
            )
        return found

    # Connections.

    async def _connect(self, host: str, port: int, via: Via) -> Tally:
        """Connect to a host, if that is allowed.

        Raises:
            PolicyDeniedError: It is not.
            UnreachableError: It cannot be reached.
            LimitError: There are too many connections.
        """
        op = Connect(host=host, port=port, via=via, reach=self._reach)
        return cast("Tally", await self._performed(op))

    async def _performed(self, op: Connect) -> Ongoing:
        asked = _asked(op)
        result = await self._perform(op)
        self._report({"event": "allowed", **asked})
        result.on_end(lambda end: self._report({"event": "ended", **asked, **end}))
        return result

    async def _note(self, error: IsoboxError, host: str, port: int, via: Via) -> None:
        """Keep what was refused, for the model, for whoever watches, on record."""
        if isinstance(error, PolicyDeniedError):
            self.denials.add(host, port, error.rule, error.reason)
        elif isinstance(error, LimitError):
            self.denials.add(host, port, "limit", str(error))

        async def reach(_: Connect) -> Ongoing:
            raise error

        op = Connect(host=host, port=port, via=via, reach=reach)
        self._report({"event": "refused", **_asked(op), "reason": str(error)})
        # What came out of the stack bears the operation's name, and is on record.
        if error.op is None:
            with contextlib.suppress(IsoboxError):
                await self._perform(op)

    async def _reach(self, op: Connect) -> Tally:
        self._budget.check(op.host)
        self._budget.admit()
        try:
            link, address = await upstream.reach(op.host, op.port, self._network)
        except BaseException:
            self._budget.leave()
            raise
        return Tally(
            link,
            self._budget.spender(op.host),
            {"address": str(address)},
            self._budget.leave,
        )

    async def _tunnel(self, host: str, port: int, client: Peeked) -> None:
        host = self._dialled(host)
        link = await self._connect(host, port, "connect")
        # From here on it is the tunnel's failure, and not the proxy's.
        with contextlib.suppress(*BROKEN, TimeoutError), collapsed():
            await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._carry(client, link, Place(host, port), "connect")

    async def _carry(self, client: Peeked, link: Tally, place: Place, via: Via) -> None:
        """Carry a connection, once it is clear that it is to where it was allowed."""
        async with link:
            try:
                with collapsed():
                    await self._inspect(client, link, place)
            except ParseError as error:
                refusal = PolicyDeniedError(str(error), rule="malformed")
                await self._note(refusal, place.host, place.port, via)
                await client.abort()
            except (PolicyDeniedError, LimitError) as error:
                await self._note(error, place.host, place.port, via)
                await client.abort()

    async def _inspect(self, client: Peeked, link: Tally, place: Place) -> None:
        server = Peeked(link)
        web = place.port in _WEB or self._is_read(place)
        if not web and await _who_speaks(client, server) == "server":
            await self._join_after_look(client, server, place)
            return
        match await _kind(client):
            case "tls":
                await self._tls(client, server, place)
            case "http":
                session = HttpSession(client, place, self._upstream("direct"), server)
                await session.serve()
            case "http2":
                raise PolicyDeniedError("HTTP/2 without TLS is not carried")
            case None:
                return
            case _:
                # SAFETY: a server of the web may take for HTTP what does not
                # look it, and go by a Host header that nobody has seen.
                if web:
                    raise PolicyDeniedError("neither HTTP nor TLS", rule="protocol")
                await _check_start(client)
                await join(client, server)

    async def _tls(self, client: Peeked, server: Peeked, place: Place) -> None:
        await self._check_hello(client, place)
        if not self._is_read(place):
            await join(client, server)
            return
        assert self._authority is not None  # noqa: S101 - there is one where TLS is read
        inner = await Secured.accept(client, self._authority.context(place.host))
        secure = Place(place.host, place.port, secure=True)
        await HttpSession(
            Peeked(inner), secure, self._upstream("direct", server)
        ).serve()
        await inner.aclose()

    async def _join_after_look(
        self, client: Peeked, server: Peeked, place: Place
    ) -> None:
        """Join where the server speaks first, and look at the client's words yet."""

        async def inwards() -> None:
            match await _kind(client):
                case "tls":
                    await self._check_hello(client, place)
                case "other":
                    await _check_start(client)
                case None:
                    pass
                case _:
                    raise PolicyDeniedError("HTTP where the server speaks first")
            await carry(client, server)

        async with anyio.create_task_group() as group:
            group.start_soon(inwards)
            group.start_soon(carry, server, client)

    async def _check_hello(self, client: Peeked, place: Place) -> None:
        """Return if a ClientHello asks for the host that was allowed.

        Raises:
            PolicyDeniedError: It asks for another, hides its name or has none.
            ParseError: It is malformed.
        """
        with anyio.fail_after(_HELLO):
            while (hello := client_hello.parse(await client.peek())) is None:
                if not await client.peek_more():
                    raise ParseError("the ClientHello ends early")
        if hello.encrypted and not self._is_read(place):
            raise PolicyDeniedError("an encrypted ClientHello could hide another name")
        if hello.server_name is None:
            if hosts.address_of(place.host) is None:
                raise PolicyDeniedError("TLS without a server name")
            return
        self._check_name(hello.server_name, place)

    def _check_name(self, name: str, place: Place) -> None:
        try:
            found = hosts.normal(name)
        except InvalidArgumentError as error:
            raise PolicyDeniedError(str(error)) from None
        if hosts.address_of(place.host) is None:
            if found != place.host:
                raise PolicyDeniedError(f"TLS asks for {found} there")
            return
        # By an address that is allowed, a name that is denied stays denied.
        decision = self._network.answers(found)
        if decision.verdict == "deny" and decision.rule.startswith("!"):
            raise PolicyDeniedError(
                f"TLS asks for {found}", rule=decision.rule, reason=decision.reason
            )

    def _is_read(self, place: Place) -> bool:
        host, port = place.host, place.port
        if self._network.passes(host, port):
            return False
        secret = self._vault is not None and self._vault.applies(host, port)
        return secret or self._network.reads(host, port)

    # Requests.

    def _upstream(self, via: Via, server: Connection | None = None) -> Upstream:
        first = [server] if server is not None else []

        async def connect(place: Place) -> Connection:
            plain = first.pop() if first else None
            if plain is None:
                host = self._dialled(place.host)
                plain = await self._connect(host, place.port, via)
            return await self._secured(plain, place) if place.secure else plain

        return Upstream(
            connect=connect,
            needs_body=self._needs_body,
            prepare=self._prepare,
            scanner=self._scanner,
            redactor=self._redactor,
            tunnel=self._tunnel,
            explain=self._explain,
        )

    async def _secured(self, plain: Connection, place: Place) -> Connection:
        from isobox._egress.authority import upstream_context  # noqa: PLC0415 - heavy

        try:
            with anyio.fail_after(_HELLO):
                return await Secured.connect(plain, upstream_context(), place.host)
        except BROKEN as error:
            await plain.aclose()
            raise UnreachableError(f"{place.host}: TLS failed: {error}") from None

    def _needs_body(self, request: Request, place: Place) -> bool:
        return (
            place.secure
            and self._vault is not None
            and (self._vault.needs_body(request))
        )

    async def _prepare(self, request: Request, place: Place) -> Request:
        if place.secure or self._network.reads(place.host, place.port):
            await self._decide(request, place)
        if self._vault is None:
            return request
        if place.secure:
            return await self._vault.attach(request)
        _refuse_placeholder(self._vault.find(request.whole()))
        return request

    async def _decide(self, request: Request, place: Place) -> None:
        async def reach(_: Connect) -> Ongoing:
            return _Decided()

        await self._performed(
            Connect(
                host=place.host,
                port=place.port,
                via="http",
                method=request.method.decode("ascii"),
                target=request.target.decode("ascii"),
                reach=reach,
            )
        )

    def _scanner(self, _: Place) -> Scanner | None:
        return None if self._vault is None else self._vault.scanner()

    async def _redactor(self, place: Place) -> Redactor | None:
        if self._vault is None or not self._vault.applies(place.host, place.port):
            return None
        return await self._vault.redactor()

    async def _explain(
        self, error: Exception, host: str, port: int
    ) -> tuple[int, str, list[tuple[bytes, bytes]]]:
        if host and isinstance(error, IsoboxError):
            await self._note(error, host, port, "http")
        what = f"{host}:{port}" if host else "the request"
        if isinstance(error, PolicyDeniedError):
            rule = (error.rule or "default").encode("ascii", "replace")
            text = f"isobox denies {what}: {error.reason} (rule {error.rule!r})\n"
            return 403, text, [(b"X-Isobox-Denied", rule)]
        if isinstance(error, UnreachableError):
            return 502, f"isobox cannot reach {what}: {error}\n", []
        if isinstance(error, LimitError):
            return 429, f"isobox limits {what}: {error}\n", []
        status = getattr(error, "error_status_hint", 400)
        if not isinstance(error, BadRequestError):
            return status, f"isobox refuses a malformed request: {error}\n", []
        return 400, f"isobox refuses the request: {error}\n", []


_LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


class _Decided(Ongoing):
    """The end of a request's decision, which is all that happens then."""

    def __init__(self) -> None:
        super().__init__()
        self._ended({})


def _asked(op: Connect) -> Report:
    return {
        "host": op.host,
        "port": op.port,
        "via": op.via,
        "method": op.method,
        "target": op.target,
    }


def _refuse_placeholder(name: str | None) -> None:
    if name is not None:
        raise PolicyDeniedError(
            f"the placeholder of secret {name!r} would leave without TLS",
            rule=f"secret {name}",
        )


async def _negotiated(session: socks.Socks, client: Peeked) -> socks.Request:
    while session.request is None:
        data = await client.receive()
        if not data:
            raise ParseError("the client left")
        answer = session.receive(data)
        if answer:
            await client.send(answer)
    return session.request


async def _who_speaks(client: Peeked, server: Peeked) -> str:
    """Wait until one side has said something; say which."""
    first = ""

    async def listen(side: Peeked, name: str) -> None:
        nonlocal first
        await side.peek()
        first = first or name
        group.cancel_scope.cancel()

    with collapsed():
        async with anyio.create_task_group() as group:
            group.start_soon(listen, client, "client")
            group.start_soon(listen, server, "server")
    return first


async def _kind(client: Peeked) -> Kind | None:
    """Say what the client speaks; None if it leaves before that is clear."""
    while (found := kind(await client.peek())) is None:
        if not await client.peek():
            return None
        with anyio.fail_after(_HELLO):
            if not await client.peek_more():
                return "other"
    return found


async def _check_start(client: Peeked) -> None:
    # Servers skip empty lines before a request; so nothing may begin with one.
    if (await client.peek())[:1] in (b"\r", b"\n", b" ", b"\t"):
        raise PolicyDeniedError("neither HTTP nor TLS, but it could be taken for it")
