"""Every way through the filter, with real connections at both ends."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import time
from dataclasses import replace
from ipaddress import ip_address

import anyio
import pytest
from tests.unit.egress.hellos import AGAIN, alpn, answer, ech, hello, names, openssl
from tests.unit.egress.talk import pair

from isobox._approval.question import Answers
from isobox._audit.sinks import MemorySink
from isobox._core.network import Denial
from isobox._core.stack import compose
from isobox._egress import dns, look, upstream
from isobox._egress import filter as module
from isobox._egress.authority import Authority
from isobox._egress.filter import Filter
from isobox._egress.pace import Pace
from isobox._egress.secret import Secret
from isobox._egress.vault import Vault
from isobox._egress.wire import Secured
from isobox._layers.audit import Audit
from isobox._layers.errors import Errors
from isobox._layers.guard import Guard
from isobox._policy.network import Network, NetworkRule
from isobox._policy.policy import Policy
from isobox.errors import LimitError, UnreachableError

pytestmark = pytest.mark.anyio

PROXY = 3128
VALUE = "correct-horse-battery"
OUTSIDE = Authority()
INSIDE = Authority()


def secret(name="KEY", host="a.test", value=VALUE, **more):
    def give():
        if isinstance(value, Exception):
            raise value
        return value

    return Secret(name, source=give, hosts=(host,), **more)


class World:
    """A filter with its stack, and servers that stand for hosts outside."""

    def __init__(self, rules, *, secrets=(), approve=None, **limits):
        self.network = replace(Network.of(rules), **limits)
        self.sink = MemorySink()
        self.reports = []
        self.answers = Answers(approve)
        policy = replace(Policy.allow_all(), network=self.network)
        layers = [
            Audit(self.sink, workspace="w1", backend="fake"),
            Guard(policy, self.answers),
            Errors(backend="fake"),
        ]
        self.vault = Vault(secrets)
        self.filter = Filter(
            compose(None, layers),
            self.network,
            vault=self.vault,
            authority=INSIDE,
            proxy_port=PROXY,
            report=self.reports.append,
        )
        self.filter._verifying = ssl.create_default_context(
            cadata=OUTSIDE.certificate_pem.decode()
        )
        self.servers = {}
        self.reached = []
        self.serving = []

    async def __aenter__(self):
        await self.filter.open()
        return self

    async def __aexit__(self, *_):
        await self.answers.aclose()
        await self.filter.aclose()
        await asyncio.gather(*self.serving)
        assert self.filter._budget._alive == 0
        assert self.filter._budget._held == 0

    async def reach(self, host, port, network, resolvers, own):
        await asyncio.sleep(0)
        self.reached.append((host, port))
        serve = self.servers.get((host, port))
        if serve is None:
            raise UnreachableError(f"cannot reach {host}:{port}")
        mine, theirs = pair()

        async def run():
            async with theirs:
                with contextlib.suppress(
                    OSError, ssl.SSLError, anyio.BrokenResourceError
                ):
                    await serve(theirs)

        self.serving.append(asyncio.ensure_future(run()))
        return mine, ip_address("192.0.2.1")

    def address(self, name):
        return str(self.filter._names.address(name))

    def dial(self, host, port):
        """Connect from inside; returns the program's end."""
        inside, caught = pair()
        self.serving.append(
            asyncio.ensure_future(self.filter.connected(caught, host, port))
        )
        return inside

    def proxy(self):
        return self.dial("127.0.0.1", PROXY)

    @property
    def denials(self):
        return [
            (each.host, each.port, each.rule) for each in self.filter.denials.since(0)
        ]

    @property
    def outcomes(self):
        return [
            (record.get("ok"), record.get("error"))
            for record in self.sink.records
            if record["kind"] == "outcome"
        ]

    def events(self, kind):
        return [each for each in self.reports if each["event"] == kind]


@pytest.fixture
async def world(monkeypatch):
    made = []

    async def make(*rules, **options):
        made.append(await World(rules, **options).__aenter__())
        monkeypatch.setattr(upstream, "reach", made[-1].reach)
        monkeypatch.setattr(upstream, "check", lambda *_: None)
        return made[-1]

    yield make
    for each in made:
        await each.__aexit__()


async def said_by(connection, *pieces):
    """Send, and return all that comes until the end; None if it is broken off."""
    async with connection:
        for piece in pieces:
            await connection.send(piece)
        try:
            async with asyncio.timeout(10):
                return await connection.read()
        except ConnectionResetError:
            return None


def serving(seen):
    """A web server that tells what it was sent, and ends."""

    async def serve(connection):
        data = b""
        while b"\r\n\r\n" not in data:
            data += await connection.receive() or b"\r\n\r\n"
        seen.append(data)
        body = b"served"
        await connection.send(
            b"HTTP/1.1 200 OK\r\nX-Echo: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (data.partition(b"\r\n")[2].replace(b"\r\n", b" | "), len(body), body)
        )

    return serve


def secured(serve, name="a.test"):
    async def shake(connection):
        tls = await Secured.accept(connection, OUTSIDE.context(name))
        await serve(tls)
        await tls.aclose()

    return shake


async def echo(connection):
    while data := await connection.receive():
        await connection.send(data)
    await connection.send_eof()


GET = b"GET /x HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"


def get(host, *lines, path="/x"):
    more = "".join(line + "\r\n" for line in lines)
    text = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n"
    return text.encode()


# -- what is caught ----------------------------------------------------------


async def test_http_by_name(world):
    seen = []
    it = await world("a.test")
    it.servers["a.test", 80] = serving(seen)
    said = await said_by(it.dial(it.address("a.test"), 80), GET)
    assert said.endswith(b"served")
    assert seen == [b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n"]
    assert it.denials == []
    await asyncio.gather(*it.serving)
    assert it.outcomes == [(True, None)]
    (ended,) = it.events("ended")
    assert ended["address"] == "192.0.2.1"
    assert ended["bytes_out"] == len(seen[0])


async def test_a_host_that_is_denied(world):
    it = await world("a.test")
    assert await said_by(it.dial("93.184.216.34", 443)) is None
    assert await said_by(it.dial(it.address("b.test"), 80)) is None
    assert it.reached == []
    assert it.denials == [
        ("93.184.216.34", 443, "default"),
        ("b.test", 80, "default"),
    ]
    assert it.outcomes == [(False, "PolicyDeniedError")] * 2
    assert len(it.events("refused")) == 2


async def test_a_host_that_cannot_be_reached(world):
    it = await world("a.test")
    assert await said_by(it.dial(it.address("a.test"), 443)) is None
    assert it.filter.denials.since(0) == (
        Denial(
            "a.test", 443, "unreachable", "cannot reach a.test:443", kind="unreachable"
        ),
    )
    assert it.outcomes == [(False, "UnreachableError")]


@pytest.mark.parametrize("address", ["198.18.3.4", "127.0.0.1", "::1", "0.0.0.0"])
async def test_an_address_that_stands_for_nothing(world, address):
    it = await world("*")
    assert await said_by(it.dial(address, 80)) is None
    assert it.sink.records == []


async def test_another_host_on_the_same_connection(world):
    it = await world("a.test", "b.test")
    it.servers["a.test", 80] = serving([])
    said = await said_by(it.dial(it.address("a.test"), 80), get("b.test"))
    assert said.startswith(b"HTTP/1.1 403 ")
    assert it.denials == [("a.test", 80, "host")]
    await asyncio.gather(*it.serving)
    assert (False, "PolicyDeniedError") in it.outcomes


async def test_so_many_connections(world):
    it = await world("a.test:5432", connections=2)
    it.servers["a.test", 5432] = echo
    held = [it.dial(it.address("a.test"), 5432) for _ in range(2)]
    for each in held:
        await each.send(b"\0")
        assert await each.receive() == b"\0"
    assert await said_by(it.dial(it.address("a.test"), 5432), b"\0") is None
    assert it.denials == [("a.test", 5432, "limit")]
    await held[0].aclose()
    await asyncio.sleep(0.05)
    again = it.dial(it.address("a.test"), 5432)
    await again.send(b"\0")
    assert await again.receive() == b"\0"
    for each in (*held, again):
        await each.aclose()


async def test_so_many_bytes(world):
    it = await world("a.test:5432", bytes_out=1000)
    it.servers["a.test", 5432] = echo
    inside = it.dial(it.address("a.test"), 5432)
    assert await said_by(inside, b"\0" * 2000) is None
    assert it.denials == [("a.test", 5432, "limit")]
    assert await said_by(it.dial(it.address("a.test"), 5432)) is None


@pytest.mark.parametrize("after", [0, 0.001, 0.005])
async def test_who_is_cancelled_while_connecting_leaves_nothing(world, after):
    it = await world("a.test")

    async def slowly(*_):
        await asyncio.sleep(0.003)
        return await it.reach(*_)

    upstream.reach = slowly  # set back with the fixture's
    it.servers["a.test", 80] = echo
    inside, caught = pair()
    with anyio.move_on_after(after):
        await it.filter.connected(caught, it.address("a.test"), 80)
    assert await said_by(inside) in (b"", None)
    assert it.filter._budget._alive == 0


async def test_whatever_fails_the_others_are_served(world, monkeypatch):
    it = await world("a.test")
    monkeypatch.setattr(it.filter._names, "host", lambda _: 1 / 0)
    inside, caught = pair()
    await it.filter.connected(caught, "192.0.2.1", 80)
    assert await said_by(inside) is None
    assert it.events("failed") == [
        {"event": "failed", "error": "ZeroDivisionError('division by zero')"}
    ]


async def test_who_decides_may_fail(world):
    async def approve(_):
        raise ZeroDivisionError

    it = await world("?a.test", approve=approve)
    assert await said_by(it.dial(it.address("a.test"), 80)) is None
    assert it.denials == [("a.test", 80, "approve")]
    assert it.outcomes == [(False, "ZeroDivisionError")]


@pytest.mark.parametrize("answer", [None, 1, "yes"])
async def test_an_answer_that_is_none(world, answer):
    it = await world("?a.test", approve=lambda _: answer)
    said = await said_by(
        it.proxy(), b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"
    )
    kind = type(answer).__name__
    reason = f"approve returned {kind}; return True, False or an Answer"
    assert said.startswith(b"HTTP/1.1 403 ")
    assert reason.encode() in said
    assert it.filter.denials.since(0) == (Denial("a.test", 80, "approve", reason),)
    assert it.reached == []


async def test_while_a_person_is_asked_it_counts_as_denied(world):
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def approve(_):
        asked.set()
        await go_on.wait()
        return True

    it = await world("?a.test:5432", approve=approve)
    it.servers["a.test", 5432] = echo
    inside = it.dial(it.address("a.test"), 5432)
    await asked.wait()
    reason = "a rule asks a person, and nobody had answered yet"
    waiting = Denial("a.test", 5432, "?a.test:5432", reason)
    assert it.filter.denials.since(time.monotonic()) == (waiting,)
    go_on.set()
    await inside.send(b"\0")
    assert await inside.receive() == b"\0"
    assert it.filter.denials.since(0) == ()
    await inside.aclose()


async def test_a_person_is_asked_once_and_not_about_each_request(world):
    asked = []

    async def approve(question):
        asked.append(question.facts)
        return True

    it = await world("?a.test", approve=approve, secrets=[secret(header="X-Key: {}")])
    it.servers["a.test", 443] = secured(serving([]))
    for path in ("/1", "/2"):
        said = await over_tls(
            it.dial(it.address("a.test"), 443), get("a.test", path=path)
        )
        assert said.endswith(b"served")
    assert asked == [{"host": "a.test", "port": 443}]


async def test_watchers_cannot_break_it(world):
    it = await world("a.test")
    it.servers["a.test", 80] = serving([])

    def report(_):
        raise OSError(24, "Too many open files")

    it.filter._reporter = report
    said = await said_by(it.dial(it.address("a.test"), 80), GET)
    assert said.endswith(b"served")


# -- TLS that is not read ----------------------------------------------------


async def over_tls(connection, *pieces, name="a.test", context=None):
    context = context or ssl.create_default_context(
        cadata=(OUTSIDE.certificate_pem + INSIDE.certificate_pem).decode()
    )
    async with connection:
        tls = await Secured.connect(connection, context, name)
        for piece in pieces:
            await tls.send(piece)
        said = b""
        with contextlib.suppress(anyio.BrokenResourceError):
            while data := await tls.receive():
                said += data
        await tls.aclose()
        return said


async def test_tls_goes_through_as_it_is(world):
    seen = []
    it = await world("a.test")
    it.servers["a.test", 443] = secured(serving(seen))
    said = await over_tls(it.dial(it.address("a.test"), 443), get("b.test"))
    assert said.endswith(b"served")
    assert seen[0].startswith(b"GET /x HTTP/1.1\r\nHost: b.test\r\n")


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (hello(names(b"b.test")), "sni"),
        (hello(names(b"a.test.b.test")), "sni"),
        (hello(names(b"192.0.2.1")), "sni"),
        (hello(names(b"a_.-")), "sni"),
        (hello(alpn(b"h2")), "sni"),
        (hello(), "sni"),
        (hello(names(b"a.test"), ech()), "ech"),
        (hello(names(b"a.test"), names(b"b.test")), "malformed"),
        (hello(names(b"a.test"))[:-1] + b"", "malformed"),
        (b"\x16\3\1\0\0", "malformed"),
        (b"\x16\3\1\xff\xff", "malformed"),
        (b"\x80\x2e\1\3\1", "protocol"),
        (b"SSH-2.0-x\r\n", "protocol"),
        (b"\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n", "protocol"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
    ],
)
async def test_what_does_not_ask_for_the_host_is_denied(world, data, rule):
    it = await world("a.test", "b.test")
    sent = []

    async def take(connection):
        sent.append(await connection.receive())

    it.servers["a.test", 443] = take
    inside = it.dial(it.address("a.test"), 443)
    async with inside:
        await inside.send(data)
        await inside.send_eof()
        with contextlib.suppress(ConnectionResetError):
            assert await inside.read() == b""
    await asyncio.gather(*it.serving)
    assert sent == [b""]
    assert it.denials == [("a.test", 443, rule)]


@pytest.mark.parametrize("name", [b"a.test", b"A.TEST", b"a.test."])
async def test_a_hello_in_pieces_is_carried_whole(world, name):
    it = await world("a.test")
    data = hello(names(name))
    it.servers["a.test", 443] = echo
    inside = it.dial(it.address("a.test"), 443)
    async with inside:
        for at in range(0, len(data), 20):
            await inside.send(data[at : at + 20])
            await asyncio.sleep(0)
        await inside.send_eof()
        assert await inside.read() == data


@pytest.mark.parametrize(
    ("rules", "name", "passes"),
    [
        (("93.184.216.34",), b"a.test", True),
        (("93.184.216.34",), None, True),
        (("*", "!evil.test"), b"a.test", True),
        (("*", "!evil.test"), b"evil.test", False),
        (("*", "!evil.test:443"), b"EVIL.test.", False),
        (("*", "!*.evil.test"), b"x.evil.test", False),
        (("*", "!evil.test:80"), b"evil.test", True),
        (
            ("*", NetworkRule(host="evil.test", paths=("/x",), verdict="deny")),
            b"evil.test",
            False,
        ),
    ],
)
async def test_a_name_that_is_denied_stays_so_by_its_address(
    world, rules, name, passes
):
    it = await world(*rules)
    it.servers["93.184.216.34", 443] = echo
    data = hello(names(name)) if name else hello(alpn(b"http/1.1"))
    inside = it.dial("93.184.216.34", 443)
    async with inside:
        await inside.send(data)
        await inside.send_eof()
        try:
            said = await inside.read()
        except ConnectionResetError:
            said = None
    assert said == (data if passes else None)


async def test_a_hello_that_hides_a_name_may_where_all_are_allowed(world):
    it = await world("*")
    it.servers["a.test", 443] = echo
    data = hello(names(b"a.test"), ech())
    inside = it.dial(it.address("a.test"), 443)
    async with inside:
        await inside.send(data)
        await inside.send_eof()
        assert await inside.read() == data


async def test_a_server_that_asks_for_another_hello_is_reached(world):
    seen = []
    it = await world("a.test")
    context = OUTSIDE._made("a.test")
    # None for which a client has a key ready.
    context.set_ecdh_curve("secp521r1")

    async def serve(connection):
        tls = await Secured.accept(connection, context)
        await serving(seen)(tls)
        await tls.aclose()

    it.servers["a.test", 443] = serve
    said = await over_tls(it.dial(it.address("a.test"), 443), get("a.test"))
    assert said.endswith(b"served")
    assert it.denials == []


@pytest.mark.parametrize("before", [b"", b"\x14\3\3\0\1\1", b"\x17\3\3\0\2\0\0"])
@pytest.mark.parametrize(
    ("rules", "host", "name", "rule"),
    [
        (("a.test", "b.test"), "a.test", b"b.test", "sni"),
        (("93.184.216.34", "!b.test"), "93.184.216.34", b"b.test", "!b.test"),
        (("a.test",), "a.test", None, "sni"),
    ],
)
async def test_the_hello_that_a_server_asks_for_is_checked(
    world, before, rules, host, name, rule
):
    it = await world(*rules)
    first = hello(names(b"a.test"))
    heard = []

    async def ask_again(connection):
        heard.append(await connection.receive())
        await connection.send(answer(AGAIN))
        while data := await connection.receive():
            heard.append(data)

    it.servers[host, 443] = ask_again
    inside = it.dial(it.address(host) if host == "a.test" else host, 443)
    async with inside:
        await inside.send(first)
        assert await inside.receive() == answer(AGAIN)
        second = before + (hello(names(name)) if name else hello())
        assert await said_by(inside, second) in (b"", None)
    await asyncio.gather(*it.serving)
    assert b"".join(heard) in (first, first + before)
    assert it.denials == [(host, 443, rule)]
    assert (False, "PolicyDeniedError") in it.outcomes


# -- TLS that is read --------------------------------------------------------


async def test_a_secret_is_attached_and_does_not_come_back(world):
    seen = []
    it = await world("a.test", secrets=[secret()])
    it.servers["a.test", 443] = secured(serving(seen))
    text = it.vault.environment()["KEY"]
    inside = it.dial(it.address("a.test"), 443)
    said = await over_tls(inside, get("a.test", f"Authorization: Bearer {text}"))
    assert said.endswith(b"served")
    assert f"Bearer {VALUE}".encode() in seen[0]
    assert VALUE.encode() not in said
    assert b"*" * len(VALUE) in said
    assert VALUE not in repr(it.sink.records) + repr(it.reports)


async def test_a_secret_that_is_not_to_be_had(world):
    it = await world(
        "a.test", secrets=[secret(header="X-Key: {}", value=OSError("/etc/hidden"))]
    )
    it.servers["a.test", 443] = secured(serving([]))
    said = await over_tls(it.dial(it.address("a.test"), 443), get("a.test"))
    assert said.startswith(b"HTTP/1.1 502 ")
    assert said.endswith(b"isobox cannot get secret KEY for a.test:443\n")
    await asyncio.gather(*it.serving)
    assert (False, "SecretError") in it.outcomes
    assert it.events("refused")[0]["host"] == "a.test"


@pytest.mark.parametrize("tls", [True, False])
async def test_a_placeholder_that_goes_astray_is_on_record(world, tls):
    it = await world("a.test", "b.test", secrets=[secret(), secret("B", "b.test")])
    port = 443 if tls else 80
    it.servers["a.test", port] = secured(serving([])) if tls else serving([])
    text = it.vault.environment()["B"]
    inside = it.dial(it.address("a.test"), port)
    data = get("a.test", f"X: {text}")
    said = await (over_tls(inside, data) if tls else said_by(inside, data))
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b"X-Isobox-Denied: secret B\r\n" in said
    await asyncio.gather(*it.serving)
    assert it.denials == [("a.test", port, "secret B")]
    failed = [each for each in it.outcomes if not each[0]]
    assert len(failed) == 1


@pytest.mark.parametrize("name", ["b.test", None])
async def test_a_server_that_is_somebody_else(world, name):
    it = await world("a.test", secrets=[secret()])
    if name is None:
        it.filter._verifying = ssl.create_default_context()
    it.servers["a.test", 443] = secured(serving([]), name or "a.test")
    said = await over_tls(it.dial(it.address("a.test"), 443), get("a.test"))
    assert said.startswith(b"HTTP/1.1 502 ")
    assert b"TLS failed" in said
    await asyncio.gather(*it.serving)
    (refused,) = it.events("refused")
    assert "TLS failed" in refused["reason"]
    assert (False, "UnreachableError") in it.outcomes


async def test_a_program_that_trusts_another(world):
    it = await world("a.test", secrets=[secret()])
    it.servers["a.test", 443] = secured(serving([]))
    other = ssl.create_default_context(cadata=OUTSIDE.certificate_pem.decode())
    with pytest.raises(ssl.SSLCertVerificationError):
        await over_tls(it.dial(it.address("a.test"), 443), GET, context=other)
    await asyncio.gather(*it.serving)
    (refused,) = it.events("refused")
    assert "passthrough=True" in refused["reason"]


async def test_passthrough_is_not_read(world):
    seen = []
    pinned = NetworkRule(host="a.test", passthrough=True)
    it = await world(pinned, secrets=[secret(header="X-Key: {}")])
    it.servers["a.test", 443] = secured(serving(seen))
    other = ssl.create_default_context(cadata=OUTSIDE.certificate_pem.decode())
    said = await over_tls(it.dial(it.address("a.test"), 443), GET, context=other)
    assert said.endswith(b"served")
    assert VALUE.encode() not in seen[0]


async def test_another_host_inside_of_tls(world):
    it = await world("a.test", "b.test", secrets=[secret(header="X-Key: {}")])
    it.servers["a.test", 443] = secured(serving([]))
    said = await over_tls(it.dial(it.address("a.test"), 443), get("b.test"))
    assert said.startswith(b"HTTP/1.1 403 ")
    assert it.denials == [("a.test", 443, "host")]


async def test_a_client_that_says_nothing_after_its_hello(world, monkeypatch):
    monkeypatch.setattr(look, "HELLO", 0.05)
    it = await world("a.test", secrets=[secret()])
    it.servers["a.test", 443] = echo
    inside = it.dial(it.address("a.test"), 443)
    async with inside:
        await inside.send(openssl("a.test"))
        with contextlib.suppress(ConnectionResetError):
            await inside.read()


async def test_the_server_is_greeted_while_the_client_checks_who_it_meets(world):
    it = await world("a.test", secrets=[secret()])
    greeted = asyncio.get_running_loop().create_future()

    async def listen(connection):
        greeted.set_result(await connection.receive())

    it.servers["a.test", 443] = listen
    trusting = ssl.create_default_context(cadata=INSIDE.certificate_pem.decode())
    async with it.dial(it.address("a.test"), 443) as inside:
        client = Secured(inside, trusting, host="a.test")
        await client.greet()
        assert (await greeted)[:1] == b"\x16"
        await client.shake()


async def test_a_server_that_hangs_up_before_a_request_is_asked_again(world):
    seen = []
    it = await world("a.test", secrets=[secret()])
    serve = secured(serving(seen))
    turns = iter([secured(leaving), serve])

    async def take(connection):
        await next(turns)(connection)

    it.servers["a.test", 443] = take
    said = await over_tls(it.dial(it.address("a.test"), 443), get("a.test"))
    assert said.endswith(b"served")
    assert it.reached == [("a.test", 443)] * 2
    assert len(seen) == 1


async def leaving(_connection):
    """Say nothing."""


NO_DELETE = NetworkRule(host="a.test", methods=("DELETE",), verdict="deny")
NO_ADMIN = NetworkRule(host="a.test", paths=("/admin*",), verdict="deny")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("X-A: 1", b"200"),
        ("X-HTTP-Method-Override: DELETE", b"403"),
        ("X-HTTP-Method: delete", b"403"),
        ("x-method-override: PUT", b"200"),
        ("X-Original-URL: /admin", b"403"),
        ("X-Rewrite-URL: /admin/x?y", b"403"),
        ("X-Rewrite-URL: /1\r\nX-Rewrite-URL: /2\r\nX-Rewrite-URL: /3", b"400"),
    ],
)
async def test_what_servers_take_for_another_request_is_decided_too(
    world, line, status
):
    it = await world("a.test", NO_DELETE, NO_ADMIN)
    it.servers["a.test", 80] = serving([])
    said = await said_by(it.dial(it.address("a.test"), 80), get("a.test", line))
    assert said.split(b" ")[1] == status


# -- other protocols ---------------------------------------------------------


async def test_a_server_that_speaks_first(world):
    async def mail(connection):
        await connection.send(b"220 ready\r\n")
        while data := await connection.receive():
            await connection.send(b"250 " + data)
        await connection.send_eof()

    it = await world("a.test:25")
    it.servers["a.test", 25] = mail
    inside = it.dial(it.address("a.test"), 25)
    async with inside:
        assert await inside.receive() == b"220 ready\r\n"
        await inside.send(b"EHLO x\r\n")
        assert await inside.receive() == b"250 EHLO x\r\n"
        await inside.send_eof()
        assert await inside.read() == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x08\4\xd2\x16\x2f",
        b"NICK a\r\n",
        b"0032git-upload-pack /x\0",
        b"\5" * 100000,
    ],
)
async def test_a_client_that_speaks_no_http_first(world, data):
    it = await world("a.test:5432")
    it.servers["a.test", 5432] = echo
    inside = it.dial(it.address("a.test"), 5432)
    async with inside, anyio.create_task_group() as group:
        group.start_soon(inside.send, data)
        got = b""
        while len(got) < len(data):
            got += await inside.receive()
        assert got == data


async def test_a_client_that_only_listens(world):
    async def daytime(connection):
        await connection.receive()
        await connection.send(b"noon")

    it = await world("a.test:13")
    it.servers["a.test", 13] = daytime
    inside = it.dial(it.address("a.test"), 13)
    async with inside:
        await inside.send_eof()
        assert await inside.read() == b"noon"


@pytest.mark.parametrize(
    "pieces",
    [
        (b"GET\t/ HTTP/1.1\r\nHost: b.test\r\n\r\n",),
        (b"\r\n", b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n"),
        (b" GET / HTTP/1.1\r\n",),
        (b"GET\t", b"/ HT", b"TP/1.1\r\n"),
        (b"\x1cGET /x HTTP/1.1\r\n",),
        (b"\0GET /x HTTP/1.1\r\n",),
        (b"\x80\x2e\1\3\1",),
    ],
)
async def test_what_could_be_taken_for_http_is_denied(world, pieces):
    it = await world("a.test:8080")
    it.servers["a.test", 8080] = echo
    assert await said_by(it.dial(it.address("a.test"), 8080), *pieces) is None
    assert it.denials == [("a.test", 8080, "protocol")]


async def test_http_on_another_port_is_read(world):
    seen = []
    it = await world("a.test:8080")
    it.servers["a.test", 8080] = serving(seen)
    for host, status in (
        ("a.test:8080", b"200"),
        ("a.test", b"200"),
        ("b.test", b"403"),
    ):
        said = await said_by(it.dial(it.address("a.test"), 8080), get(host))
        assert said.split(b" ")[1] == status
    assert {data.split(b"\r\n")[1] for data in seen} == {b"Host: a.test:8080"}


# -- the proxy ---------------------------------------------------------------


async def test_a_proxy_for_http(world):
    it = await world("a.test")
    it.servers["a.test", 80] = serving([])
    data = GET.replace(b"/x", b"http://a.test/x")
    assert (await said_by(it.proxy(), data)).endswith(b"served")
    denied = await said_by(it.proxy(), data.replace(b"a.test", b"b.test"))
    assert denied.startswith(b"HTTP/1.1 403 ")
    assert b"no rule allows b.test:80" in denied
    assert it.denials == [("b.test", 80, "default")]


async def test_an_address_of_ours_is_its_name_for_every_rule(world):
    it = await world(NetworkRule(host="a.test", methods=("GET",)))
    it.servers["a.test", 80] = serving([])
    address = it.address("a.test")
    for method, status in ((b"GET", b"200"), (b"DELETE", b"403")):
        data = b"%s http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (
            method,
            address.encode(),
            address.encode(),
        )
        said = await said_by(it.proxy(), data)
        assert said.split(b" ")[1] == status


@pytest.mark.parametrize(
    "host", ["localhost", "x.localhost", "127.0.0.1", "[::1]", "198.18.9.9"]
)
async def test_a_proxy_does_not_lead_to_itself(world, host):
    asked = []

    async def approve(question):
        asked.append(question)
        return True

    it = await world("*:*", approve=approve, otherwise="ask")
    data = f"CONNECT {host}:80 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    said = await said_by(it.proxy(), data)
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b"X-Isobox-Denied: localhost\r\n" in said
    assert (it.reached, asked) == ([], [])
    assert len(it.denials) == 1
    assert [ok for ok, _ in it.outcomes] == [False]


async def test_a_tunnel(world):
    it = await world("a.test:5432")
    it.servers["a.test", 5432] = echo
    inside = it.proxy()
    async with inside:
        await inside.send(
            b"CONNECT a.test:5432 HTTP/1.1\r\nHost: b.test\r\n\r\n\0early"
        )
        said = b""
        while not said.endswith(b"\0early"):
            said += await inside.receive()
        assert said == b"HTTP/1.1 200 Connection established\r\n\r\n\0early"
        await inside.send_eof()
        assert await inside.read() == b""


async def test_a_tunnel_to_one_host_for_another(world):
    it = await world("a.test", "b.test")
    it.servers["a.test", 443] = echo
    it.servers["a.test", 80] = serving([])
    inside = it.proxy()
    connect = b"CONNECT a.test:%d HTTP/1.1\r\nHost: a.test\r\n\r\n"
    assert await said_by(inside, connect % 443, hello(names(b"b.test"))) is None
    said = await said_by(it.proxy(), connect % 80, get("b.test"))
    assert said.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 403 ")
    assert it.denials == [("a.test", 443, "sni"), ("a.test", 80, "host")]


@pytest.mark.parametrize(
    ("host", "port", "start"),
    [("b.test", 443, b"HTTP/1.1 403 "), ("a.test", 443, b"HTTP/1.1 502 ")],
)
async def test_a_tunnel_that_cannot_be(world, host, port, start):
    it = await world("a.test")
    data = f"CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    assert (await said_by(it.proxy(), data)).startswith(start)


@pytest.mark.parametrize("kind", ["connect", "socks5"])
async def test_a_client_that_left_meanwhile_leaves_nothing(world, kind):
    it = await world("a.test")
    gone = asyncio.Event()

    async def late(*about):
        await gone.wait()
        return await World.reach(it, *about)

    upstream.reach = late
    it.servers["a.test", 443] = echo
    inside = it.proxy()
    if kind == "connect":
        await inside.send(b"CONNECT a.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    else:
        await inside.send(b"\5\1\0" + b"\5\1\0\3\6a.test\1\xbb")
        await inside.receive()
    await asyncio.sleep(0.02)
    await inside.abort()
    gone.set()
    await asyncio.gather(*it.serving)
    assert it.filter._budget._alive == 0


def socks(host: bytes, port=80, *, kind=3):
    size = bytes((len(host),)) if kind == 3 else b""
    return b"\5\1\0\5\1\0" + bytes((kind,)) + size + host + struct.pack(">H", port)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (socks(b"b.test"), 2),
        (socks(b"a.test", 81), 2),
        (socks(b"c.test"), 4),
        (socks(b"localhost"), 2),
        (socks(bytes((127, 0, 0, 1)), kind=1), 2),
        (socks(bytes((198, 18, 9, 9)), kind=1), 2),
        (socks(b"0x7f.1"), 1),
        (socks(b"a.test", 0), 1),
    ],
)
async def test_socks_refuses(world, data, code):
    it = await world("a.test", "c.test")
    assert await said_by(it.proxy(), data) == bytes((5, 0, 5, code, 0, 1)) + bytes(6)
    assert it.filter._budget._alive == 0


@pytest.mark.parametrize("by", ["name", "address"])
async def test_socks(world, by):
    it = await world("a.test")
    it.servers["a.test", 80] = serving([])
    address = bytes(map(int, it.address("a.test").split(".")))
    data = socks(b"A.test.") if by == "name" else socks(address, kind=1)
    said = await said_by(it.proxy(), data + GET)
    assert said.startswith(bytes((5, 0, 5, 0, 0, 1)) + bytes(6) + b"HTTP/1.1 200 OK")
    assert it.reached == [("a.test", 80)]


async def test_a_proxy_client_that_says_nothing(world, monkeypatch):
    monkeypatch.setattr(look, "HELLO", 0.05)
    it = await world("a.test")
    for data in (b"", b"\5"):
        assert await said_by(it.proxy(), data) in (b"", None)
    inside = it.proxy()
    await inside.send_eof()
    assert await said_by(inside) == b""


# -- names -------------------------------------------------------------------


def query(name: str, kind=dns.A, class_=1) -> bytes:
    labels = b"".join(bytes((len(part),)) + part.encode() for part in name.split("."))
    return (
        struct.pack(">6H", 7, 0x100, 1, 0, 0, 0)
        + labels
        + b"\0"
        + struct.pack(">2H", kind, class_)
    )


def code(answer: bytes) -> tuple[int, int]:
    """Return the code of an answer, and how many records it has."""
    _, flags, _, records, *_ = struct.unpack_from(">6H", answer)
    return flags & 15, records


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("a.test", dns.A, (0, 1)),
        ("A.TEST", dns.A, (0, 1)),
        ("a.test", dns.AAAA, (0, 0)),
        ("a.test", 65, (0, 0)),
        ("a.test", 255, (0, 0)),
        ("b.test", dns.A, (3, 0)),
        ("b.test", 16, (3, 0)),
        ("localhost", dns.A, (0, 1)),
        ("x.localhost", dns.AAAA, (0, 1)),
        ("a-.test", dns.A, (3, 0)),
        ("0x7f.1", dns.A, (3, 0)),
    ],
)
async def test_names_are_answered(world, name, kind, expected):
    it = await world("a.test")
    assert code(it.filter.asked(query(name, kind))) == expected


async def test_a_name_has_an_address_of_its_own(world):
    it = await world("*")
    it.filter.lead("127.64.0.0/10")
    first, again = (it.filter.asked(query("a.test")) for _ in range(2))
    assert first[-4:] == again[-4:] == bytes((127, 64, 0, 1))
    assert it.filter.asked(query("b.test"))[-4:] == bytes((127, 64, 0, 2))


async def test_questions_of_another_kind(world):
    it = await world("*")
    assert code(it.filter.asked(query("a.test", class_=3))) == (5, 0)
    assert code(it.filter.asked(query("a.test") + b"x")) == (1, 0)
    assert it.filter.asked(b"") is None
    answer = bytearray(query("a.test"))
    answer[2] |= 0x80
    assert it.filter.asked(bytes(answer)) is None


async def test_no_address_is_left(world, monkeypatch):
    it = await world("*")
    monkeypatch.setattr(it.filter._names, "address", lambda _: None)
    assert code(it.filter.asked(query("a.test"))) == (2, 0)


async def test_a_name_that_is_denied_is_on_record(world, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0)
    it = await world("a.test")
    it.filter.asked(query("b.test"))
    await asyncio.sleep(0.02)
    assert it.denials == [("b.test", 53, "default")]
    assert it.sink.records[0]["facts"] == {"host": "b.test", "port": 53, "via": "dns"}
    assert it.outcomes == [(False, "PolicyDeniedError")]


async def test_a_flood_of_names_does_not_flood_the_log(world):
    it = await world("a.test")
    for number in range(5000):
        it.filter.asked(query(f"{number}.b.test"))
    await asyncio.sleep(0.1)
    assert len(it.sink.records) < 2 * (module._QUESTIONS + 1)
    assert len(it.filter.denials.since(0)) == 256


async def test_a_flood_of_denials_does_not_flood_the_log(world):
    it = await world("a.test")
    it.filter._pace = Pace(at_once=5, per_second=0)
    for _ in range(30):
        assert await said_by(it.dial(it.address("b.test"), 80)) is None
    assert len(it.outcomes) == 5
    assert it.denials == [("b.test", 80, "default")]
    it.filter._pace._per_second = 1e9
    assert await said_by(it.dial(it.address("b.test"), 80)) is None
    # Each is on record, or counted by one that is.
    refused = it.events("refused")
    assert len(refused) == len(it.outcomes)
    assert len(refused) + sum(each.get("unrecorded", 0) for each in refused) == 31


async def test_a_flood_beyond_a_limit_does_not_flood_the_log(world):
    it = await world("a.test")
    it.filter._pace = Pace(at_once=5, per_second=0)
    it.filter._limited = Pace(at_once=5, per_second=0)

    def admit():
        raise LimitError("as many as there may be are open")

    it.filter._budget.admit = admit
    for _ in range(40):
        assert await said_by(it.dial(it.address("a.test"), 80)) is None
    assert len(it.outcomes) == 5
    assert {error for _, error in it.outcomes} == {"LimitError"}
    it.filter._pace._per_second = it.filter._limited._per_second = 1e9
    assert await said_by(it.dial(it.address("a.test"), 80)) is None
    refused = it.events("refused")
    assert len(refused) + sum(each.get("unrecorded", 0) for each in refused) == 41


async def test_a_host_beyond_its_bytes_keeps_nobody_from_others(world):
    it = await world("a.test:5432", "b.test:5432", bytes_out=10)
    it.servers["a.test", 5432] = it.servers["b.test", 5432] = echo
    it.filter._pace = Pace(at_once=5, per_second=0)
    it.filter._limited = Pace(at_once=3, per_second=0)
    assert await said_by(it.dial(it.address("a.test"), 5432), b"\0" * 20) is None
    for _ in range(20):
        assert await said_by(it.dial(it.address("a.test"), 5432), b"\0") is None
    # What ended by its bytes was put on record as well.
    assert sum(error == "LimitError" for _, error in it.outcomes) == 5
    other = it.dial(it.address("b.test"), 5432)
    async with other:
        await other.send(b"\0")
        assert await other.receive() == b"\0"
    assert it.denials == [("a.test", 5432, "limit")]


async def test_a_flood_of_denials_is_answered_as_before(world):
    it = await world("a.test")
    said = set()
    it.filter._pace = Pace(at_once=2, per_second=0)
    for _ in range(5):
        said.add(await said_by(it.proxy(), get("b.test", path="http://b.test/x")))
    (answer,) = said
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"X-Isobox-Denied: default" in answer
    assert len(it.outcomes) == 2


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x80", b""),
        (b"HTTP/1.1 200 OK\r\n", b""),
        (b"220 ready\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (b"220 ready\r\n", b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n"),
    ],
)
async def test_a_server_of_the_web_that_speaks_first(world, server, client):
    heard = []

    async def serve(connection):
        await connection.send(server)
        while data := await connection.receive():
            heard.append(data)

    it = await world("a.test:8080")
    it.servers["a.test", 8080] = serve
    inside = it.dial(it.address("a.test"), 8080)
    if client:
        assert await inside.receive() == server
    assert await said_by(inside, client) is None
    await asyncio.gather(*it.serving)
    assert heard == []
    assert len(it.denials) == 1
