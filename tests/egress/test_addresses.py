"""A name is only as good as the addresses that it leads to."""

from __future__ import annotations

import pytest
from tests.egress.inside import curl, probe, probe_one
from tests.egress.lab import zone
from tests.egress.test_rules import over_proxy, over_socks

pytestmark = pytest.mark.anyio

NEAR = (
    "metadata.evil.test",
    "private.evil.test",
    "loopback.evil.test",
    "loopback6.evil.test",
    "mapped.evil.test",
    "nat64.evil.test",
    "unique-local.evil.test",
    "mixed.evil.test",
)
EVERYTHING = ("0.0.0.0/0", "::/0", "*")


@pytest.mark.parametrize("network", ["open", [*NEAR], [*NEAR, *EVERYTHING]], ids=str)
async def test_names_of_what_is_near(internet, make, kind, network):
    async with make(network, kind=kind) as workspace:
        met = await probe(workspace, [over_proxy(name) for name in NEAR])
    assert [each.denied for each in met] == [True] * len(NEAR), met
    assert "169.254.169.254" in met[0].body
    assert internet.connections == []
    # Each was resolved once, to find that out.
    assert [internet.names.asked(name) for name in NEAR] == [1] * len(NEAR)


async def test_what_is_near_can_be_named(internet, make, kind):
    rules = ["private.evil.test", f"{zone.PRIVATE}:8080", "10.0.0.0/8"]
    hosts = {
        "private.evil.test": 200,
        "10.0.0.5": 200,
        "10.200.0.1": 200,
        "10.0.0.5:8080": 200,
        "10.0.0.6:8080": 403,
        "10.0.0.5:8000": 403,
        "metadata.evil.test": 403,
        "11.0.0.1": 403,
    }
    async with make(rules, kind=kind) as workspace:
        met = await probe(workspace, [over_proxy(host) for host in hosts])
    assert [each.status for each in met] == list(hosts.values())
    assert [(seen.address, seen.port) for seen in internet.connections] == [
        ("10.0.0.5", 80),
        ("10.0.0.5", 80),
        ("10.200.0.1", 80),
        ("10.0.0.5", 8080),
    ]


async def test_the_machine_is_not_reached_by_its_own_address(internet, make, kind):
    hosts = ("own.example.org", zone.OWN)
    for network in ("open", [*hosts[:1], "93.184.215.0/24"]):
        async with make(network, kind=kind) as workspace:
            met = await probe(workspace, [over_proxy(host) for host in hosts])
        assert [each.denied for each in met] == [True, True], met
    assert "this machine's" in met[0].body
    assert internet.connections == []
    async with make([*hosts], kind=kind) as workspace:
        met = await probe(workspace, [over_proxy(host) for host in hosts])
    assert [each.status for each in met] == [200, 200]


async def test_addresses_are_caught(internet, make):
    async with make(["10.0.0.0/8:8080"]) as workspace:
        near = await curl(workspace, "--noproxy", "*", f"http://{zone.PRIVATE}:8080/")
        other = await curl(workspace, "--noproxy", "*", f"http://{zone.PRIVATE}/")
    assert near.exit_code == 0, near.stderr
    assert other.exit_code != 0
    assert [(seen.address, seen.port) for seen in internet.connections] == [
        (zone.PRIVATE, 8080)
    ]
    assert (other.denials[0].host, other.denials[0].port) == (zone.PRIVATE, 80)


async def test_addresses_of_ipv6_are_caught(internet, ipv6, make):
    async with make([zone.WEB6]) as workspace:
        named = await curl(workspace, "--noproxy", "*", f"http://[{zone.WEB6}]/")
        far = await curl(workspace, "--noproxy", "*", "http://[2606:2800:220:1::2]/")
    assert named.exit_code == 0, named.stderr
    assert far.exit_code != 0
    assert [seen.address for seen in internet.connections] == [zone.WEB6]
    assert far.denials[0].host == "2606:2800:220:1::2"


async def test_a_name_that_changes_its_mind(internet, make, kind):
    turns = [(zone.WEB,), (zone.PRIVATE,)] * 4
    internet.names.script("turn.evil.test", turns)
    async with make(["turn.evil.test"], kind=kind) as workspace:
        met = await probe(workspace, [over_proxy("turn.evil.test") for _ in turns])
    assert [each.status for each in met] == [200, 403] * 4
    assert [seen.address for seen in internet.connections] == [zone.WEB] * 4
    # Looked at and connected to are one and the same answer.
    assert internet.names.asked("turn.evil.test") == len(turns)


async def test_a_name_that_means_two_things(internet, make, kind):
    internet.names.script(
        "two.evil.test", [(zone.WEB, "127.0.0.1"), (zone.METADATA, zone.WEB)]
    )
    async with make(["two.evil.test"], kind=kind) as workspace:
        met = await probe(workspace, [over_proxy("two.evil.test")] * 2)
    assert [each.denied for each in met] == [True, True]
    assert internet.connections == []


async def test_an_address_that_is_denied(internet, make, kind):
    async with make(["www.example.org", f"!{zone.WEB}"], kind=kind) as workspace:
        outcome = await probe_one(workspace, **over_proxy("www.example.org"))
    assert outcome.denied
    assert f"!{zone.WEB}" in outcome.said
    assert internet.connections == []


async def test_what_cannot_be_reached(internet, make, kind):
    rules = ["nowhere.example.org", f"www.example.org:{zone.CLOSED_PORT}"]
    hosts = ["nowhere.example.org", f"www.example.org:{zone.CLOSED_PORT}"]
    async with make(rules, kind=kind) as workspace:
        met = await probe(workspace, [over_proxy(host) for host in hosts])
        (over,) = await probe(workspace, [over_socks("nowhere.example.org")])
        result = await curl(workspace, f"http://{hosts[1]}/", f"https://{hosts[0]}/")
    assert [each.status for each in met] == [502, 502]
    assert "HTTP/1.1 502 isobox cannot reach" in met[0].said
    assert [str(denial) for denial in result.denials] == [
        f"{hosts[1]} (cannot reach {hosts[1]} ({zone.WEB}: Connection refused))",
        f"{hosts[0]}:443 ({hosts[0]} does not resolve: Name or service not known)",
    ]
    assert {denial.kind for denial in result.denials} == {"unreachable"}
    assert "nowhere.example.org" in met[0].body
    assert "Connection refused" in met[1].body
    assert over.said == "socks 4"


async def test_no_search_domain_is_asked(internet, make):
    names = ("nowhere.example.org", "nowhere", "www.example.org")
    async with make(list(names)) as workspace:
        met = await probe(workspace, [over_proxy(host) for host in names])
    assert [each.status for each in met] == [502, 502, 200]
    assert {name for name, _ in internet.names.questions} == set(names)


async def test_what_the_host_names_itself_is_not_asked(internet, make, kind):
    async with make(["listed.test", "www.example.org"], kind=kind) as workspace:
        met = await probe_one(workspace, **over_proxy("listed.test"))
    assert met.status == 200
    assert internet.names.questions == []
    (connection,) = internet.connections
    assert connection.address == zone.WEB


async def test_ipv6_alone(internet, ipv6, make, kind):
    async with make(["v6.example.org", "both.example.org"], kind=kind) as workspace:
        met = await probe(
            workspace, [over_proxy("v6.example.org"), over_proxy("both.example.org")]
        )
    assert [each.status for each in met] == [200, 200]
    first, second = internet.connections
    assert first.address == zone.WEB6
    assert second.address in (zone.WEB, zone.WEB6)


SERVICE = """
import http.server, threading, urllib.request
class Own(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the sandbox's own")
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 8000), Own)
threading.Thread(target=server.serve_forever, daemon=True).start()
for host in ("localhost", "127.0.0.1"):
    print(urllib.request.urlopen(f"http://{host}:8000/", timeout=5).read().decode())
"""


async def test_localhost_is_the_sandboxes(internet, make, kind):
    async with make("open", kind=kind) as workspace:
        result = await workspace.run(["python3", "-c", SERVICE], timeout=20)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "the sandbox's own\n" * 2
    assert internet.connections == []
