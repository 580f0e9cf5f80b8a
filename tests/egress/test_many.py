"""Verdicts under load: none is ever another one's, none is ever missing."""

from __future__ import annotations

import json
import os
import time
from collections import Counter

import anyio
import pytest
from tests.egress.inside import PROGRAMS, curl, run
from tests.egress.lab import zone

from isobox import Limits, Network, NetworkRule

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(100)]

LIMITS = Limits(open_files=16384)
#: How to connect, to which host, at which port.
Job = tuple[str, str, int]

CROWD = [(str(PROGRAMS / "crowd.py"), "/lab/crowd.py")]


def network(*rules: str) -> Network:
    """Return a network with room for a crowd."""
    read = tuple(map(NetworkRule.parse, rules))
    return Network(rules=read, connections=4096, per_second=100_000)


async def crowd(workspace, name: str, jobs: list[Job]) -> list[str]:
    """Do jobs all at once; returns what came of each."""
    result = await workspace.run(
        ["python3", "/lab/crowd.py", name], stdin=json.dumps(jobs), timeout=90
    )
    assert result.exit_code == 0, result.stderr[-2000:]
    return json.loads(result.stdout)


def shared(kinds: list[Job], number: int) -> list[Job]:
    return [kinds[at % len(kinds)] for at in range(number)]


REFUSALS = {
    "403",
    "socks 2",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "gaierror",
}


async def test_a_thousand_denied_at_once(internet, make):
    denied = [
        ("http", "evil.test", 80),
        ("connect", "evil.test", 443),
        ("connect", "www.example.org", 8080),
        ("socks5", "evil.test", 80),
        ("socks5", zone.EVIL, 80),
        ("direct", zone.EVIL, 80),
        ("direct", zone.METADATA, 80),
        ("direct", "10.0.0.5", 443),
    ]
    rules = network("www.example.org")
    async with make(rules, limits=LIMITS, mounts=CROWD) as workspace:
        met = await crowd(workspace, "all", shared(denied, 1000))
        assert set(met) <= REFUSALS, Counter(met)
        assert len(met) == 1000
        assert internet.connections == []
        assert internet.names.questions == []
        good = await curl(workspace, "http://www.example.org/")
        assert good.exit_code == 0


async def test_a_thousand_denied_at_once_when_relayed(internet, make):
    denied = [
        ("http", "evil.test", 80),
        ("connect", "evil.test", 443),
        ("socks5", zone.EVIL, 80),
        ("direct", zone.EVIL, 80),
    ]
    rules = network("www.example.org")
    async with make(rules, kind="relayed", limits=LIMITS, mounts=CROWD) as workspace:
        met = await crowd(workspace, "all", shared(denied, 1000))
        assert set(met) <= {*REFUSALS, "OSError"}, Counter(met)
        assert internet.connections == []
        good = await curl(workspace, "http://www.example.org/")
        assert good.exit_code == 0


async def test_among_a_thousand_each_has_its_own_verdict(internet, make):
    mixed = [
        ("http", "www.example.org", 80),
        ("http", "evil.test", 80),
        ("connect", "www.example.org", 80),
        ("connect", "evil.test", 80),
        ("socks5", "www.example.org", 80),
        ("socks5", "evil.test", 80),
    ]
    wanted = ["200", "403", "200", "403", "200", "socks 2"]
    rules = network("www.example.org")
    async with make(rules, limits=LIMITS, mounts=CROWD) as workspace:
        met = await crowd(workspace, "all", shared(mixed, 996))
    assert met == wanted * 166
    assert {request.host for request in internet.requests} == {"www.example.org"}
    assert len(internet.requests) == 498


@pytest.mark.parametrize("kind", ["caught", "relayed"])
async def test_two_sandboxes_never_share_a_verdict(internet, make, kind):
    """A thousand connections at once, half of each to what only the other may."""
    hosts = {"one": "www.example.org", "two": "other.example.org"}
    both = hosts.values()
    met = {}

    async def crowded(workspace, name: str) -> None:
        ways = [(how, host, 80) for how in ("http", "connect") for host in both]
        met[name] = await crowd(workspace, name, shared(ways, 500))

    def opened(name: str):
        rules = network(hosts[name])
        return make(rules, kind=kind, limits=LIMITS, mounts=CROWD)

    async with (
        opened("one") as one,
        opened("two") as two,
        anyio.create_task_group() as group,
    ):
        group.start_soon(crowded, one, "one")
        group.start_soon(crowded, two, "two")
    assert met == {"one": ["200", "403"] * 250, "two": ["403", "200"] * 250}
    # What a server was told: who asks, and for which host.
    told = Counter((request.target, request.host) for request in internet.requests)
    assert told == {("/one", hosts["one"]): 250, ("/two", hosts["two"]): 250}


HOLD = """
import socket, sys, time
count, port, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
held = []
for _ in range(count):
    sock = socket.create_connection(("127.0.0.1", port), 30)
    if words:
        sock.sendall(words)
    held.append(sock)
print("held", flush=True)
time.sleep(60)
"""
#: How slow clients begin, and stay.
BEGINNINGS = {
    "nothing": "",
    "half a line": "GET http://www.exa",
    "half a head": "GET http://www.example.org/ HTTP/1.1\r\nHost: www.example.org",
    "half a SOCKS request": "\x05\x01",
}


async def hold(workspace, count: int, words: str):
    """Hold many half-open connections; returns the process that does."""
    program = ["python3", "-c", HOLD, str(count), "3128", words]
    process = await workspace.start(program)
    async for piece in process.stdout:
        assert piece == b"held\n"
        break
    return process


#: As many as a sandbox may have at once, but a few.
SLOW = {"caught": 1000, "relayed": 500}


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.parametrize("words", BEGINNINGS.values(), ids=BEGINNINGS)
async def test_many_slow_clients(internet, make, kind, words):
    async with make(["www.example.org"], kind=kind, limits=LIMITS) as workspace:
        async with await hold(workspace, SLOW[kind], words):
            start = time.monotonic()
            for _ in range(3):
                good = await curl(workspace, "http://www.example.org/")
                assert good.exit_code == 0, good.stderr
                assert "HTTP/1.1 200" in good.stdout
            assert time.monotonic() - start < 10
        assert len(internet.requests) == 3


@pytest.mark.parametrize("kind", SLOW)
async def test_a_crowded_sandbox_is_no_other_ones_trouble(internet, make, kind):
    def opened():
        return make(["www.example.org"], kind=kind, limits=LIMITS)

    async with (
        opened() as crowded,
        opened() as other,
        await hold(crowded, 1500, "GET http://www.exa"),
    ):
        start = time.monotonic()
        good = await curl(other, "http://www.example.org/")
        assert good.exit_code == 0, good.stderr
        assert time.monotonic() - start < 10
    assert len(internet.requests) == 1


def resident() -> int:
    """Return how many bytes of memory this process, the host's side, takes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


FLOOD = """
import resource, select, socket, sys, time
count = int(sys.argv[1])
held, failed = [], 0
for _ in range(count):
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", 3128))
    held.append(sock)
time.sleep(2)
for sock in held:
    try:
        sock.send(b"GET http://www.example.org/ HTTP/1.1\\r\\n")
    except OSError:
        failed += 1
time.sleep(1)
print(len(held) - failed)
"""


async def test_ten_thousand_connections(internet, make):
    """Bounded on the host, and over once they are."""
    before = resident()
    async with make(["www.example.org"], limits=LIMITS) as workspace:
        result = await run(workspace, "python3", "-c", FLOOD, "10000")
        assert result.exit_code == 0, result.stderr
        assert int(result.stdout) >= 1000
        good = await curl(workspace, "http://www.example.org/")
        assert good.exit_code == 0, good.stderr
        assert resident() - before < 200 << 20
    assert len(internet.requests) == 1


async def test_limits_of_a_workspace(internet, make, kind):
    few = Network(rules=("www.example.org",), connections=5, per_second=1000)
    held = [("connect", "www.example.org", 80)] * 12
    slow = (
        "curl -s -o /dev/null -w '%{http_code}\\n' "
        "'http://www.example.org/slow?seconds=3'"
    )
    script = f"for i in 1 2 3 4 5 6 7 8; do {slow} & done; wait"
    async with make(few, kind=kind, mounts=CROWD) as workspace:
        result = await workspace.run(script, timeout=30)
        statuses = Counter(result.stdout.split())
        assert statuses == {"200": 5, "429": 3}
        assert "Network.connections" in result.denials[0].reason
        met = await crowd(workspace, "all", held)
        assert met.count("200") >= 5
        # What has ended counts no more.
        good = await curl(workspace, "http://www.example.org/")
        assert "HTTP/1.1 200" in good.stdout
