"""Which hosts may be reached, however their names are written."""

from __future__ import annotations

import pytest
from tests.egress.inside import probe, probe_one
from tests.egress.lab import zone

pytestmark = pytest.mark.anyio

RULES = (
    "www.example.org",
    "*.cdn.example.org",
    "bücher.example.org",
    "!no.cdn.example.org",
)

#: However it is written, it is the host that a rule names; and which.
SAME = {
    "www.example.org": "www.example.org",
    "WWW.Example.ORG": "www.example.org",
    "www.example.org.": "www.example.org",
    "static.cdn.example.org": "static.cdn.example.org",
    "deep.static.CDN.example.org.": "deep.static.cdn.example.org",
    "xn--bcher-kva.example.org": "xn--bcher-kva.example.org",
    "XN--BCHER-KVA.example.org": "xn--bcher-kva.example.org",
}

#: Latin-1 text, sent as it is.
OTHERS = (
    # Ends, or begins, like an allowed name.
    "evilexample.org",
    "evilwww.example.org",
    "www.example.org.evil.test",
    "example.org",
    "cdn.example.org",
    "evilcdn.example.org",
    "no.cdn.example.org",
    "NO.cdn.example.org.",
    # One name for who decides, another one for who resolves.
    "evil.test\0.cdn.example.org",
    "evil.test%00.cdn.example.org",
    "evil.test\n.cdn.example.org",
    "evil.test\r.cdn.example.org",
    "evil.test\t.cdn.example.org",
    "evil.test .cdn.example.org",
    "evil.test#.cdn.example.org",
    "evil.test?.cdn.example.org",
    "evil.test/.cdn.example.org",
    "evil.test\\.cdn.example.org",
    "evil.test:80@www.example.org",
    "www.example.org@evil.test",
    "evil.test%2f.cdn.example.org",
    "evil.test;.cdn.example.org",
    "*.cdn.example.org",
    "-.cdn.example.org",
    ".cdn.example.org",
    "www..example.org",
    "www.example.org..",
    f"{'a' * 64}.cdn.example.org",
    f"{'a.' * 120}cdn.example.org",
    # A full stop that is none, and a name that is no ASCII.
    "evil\xe3\x80\x82test",
    "b\xfccher.example.org",
    # Addresses, among them an allowed host's own, in every disguise.
    zone.WEB,
    zone.EVIL,
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "127.1",
    "0177.0.0.1",
    "127.0.0.1",
    "127.0.0.1.",
    "0",
    "0.0.0.0",
    "10.0.0.5",
    "169.254.169.254",
    "2852039166",
    "[::1]",
    "[::]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.5]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a00:5::]",
    "[fe80::1%25lo]",
    "[fe80::1%lo]",
    f"[{zone.WEB6}]",
    "[::1",
    "::1",
    # The sandbox's own, never the host's.
    "localhost",
    "LocalHost.",
    "www.localhost",
)


def over_proxy(host: str) -> dict:
    head = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    return {"dial": "proxy", "send": [head]}


def over_connect(host: str, port: int = 80) -> dict:
    name = "www.example.org" if port == 80 else f"www.example.org:{port}"
    request = f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
    return {"dial": "connect", "host": host, "port": port, "send": [request]}


def over_socks(host: str, port: int = 80) -> dict:
    return {**over_connect(host, port), "dial": "socks5"}


WAYS = {"http": over_proxy, "connect": over_connect, "socks5": over_socks}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


async def test_however_it_is_written(internet, make, kind):
    async with make(RULES, kind=kind) as workspace:
        met = await probe(workspace, [over_proxy(host) for host in SAME])
    assert [each.status for each in met] == [200] * len(SAME)
    assert [request.host for request in internet.requests] == list(SAME.values())
    assert [seen.address for seen in internet.connections] == [zone.WEB] * len(SAME)
    assert {name for name, _ in internet.names.questions} == set(SAME.values())


@pytest.mark.parametrize("through", ["connect", "socks5"])
async def test_however_a_tunnel_is_asked_for(internet, make, kind, through):
    names = [name for name in SAME if SAME[name] == "www.example.org"]
    async with make(RULES, kind=kind) as workspace:
        met = await probe(workspace, [WAYS[through](name) for name in names])
    assert [each.status for each in met] == [200] * len(names)


async def test_whatever_looks_like_it_is_refused(internet, make, kind, way):
    hosts = [host for host in OTHERS if len(host) < 256 or way is not over_socks]
    async with make(RULES, kind=kind) as workspace:
        met = await probe(workspace, [way(host) for host in hosts])
        for host, outcome in zip(hosts, met, strict=True):
            refused = outcome.said.startswith(("socks ", "closed"))
            assert refused or outcome.status in (400, 403), (host, outcome)
        assert internet.connections == []
        assert internet.names.questions == []
        # The filter is as alive as before.
        assert (await probe_one(workspace, **way("www.example.org"))).status == 200


async def test_open_is_still_without_what_is_near(internet, make, kind, way):
    near = [host for host in OTHERS if host[:1].isdigit() or host[:1] == "["]
    near = [
        host for host in near if host not in (zone.WEB, zone.EVIL, f"[{zone.WEB6}]")
    ]
    near += ["localhost", "www.localhost", "metadata.evil.test", "private.evil.test"]
    async with make("open", kind=kind) as workspace:
        met = await probe(workspace, [way(host) for host in near])
        for host, outcome in zip(near, met, strict=True):
            refused = outcome.said.startswith(("socks ", "closed"))
            assert refused or outcome.status in (400, 403), (host, outcome)
        assert internet.connections == []
        for host in ("evil.test", zone.EVIL):
            assert (await probe_one(workspace, **over_proxy(host))).status == 200


PORTS = {
    "www.example.org": {80: True, 8080: False, 8000: False},
    "www.example.org:8080": {80: False, 8080: True, 8000: False},
    "www.example.org:*": {80: True, 8080: True, 8000: True},
}


@pytest.mark.parametrize("rule", PORTS)
async def test_ports(internet, make, kind, rule):
    jobs = [over_socks("www.example.org", port) for port in PORTS[rule]]
    jobs += [over_proxy(f"www.example.org:{port}") for port in PORTS[rule]]
    async with make([rule], kind=kind) as workspace:
        met = await probe(workspace, jobs)
    wanted = list(PORTS[rule].values()) * 2
    assert [each.said.startswith("socks 2") or each.denied for each in met] == [
        not allowed for allowed in wanted
    ]
    assert {seen.port for seen in internet.connections} == {
        port for port, allowed in PORTS[rule].items() if allowed
    }


async def test_deny_beats_allow(internet, make, kind):
    rules = [
        "*.cdn.example.org",
        "!static.cdn.example.org",
        "example.org:*",
        "!example.org:8080",
    ]
    hosts = {
        "deep.static.cdn.example.org": 200,
        "static.cdn.example.org": 403,
        "example.org": 200,
        "example.org:8080": 403,
        "example.org:8000": 200,
    }
    async with make(rules, kind=kind) as workspace:
        met = await probe(workspace, [over_proxy(host) for host in hosts])
    assert [each.status for each in met] == list(hosts.values())
    assert "!static.cdn.example.org" in met[1].said
    assert "!example.org:8080" in met[3].said


@pytest.mark.parametrize("network", [None, "none", [], ()], ids=repr)
async def test_nothing_is_nothing(internet, make, kind, network):
    jobs = [
        {"dial": "direct", "host": host, "port": port}
        for host in (
            zone.WEB,
            zone.WEB6,
            zone.METADATA,
            zone.PRIVATE,
            "www.example.org",
        )
        for port in (53, 80, 443)
    ]
    async with make(network, kind=kind) as workspace:
        met = await probe(workspace, [*jobs, {"dial": "proxy"}])
        assert {each.end for each in met[:-1]} <= {
            "Network is unreachable",
            "no such name",
        }
        assert met[-1].end == "Connection refused"
        env = await workspace.run("env")
    assert "proxy" not in env.stdout.lower()
    assert internet.connections == []
    assert internet.names.questions == []
