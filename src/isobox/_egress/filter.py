"""The filter: every connection of one sandbox, decided and carried out."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakSet

import anyio
from typing_extensions import override

from isobox._channel.background import Background, collapsed
from isobox._channel.join import join
from isobox._core import hosts
from isobox._core.network import Denial, Outlet
from isobox._core.ops import Connect
from isobox._core.results import Connection, Ongoing
from isobox._egress import dns, look, socks, upstream
from isobox._egress.budget import Budget
from isobox._egress.denial import Denials, denial_of
from isobox._egress.http import HttpSession, Upstream
from isobox._egress.kept import Kept, Server
from isobox._egress.names import Names
from isobox._egress.overrides import overridden
from isobox._egress.own_addresses import OwnAddresses
from isobox._egress.pace import Pace
from isobox._egress.parsing import ParseError
from isobox._egress.place import Place
from isobox._egress.refusal import explained
from isobox._egress.second_hello import Followed
from isobox._egress.wire import BROKEN, Peeked, Secured, Tally
from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    LimitError,
    PolicyDeniedError,
    UnreachableError,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Generator

    from isobox._channel.sockets import SocketConnection
    from isobox._core.hosts import Address
    from isobox._core.ops import Via
    from isobox._core.stack import Perform
    from isobox._egress.authority import Authority
    from isobox._egress.client_hello import ClientHello
    from isobox._egress.headers import Headers
    from isobox._egress.placeholders import Scanner
    from isobox._egress.redact import Redactor
    from isobox._egress.request import Request
    from isobox._egress.vault import Vault
    from isobox._policy.network import Network

#: Seconds that names inside may be kept by clients; what they stand for stays.
_TTL: Final = 60
#: Denied questions for names that wait to be put on record, and seconds from one
#: to the next: names are free, and the log is not to be flooded.
_QUESTIONS, _PAUSE = 64, 0.02
#: Names that are resolved at once; each takes a thread.
_RESOLVERS: Final = 16
#: Places of which it is remembered how they are served.
_PLACES: Final = 1024
#: Where nothing but HTTP and TLS is spoken, whatever somebody makes of it.
_WEB: Final = (80, 443)
_DNS: Final = 53
_LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))

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
        self._reporter = report
        self._budget = Budget(network)
        self._names = Names("198.18.0.0/15")
        self._resolvers = anyio.CapacityLimiter(_RESOLVERS)
        self._own = OwnAddresses()
        # Who is asked says the same each time: neither the rules nor the secrets
        # change.
        self._is_read = functools.lru_cache(_PLACES)(self._finds_read)
        self._is_web = functools.lru_cache(_PLACES)(self._finds_web)
        self._recorded: WeakSet[IsoboxError] = WeakSet()
        self._questions: asyncio.Queue[str] = asyncio.Queue(_QUESTIONS)
        self._pace = Pace()
        self._limited = Pace()
        self._background = Background()
        self._kept = Kept(self._background.start)
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
        await self._kept.aclose()
        await self._background.aclose()
        self._own.close()

    def serve(self, connection: Connection, address: str, port: int) -> None:
        """Serve a connection of the host's own, in a task of its own."""
        job = functools.partial(self.connected, connection, address, port)
        self._background.start(job)

    # What the sandbox catches.

    @override
    async def connected(self, connection: Connection, address: str, port: int) -> None:
        client = Peeked(connection)
        try:
            with contextlib.suppress(*BROKEN), collapsed():
                await self._serve(client, address, port)
        except Exception as error:  # noqa: BLE001 - the others are served all the same
            self._report({"event": "failed", "error": repr(error)})
            with contextlib.suppress(*BROKEN):
                await client.abort()
        finally:
            with anyio.CancelScope(shield=True), contextlib.suppress(*BROKEN):
                await client.aclose()

    @override
    def asked(self, query: bytes) -> bytes | None:
        # SAFETY: nothing is forwarded, whatever the name: a question that
        # reached a server outside would carry data there.
        try:
            question = dns.parse(query)
        except ParseError as error:
            return error.reply or None
        if question.class_ != dns.INTERNET:
            return dns.refused(question)
        try:
            name = hosts.normal(question.name)
        except InvalidArgumentError:
            return dns.nxdomain(question)
        if name == "localhost" or name.endswith(".localhost"):
            return dns.answer(question, _LOOPBACK, _TTL)
        decision = self._network.answers(name)
        if decision.verdict == "deny":
            self.denials.add(
                Denial(name, _DNS, decision.rule, decision.reason, kind="look-up")
            )
            with contextlib.suppress(asyncio.QueueFull):
                self._questions.put_nowait(name)
            return dns.nxdomain(question)
        if question.type != dns.A:
            return dns.empty(question)
        address = self._names.address(name)
        if address is None:
            return dns.servfail(question)
        return dns.answer(question, [address], _TTL)

    async def _record_questions(self) -> None:
        while True:
            name = await self._questions.get()
            refusal = UnreachableError(f"{name} is not answered")
            decision = self._network.answers(name)
            self._report(
                {
                    "event": "refused",
                    "host": name,
                    "port": _DNS,
                    "via": "dns",
                    "rule": decision.rule,
                    "reason": decision.reason,
                }
            )
            with contextlib.suppress(Exception):
                await self._record(refusal, Place(name, _DNS), "dns")
            await anyio.sleep(_PAUSE)

    async def _serve(self, client: Peeked, address: str, port: int) -> None:
        host = self._names.host(address)
        if port == self._proxy_port and hosts.address_of(address) in _LOOPBACK:
            await self._proxy(client)
        elif host is None:
            await client.abort()
        else:
            place = Place(host, port)
            try:
                link = await self._connect(place, "direct")
            except IsoboxError as error:
                await self._note(error, place, "direct")
                await client.abort()
            else:
                await self._carry(client, link, place, "direct")

    async def _proxy(self, client: Peeked) -> None:
        with anyio.fail_after(look.HELLO):
            start = await client.peek()
        if start[:1] in (b"\x04", b"\x05"):
            await self._socks(client)
        elif start:
            await HttpSession(client, None, self._upstream("http")).serve()

    async def _socks(self, client: Peeked) -> None:
        session = socks.Socks()
        try:
            with anyio.fail_after(look.HELLO):
                request = await _negotiated(session, client)
            place = Place(hosts.normal(request.host), request.port)
        except ParseError as error:
            self.denials.add(Denial("malformed request", 0, "socks5", str(error)))
            await client.send(error.reply)
            return
        except InvalidArgumentError as error:
            self.denials.add(Denial("malformed request", 0, "socks5", str(error)))
            await client.send(socks.reply(socks.Reply.FAILED))
            return
        try:
            place = self._find(place)
            link = await self._connect(place, "socks5")
        except IsoboxError as error:
            await self._note(error, place, "socks5")
            unreachable = isinstance(error, UnreachableError)
            code = socks.Reply.HOST_UNREACHABLE if unreachable else socks.Reply.DENIED
            await client.send(socks.reply(code))
            return
        async with link:
            await client.send(socks.reply(socks.Reply.SUCCEEDED))
            client.unread(session.rest)
            await self._carry(client, link, place, "socks5")

    async def _tunnel(self, host: str, port: int, client: Peeked) -> None:
        place = self._find(Place(host, port))
        link = await self._connect(place, "connect")
        # From here on it is the tunnel's failure, and not the proxy's.
        async with link:
            with contextlib.suppress(*BROKEN), collapsed():
                await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await self._carry(client, link, place, "connect")

    def _find(self, place: Place) -> Place:
        """Return what a proxy's client means by a place.

        Raises:
            PolicyDeniedError: It is the sandbox's own loopback.
        """
        host = place.host
        found: str | None = host
        if hosts.address_of(host) is not None:
            found = self._names.host(host)
        elif host == "localhost" or host.endswith(".localhost"):
            found = None
        if found is None:
            raise PolicyDeniedError(
                f"{host} is the sandbox's own; connect to it without the proxy",
                rule="localhost",
            )
        return replace(place, host=found)

    # Connections.

    async def _connect(self, place: Place, via: Via, *, anew: bool = False) -> Link:
        """Connect to a host, if that is allowed.

        Args:
            place: Where to.
            via: How the client has asked for it.
            anew: No connection is used that is there already.

        Raises:
            PolicyDeniedError: It is not.
            UnreachableError: It cannot be reached.
            LimitError: There are too many connections.
        """
        usual = anew or not self._keeps(place)
        reach = self._reach if usual else self._reach_again
        op = Connect(host=place.host, port=place.port, via=via, reach=reach)
        return cast("Link", await self._performed(op))

    async def _performed(self, op: Connect) -> Ongoing:
        self._refuse_at_once(op)
        try:
            result = await self._answered(op)
        except (LimitError, PolicyDeniedError, UnreachableError) as error:
            self._recorded.add(error)
            self._pace.spend()
            if isinstance(error, LimitError) and not self._has_had_its_bytes(op.host):
                self._limited.spend()
            raise
        except Exception as error:
            refusal = PolicyDeniedError(_undecided(error), rule="approve")
            self._recorded.add(refusal)
            raise refusal from error
        asked = _asked(op)
        self._report({"event": "allowed", **asked})
        result.on_end(lambda end: self._report({"event": "ended", **asked, **end}))
        return result

    def _refuse_at_once(self, op: Connect) -> None:
        """Deny what would be denied, where too many refusals were put on record.

        Raises:
            PolicyDeniedError: It is denied.
            LimitError: It is beyond a limit: the host's, or one of all connections
                that were beyond it again and again.
        """
        if self._limited.is_spent:
            raise LimitError(
                "connections are beyond a limit again and again; wait a moment"
            )
        if not self._pace.is_spent:
            return
        decision = self._network.decide(op)
        if decision.verdict == "deny":
            raise PolicyDeniedError(
                f"{op.host}:{op.port} is denied: {decision.reason}",
                rule=decision.rule,
                reason=decision.reason,
            )
        self._budget.check(op.host)

    def _has_had_its_bytes(self, host: str) -> bool:
        try:
            self._budget.check(host)
        except LimitError:
            return True
        return False

    async def _answered(self, op: Connect) -> Ongoing:
        """Perform an operation; while a person is asked, it counts as denied."""
        if not self._network.asks:
            return await self._perform(op)
        decision = self._network.decide(op)
        if decision.verdict != "ask":
            return await self._perform(op)
        reason = f"{decision.reason}, and nobody had answered yet"
        denial = Denial(op.host, op.port, decision.rule, reason)
        with self.denials.unanswered(denial) as answered:

            async def reach(op_: Connect) -> Ongoing:
                answered()
                return await op.reach(op_)

            return await self._perform(replace(op, reach=reach))

    def _report(self, report: Report) -> None:
        # Whoever watches cannot be told when the host has no descriptor left.
        with contextlib.suppress(OSError):
            self._reporter(report)

    async def _note(self, error: IsoboxError, place: Place, via: Via) -> None:
        """Keep what was refused, for the model, for whoever watches, on record."""
        denial = denial_of(error, place.host, place.port)
        if denial is not None:
            self.denials.add(denial)
        recorded = error in self._recorded
        if not recorded and self._pace.is_spent:
            self._pace.missed += 1
            return
        missed = self._pace.take_missed()
        self._report(
            {
                "event": "refused",
                "host": place.host,
                "port": place.port,
                "via": via,
                "rule": getattr(error, "rule", None),
                "reason": getattr(error, "reason", str(error)),
                **({"unrecorded": missed} if missed else {}),
            }
        )
        if not recorded:
            self._pace.spend()
            with contextlib.suppress(Exception):
                await self._record(error, place, via)

    async def _record(self, error: IsoboxError, place: Place, via: Via) -> None:
        """Let a refusal pass the stack, where it is put on record."""

        async def reach(_: Connect) -> Ongoing:
            raise error

        await self._perform(
            Connect(host=place.host, port=place.port, via=via, reach=reach)
        )

    async def _reach(self, op: Connect) -> Link:
        with self._admitted(op):
            sock, address = await upstream.reach(
                op.host, op.port, self._network, self._resolvers, self._own
            )
        return self._linked(op, sock, address)

    async def _reach_again(self, op: Connect) -> Link:
        """Take a connection that waits for this, if there is one."""
        server = self._kept.take((op.host, op.port))
        if server is None:
            return await self._reach(op)
        try:
            with self._admitted(op):
                found = [server.address]
                upstream.check(op.host, found, op.port, self._network, self._own)
        except BaseException:
            await server.sock.aclose()
            raise
        link = self._linked(op, server.sock, server.address)
        server.lend(link)
        link.server = server
        return link

    async def _reach_anew(self, link: Link, place: Place) -> None:
        """Reach a host by a connection of this client's own, if it is another's yet.

        It is the same connection to whoever decides, counts and records.

        Raises:
            PolicyDeniedError: One of its addresses may not be reached.
            UnreachableError: It cannot be reached.
        """
        if link.server is None:
            return
        await self._let_wait(link, place)
        sock, address = await upstream.reach(
            place.host, place.port, self._network, self._resolvers, self._own
        )
        link.take_up(sock, address)

    async def _let_wait(self, link: Link, place: Place) -> None:
        """Let a server wait for another client, if there is one."""
        server, link.server = link.server, None
        if server is not None:
            await self._kept.put((place.host, place.port), server)

    @contextlib.contextmanager
    def _admitted(self, op: Connect) -> Generator[None]:
        """Count a connection, unless it does not come about.

        Raises:
            LimitError: There are too many.
        """
        self._budget.check(op.host)
        self._budget.admit()
        try:
            yield
        except BaseException:
            self._budget.leave()
            raise

    def _linked(self, op: Connect, sock: SocketConnection, address: Address) -> Link:
        spend, leave = self._budget.spender(op.host), self._budget.leave
        return Link(sock, spend, address, leave)

    async def _carry(self, client: Peeked, link: Link, place: Place, via: Via) -> None:
        """Carry a connection, once it is clear that it is to where it was allowed."""
        async with link:
            try:
                with collapsed():
                    await self._inspect(client, link, place)
            except ParseError as error:
                refusal = PolicyDeniedError(str(error), rule="malformed")
                await self._note(refusal, place, via)
                await client.abort()
            except (PolicyDeniedError, LimitError, UnreachableError) as error:
                await self._note(error, place, via)
                await client.abort()

    async def _inspect(self, client: Peeked, link: Link, place: Place) -> None:
        server = Peeked(link)
        web = place.port in _WEB or self._is_web(place)
        if not web and await look.server_speaks_first(client, server):
            # Of the servers of the web, only those of HTTP/2 do.
            if look.server_is_of_the_web(await server.peek()):
                raise PolicyDeniedError("HTTP/2 without TLS is not carried")
            await join(look.Watched(client), server)
            return
        kind = await look.spoken(client)
        like_http = kind == "http"
        if not web and kind in ("http", "other"):
            like_http = await look.could_be_http(client)
        if kind == "tls":
            await self._tls(client, server, link, place)
        elif kind == "http2":
            raise PolicyDeniedError("HTTP/2 without TLS is not carried")
        elif kind == "sslv2":
            raise PolicyDeniedError("a hello of SSL 2 is not carried", rule="protocol")
        elif kind == "http" and like_http:
            await self._reach_anew(link, place)
            session = HttpSession(client, place, self._upstream("direct"), server)
            await session.serve()
        elif web and kind is None:
            await self._let_wait(link, place)
        elif web or like_http:
            # SAFETY: a server may take for HTTP what does not look it, and go by a
            # Host header that nobody has seen.
            raise PolicyDeniedError(
                "neither HTTP nor TLS, but it could be taken for it", rule="protocol"
            )
        else:
            await join(look.Watched(client), server)

    async def _tls(
        self, client: Peeked, server: Peeked, link: Link, place: Place
    ) -> None:
        check = functools.partial(self._check_hello, place)
        check(await look.hello(client))
        if not self._is_read(place) or self._authority is None:
            await join(Followed(client, check), server)
            return
        place = Place(place.host, place.port, secure=True)
        inner = Secured(client, self._authority.context(place.host), host=None)
        outer, refusal = link.server, None
        if outer is None:
            outer = self._server(link, place)
            refusal = await self._meet(inner, outer, link, place)
        else:
            await _welcomed(inner.shake)
        session = HttpSession(
            Peeked(inner),
            place,
            self._upstream("direct", refusal),
            outer if refusal is None else None,
            may_be_asked=outer.may_be_asked if link.server is outer else None,
        )
        try:
            await session.serve()
        finally:
            await inner.aclose()

    def _server(self, link: Link, place: Place) -> Server:
        return Server(
            link,
            self._verifying,
            host=place.host,
            sock=link.sock,
            address=link.address,
        )

    async def _meet(
        self, inner: Secured, outer: Secured, plain: Connection, place: Place
    ) -> UnreachableError | None:
        """Shake hands on both sides; returns why the server's failed, if it did.

        While the server works on its answer, so does this, and while the client
        checks the certificate that it was shown, the server's is checked.
        """
        refusal = await self._shaken(outer.greet, plain, place)
        await _welcomed(inner.greet)
        refusal = refusal or await self._shaken(outer.shake, plain, place)
        await _welcomed(inner.shake)
        return refusal

    async def _shaken(
        self, shake: Callable[[], Awaitable[None]], plain: Connection, place: Place
    ) -> UnreachableError | None:
        """Return why TLS with a server failed, if it did; then it is closed."""
        try:
            async with asyncio.timeout(look.HELLO):
                await shake()
        except BROKEN as error:
            await plain.aclose()
            return UnreachableError(f"{place.host}: TLS failed: {error}")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await plain.aclose()
            raise
        return None

    def _check_hello(self, place: Place, hello: ClientHello) -> None:
        """Return if a ClientHello asks for the host that was allowed.

        Raises:
            PolicyDeniedError: It asks for another, hides its name or has none.
        """
        shown = self._is_read(place) or self._network.is_open(place.port)
        if hello.encrypted and not shown:
            raise PolicyDeniedError(
                "an encrypted ClientHello could hide another name; switch it off "
                "(Chromium: --disable-features=EncryptedClientHello)",
                rule="ech",
            )
        if hello.server_name is not None:
            self._check_name(hello.server_name, place)
        elif hosts.address_of(place.host) is None:
            raise PolicyDeniedError("TLS without a server name", rule="sni")

    def _check_name(self, name: str, place: Place) -> None:
        try:
            found = hosts.normal(name)
        except InvalidArgumentError as error:
            raise PolicyDeniedError(str(error), rule="sni") from None
        if hosts.address_of(place.host) is None:
            if found != place.host:
                raise PolicyDeniedError(f"TLS asks for {found} there", rule="sni")
            return
        # By an address that is allowed, a name that is denied stays denied.
        denied = self._network.denies(found, place.port)
        if denied is not None:
            raise PolicyDeniedError(
                f"TLS asks for {found}", rule=denied.rule, reason=denied.reason
            )

    def _finds_read(self, place: Place) -> bool:
        """Whether TLS to a place ends here.

        Where there are secrets, it is read everywhere: a placeholder on its way
        to a host that it is not for is seen nowhere else.
        """
        if self._network.passes(place.host, place.port):
            return False
        secrets = self._vault is not None and self._vault.has_secrets
        return secrets or self._network.reads(place.host, place.port)

    def _finds_web(self, place: Place) -> bool:
        """Whether only requests are carried there: they are changed, or decided."""
        host, port = place.host, place.port
        if self._network.passes(host, port):
            return False
        secret = self._vault is not None and self._vault.applies(host, port)
        return secret or self._network.reads(host, port)

    def _keeps(self, place: Place) -> bool:
        """Whether a connection there can wait for another client."""
        web = place.port in _WEB or self._is_web(place)
        return web and self._authority is not None and self._is_read(place)

    # Requests.

    def _upstream(self, via: Via, refusal: UnreachableError | None = None) -> Upstream:
        refusals = [] if refusal is None else [refusal]

        async def connect(place: Place) -> Connection:
            if refusals:
                raise refusals.pop()
            plain = await self._connect(place, via, anew=True)
            return await self._secured(plain, place) if place.secure else plain

        async def leave(place: Place, link: Connection) -> None:
            if not isinstance(link, Server) or not self._keeps(place):
                await link.aclose()
                return
            tally = link.tally
            await self._kept.put((place.host, place.port), link)
            tally.end()

        async def renew(place: Place, server: Connection) -> Connection:
            link = cast("Link", cast("Server", server).tally)
            await self._reach_anew(link, place)
            return await self._secured(link, place)

        async def explain(
            error: IsoboxError, place: Place | None
        ) -> tuple[int, str, Headers]:
            if place is not None:
                await self._note(error, place, via)
            return explained(error, place)

        return Upstream(
            find=self._find,
            connect=connect,
            leave=leave,
            renew=renew,
            needs_body=self._needs_body,
            hold=self._budget.hold,
            prepare=self._prepare,
            scanner=self._scanner,
            redactor=self._redactor,
            tunnel=self._tunnel,
            explain=explain,
        )

    async def _secured(self, plain: Link, place: Place) -> Connection:
        made = self._server(plain, place)
        refusal = await self._shaken(made.shake, plain, place)
        if refusal is not None:
            raise refusal
        return made

    @functools.cached_property
    def _verifying(self) -> ssl.SSLContext:
        from isobox._egress.authority import upstream_context  # noqa: PLC0415 - heavy

        return upstream_context()

    def _needs_body(self, request: Request, place: Place) -> bool:
        vault = self._vault if place.secure else None
        return vault is not None and vault.needs_body(request)

    async def _prepare(self, request: Request, place: Place) -> Request:
        if place.secure or self._network.reads(place.host, place.port):
            for method, target in overridden(request):
                await self._decide(place, method, target)
        if self._vault is None:
            return request
        if place.secure:
            return await self._vault.attach(request)
        name = self._vault.find(request.whole())
        if name is not None:
            raise PolicyDeniedError(
                f"the placeholder of secret {name!r} would leave without TLS",
                rule=f"secret {name}",
            )
        return request

    async def _decide(self, place: Place, method: str, target: str) -> None:
        async def reach(_: Connect) -> Ongoing:
            return _Decided()

        await self._performed(
            Connect(
                host=place.host,
                port=place.port,
                via="http",
                method=method,
                target=target,
                reach=reach,
            )
        )

    def _scanner(self, _: Place) -> Scanner | None:
        return None if self._vault is None else self._vault.scanner()

    async def _redactor(self, place: Place) -> Redactor | None:
        if self._vault is None or not self._vault.may_answer(place.host):
            return None
        return await self._vault.redactor()


class Link(Tally):
    """A connection to a host.

    Attributes:
        sock: The socket's.
        address: Where it leads.
        server: TLS over it, where that is there already.
    """

    def __init__(
        self,
        sock: SocketConnection,
        spend: Callable[[int, int], None],
        address: Address,
        release: Callable[[], None],
    ) -> None:
        super().__init__(sock, spend, {}, release)
        self.take_up(sock, address)
        self.server: Server | None = None

    def take_up(self, sock: SocketConnection, address: Address) -> None:
        """Have a connection, instead of the one that was let go."""
        self._inner = self.sock = sock
        self.address = address
        self._facts_so_far["address"] = str(address)


class _Decided(Ongoing):
    """The end of a request's decision, which is all that happens then."""

    def __init__(self) -> None:
        super().__init__()
        self._ended({})


async def _welcomed(shake: Callable[[], Awaitable[None]]) -> None:
    """Go on with TLS with the program inside.

    Raises:
        UnreachableError: It fails.
    """
    try:
        async with asyncio.timeout(look.HELLO):
            await shake()
    except BROKEN as error:
        raise UnreachableError(
            f"TLS with the program inside failed ({error}); if it trusts but one "
            "certificate, give the host a rule with passthrough=True"
        ) from None


def _undecided(error: Exception) -> str:
    """Return why the caller's own code, that was asked, gave no answer."""
    if isinstance(error, InvalidArgumentError):
        return str(error)
    return f"whoever decides failed: {type(error).__name__}"


def _asked(op: Connect) -> Report:
    return {
        "host": op.host,
        "port": op.port,
        "via": op.via,
        "method": op.method,
        "target": op.target,
    }


async def _negotiated(session: socks.Socks, client: Peeked) -> socks.Request:
    while session.request is None:
        data = await client.receive()
        if not data:
            raise ParseError("the client left")
        answer = session.receive(data)
        if answer:
            await client.send(answer)
    return session.request
