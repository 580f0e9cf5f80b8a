"""Hosts outside: resolved once, checked, and connected to by address."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import threading

import anyio
import pytest

from isobox._egress import hosts_file, upstream
from isobox._egress.own_addresses import OwnAddresses
from isobox._linux import interfaces
from isobox._policy.network import Network
from isobox.errors import PolicyDeniedError, UnreachableError

pytestmark = pytest.mark.anyio

OPEN = Network.of("open")
HINT = "; to allow it, name the address in a rule"


@pytest.fixture
def names(monkeypatch):
    """Let names mean what a test says, and everything be reachable on loopback."""
    known: dict[str, list[str]] = {}
    asked = []

    def getaddrinfo(host, port, **_):
        asked.append(host)
        found = known.get(host)
        if found is None:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (text, port)) for text in found]

    monkeypatch.setattr(upstream.socket, "getaddrinfo", getaddrinfo)
    known["asked"] = asked
    return known


async def reach(host, port=80, network=OPEN):
    own = OwnAddresses()
    try:
        return await upstream.reach(host, port, network, anyio.CapacityLimiter(4), own)
    finally:
        own.close()


async def resolve(host):
    found = await upstream.resolve(host, 80, anyio.CapacityLimiter(4))
    return [str(address) for address in found]


@contextlib.contextmanager
def listening():
    """Give a socket of which the kernel takes connections, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock, sock.getsockname()[1]


# -- names -------------------------------------------------------------------


async def test_a_name_is_resolved_without_search_domains(names):
    names["a.test."] = ["93.184.216.34", "2606:2800:220:1::1", "93.184.216.34"]
    assert await resolve("a.test") == ["93.184.216.34", "2606:2800:220:1::1"]
    assert names["asked"] == ["a.test."]


async def test_what_the_host_names_itself_is_not_asked(names, monkeypatch, tmp_path):
    own = tmp_path / "hosts"
    own.write_text("93.184.216.34 a.test\n")
    monkeypatch.setattr(hosts_file, "PATH", str(own))
    names["b.test."] = ["93.184.216.35"]
    assert await resolve("a.test") == ["93.184.216.34"]
    assert await resolve("b.test") == ["93.184.216.35"]
    assert names["asked"] == ["b.test."]


async def test_an_address_is_not_resolved(names):
    assert await resolve("93.184.216.34") == ["93.184.216.34"]
    assert await resolve("::ffff:93.184.216.34") == ["93.184.216.34"]
    assert names["asked"] == []


async def test_mapped_addresses_are_ipv4_and_zones_are_nobodys(names):
    names["a.test."] = ["::ffff:10.0.0.1", "fe80::1%eth0"]
    assert await resolve("a.test") == ["10.0.0.1"]


async def test_a_name_has_so_many_addresses(names):
    names["a.test."] = [f"93.184.216.{number}" for number in range(200)]
    assert len(await resolve("a.test")) == 16


async def test_a_name_that_is_none(names):
    with pytest.raises(
        UnreachableError, match=r"a\.test does not resolve: .*not known"
    ):
        await resolve("a.test")
    names["b.test."] = ["fe80::1%eth0"]
    with pytest.raises(UnreachableError, match=r"b\.test has no address"):
        await resolve("b.test")


async def test_a_name_that_no_resolver_takes():
    with pytest.raises(UnreachableError, match="does not resolve"):
        await resolve("a" * 64 + ".test")


async def test_a_resolver_that_does_not_answer(monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(upstream, "_RESOLVE", 0.05)
    monkeypatch.setattr(upstream, "_lookup", lambda *_: over.wait(20))
    try:
        with pytest.raises(UnreachableError, match="the resolver did not answer"):
            await resolve("a.test")
    finally:
        over.set()


# -- addresses ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (["127.0.0.1"], "a.test is at 127.0.0.1 (loopback), which no rule names"),
        (
            ["93.184.216.34", "10.0.0.1"],
            f"a.test is at 10.0.0.1 (private), which no rule names{HINT}",
        ),
        (
            ["169.254.169.254"],
            f"a.test is at 169.254.169.254 (metadata), which no rule names{HINT}",
        ),
        (["0.0.0.0"], "a.test is at 0.0.0.0 (reserved), which no rule names"),
        (
            ["64:ff9b::7f00:1"],
            f"a.test is at 64:ff9b::7f00:1 (loopback), which no rule names{HINT}",
        ),
        (
            ["::ffff:127.0.0.1"],
            "a.test is at 127.0.0.1 (loopback), which no rule names",
        ),
    ],
)
async def test_one_address_that_is_not_public_denies_all(names, found, reason):
    names["a.test."] = found
    with pytest.raises(PolicyDeniedError) as caught:
        await reach("a.test")
    assert (caught.value.rule, caught.value.reason) == ("not public", reason)


async def test_the_address_that_was_checked_is_connected_to(names, monkeypatch):
    names["a.test."] = ["93.184.216.34"]
    dialled = []

    async def opened(address, port):
        dialled.append((str(address), port))
        names["a.test."] = ["127.0.0.1"]
        one, other = socket.socketpair()
        other.close()
        return one

    monkeypatch.setattr(upstream, "_opened", opened)
    connection, address = await reach("a.test", 443)
    await connection.aclose()
    assert dialled == [("93.184.216.34", 443)]
    assert address == ipaddress.ip_address("93.184.216.34")
    assert names["asked"] == ["a.test."]


# -- connecting --------------------------------------------------------------

HERE = ipaddress.ip_address("127.0.0.1")
ELSEWHERE = ipaddress.ip_address("127.0.0.2")


async def test_a_connection_is_made():
    with listening() as (sock, port):
        connection, address = await upstream._connect("a.test", [HERE], port)
        async with connection:
            with sock.accept()[0] as other:
                other.sendall(b"here")
            assert await connection.receive() == b"here"
        assert address == HERE


async def test_the_next_address_is_tried_at_once_when_one_refuses(monkeypatch):
    # Whoever waits for the first to be late waits beyond the test.
    monkeypatch.setattr(upstream, "_STAGGER", 3600)
    with listening() as (_, port):
        async with asyncio.timeout(30):
            found = await upstream._connect("a.test", [ELSEWHERE, HERE], port)
        connection, address = found
        await connection.aclose()
        assert address == HERE


async def test_the_next_address_is_tried_when_one_is_silent(monkeypatch):
    opened = upstream._opened

    async def slow(address, port):
        if address == ELSEWHERE:
            await asyncio.sleep(60)
        return await opened(address, port)

    monkeypatch.setattr(upstream, "_opened", slow)
    with listening() as (_, port):
        connection, address = await upstream._connect("a.test", [ELSEWHERE, HERE], port)
        await connection.aclose()
        assert address == HERE


async def test_nothing_listens():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        with pytest.raises(UnreachableError) as caught:
            await upstream._connect("a.test", [HERE, ELSEWHERE], port)
    assert str(caught.value) == (
        f"cannot reach a.test:{port} (127.0.0.1: Connection refused; "
        "127.0.0.2: Connection refused)"
    )


async def test_nobody_answers(monkeypatch):
    monkeypatch.setattr(upstream, "_CONNECT", 0.05)
    monkeypatch.setattr(upstream, "_opened", lambda *_: asyncio.sleep(60))
    with pytest.raises(UnreachableError, match=r"no answer in 0\.05 s"):
        await upstream._connect("a.test", [HERE], 80)


async def test_who_comes_late_is_closed(monkeypatch):
    made = []

    async def opened(address, port):
        await asyncio.sleep(60 if address == ELSEWHERE else 0.05)
        one, other = socket.socketpair()
        other.close()
        made.append(one)
        return one

    monkeypatch.setattr(upstream, "_STAGGER", 0)
    monkeypatch.setattr(upstream, "_opened", opened)
    connection, address = await upstream._connect("a.test", [ELSEWHERE, HERE], 80)
    assert address == HERE
    await connection.aclose()
    assert [sock.fileno() for sock in made] == [-1]


@pytest.mark.parametrize("after", [0, 0.01, 0.05, 0.051, 0.06])
async def test_who_stops_waiting_leaves_no_socket(monkeypatch, after):
    made = []

    async def opened(address, port):
        await asyncio.sleep(0.05)
        one, other = socket.socketpair()
        other.close()
        made.append(one)
        return one

    monkeypatch.setattr(upstream, "_opened", opened)
    kept = None
    with anyio.move_on_after(after):
        kept, _ = await upstream._connect("a.test", [HERE], 80)
    if kept is not None:
        await kept.aclose()
    assert all(sock.fileno() == -1 for sock in made)


# -- this machine's own --------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "kind"),
    [
        ("open", PolicyDeniedError),
        (["own.test", "93.184.215.0/24"], PolicyDeniedError),
        (["own.test", "93.184.215.77"], None),
        (["own.test", "!93.184.215.77"], PolicyDeniedError),
    ],
)
@pytest.mark.parametrize("host", ["own.test", "93.184.215.77", "64:ff9b::5db8:d74d"])
async def test_what_this_machine_is(names, monkeypatch, network, kind, host):
    own = frozenset([ipaddress.ip_address("93.184.215.77")])
    monkeypatch.setattr(interfaces, "addresses", lambda: own)
    names["own.test."] = ["93.184.215.77"]
    made = []

    async def connect(host, found, port):
        made.append((host, found, port))
        return None, None

    monkeypatch.setattr(upstream, "_connect", connect)
    if kind is None and host != "64:ff9b::5db8:d74d":
        await reach(host, network=Network.of(network))
        assert made
        return
    with pytest.raises(PolicyDeniedError):
        await reach(host, network=Network.of(network))
    assert not made


async def test_addresses_that_nobody_tells(names, monkeypatch):
    def fails():
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(interfaces, "addresses", fails)
    with pytest.raises(UnreachableError, match="cannot be listed: Permission denied"):
        await reach("93.184.215.77")
