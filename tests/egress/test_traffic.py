"""What is allowed arrives unchanged, whatever it is."""

from __future__ import annotations

import hashlib
import json

import pytest
from tests.egress.inside import curl, probe, probe_one, run, told
from tests.egress.lab import zone

from isobox import MemorySink, NetworkRule
from isobox.errors import StorageError

pytestmark = pytest.mark.anyio

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH")
#: Ways that a request can take: through the proxy or past it, with TLS or not,
#: and read by the filter or not.
ROUTES = {
    "plain": ("http", (), False),
    "plain, caught": ("http", ("--noproxy", "*"), False),
    "TLS": ("https", (), False),
    "TLS, caught": ("https", ("--noproxy", "*"), False),
    "TLS, read": ("https", (), True),
    "TLS, read, caught": ("https", ("--noproxy", "*"), True),
}


class Route:
    """A workspace's options, and what curl is told there."""

    def __init__(self, name: str, trust) -> None:
        self.scheme, arguments, read = ROUTES[name]
        self.arguments = ("--max-time", "60", *arguments)
        names = ("www.example.org", "other.example.org")
        rules = [NetworkRule(host=host, methods=METHODS) for host in names]
        self.options = {
            "network": rules if read else names,
            "env": {} if read else trust,
        }

    def url(self, path: str) -> str:
        return f"{self.scheme}://www.example.org{path}"


@pytest.fixture(params=ROUTES)
def route(request, trust):
    return Route(request.param, trust)


@pytest.fixture
async def workspace(make, route):
    async with make(**route.options) as opened:
        yield opened


async def test_download(internet, workspace, route):
    block = bytes(range(256)) * 1024
    for size in (0, 1, 65536, 20_000_000):
        url = route.url(f"/big?bytes={size}")
        result = await run(workspace, "curl", "-sS", "-o", "big", *route.arguments, url)
        assert result.exit_code == 0, result.stderr
        digest = await run(workspace, "sha256sum", "big")
        wanted = (block * (size // len(block) + 1))[:size]
        assert digest.stdout.split()[0] == hashlib.sha256(wanted).hexdigest()


@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
async def test_upload(internet, workspace, route, chunked):
    data = bytes(range(251)) * 20_000
    await workspace.write("big", data)
    how = (
        ("-T", "big")
        if not chunked
        else ("-T", "big", "-H", "Transfer-Encoding: chunked")
    )
    answer = await told(workspace, *how, *route.arguments, route.url("/up"))
    assert (answer["method"], answer["length"]) == ("PUT", len(data))
    assert answer["sha256"] == hashlib.sha256(data).hexdigest()


async def test_chunks_and_no_size(internet, workspace, route):
    pieces = await curl(workspace, *route.arguments, route.url("/chunked?pieces=1000"))
    assert pieces.exit_code == 0
    body = "".join(f"piece {number}\n" for number in range(1000))
    assert body in pieces.stdout
    ended = await curl(
        workspace, *route.arguments, route.url("/until-close?bytes=300000")
    )
    assert ended.exit_code == 0
    assert ended.stdout.endswith("\r\n\r\n" + "x" * 300000)


async def test_methods(internet, workspace, route):
    url = route.url("/a?b=%2F&c=d%00")
    for method in METHODS:
        how = ("-I",) if method == "HEAD" else ("-X", method)
        result = await curl(workspace, *how, *route.arguments, url)
        assert result.exit_code == 0, (method, result.stderr)
    asked = [(request.method, request.target) for request in internet.requests]
    assert asked == [(method, "/a?b=%2F&c=d%00") for method in METHODS]


async def test_continue(internet, workspace, route):
    await workspace.write("big", b"x" * 2_000_000)
    answer = await told(
        workspace,
        "-H",
        "Expect: 100-continue",
        "--expect100-timeout",
        "30",
        "-d",
        "@big",
        *route.arguments,
        route.url("/"),
    )
    assert answer["length"] == 2_000_000


async def test_a_connection_is_kept(internet, workspace, route):
    urls = [route.url(f"/{number}") for number in range(5)]
    result = await run(workspace, "curl", "-sS", *route.arguments, *urls)
    assert result.exit_code == 0, result.stderr
    assert [request.target for request in internet.requests] == [
        f"/{n}" for n in range(5)
    ]
    assert len(internet.connections) == 1


async def test_headers_arrive_as_they_are(internet, workspace, route):
    sent = {
        "X-Empty": "",
        "X-Long": "a" * 8000,
        "X-Odd": "\"a\", b;c='d' \t~",
        "Cookie": "a=b; c=d",
    }
    arguments = []
    for name, value in sent.items():
        arguments += ["-H", f"{name}: {value}" if value else f"{name};"]
    assert await told(workspace, *arguments, *route.arguments, route.url("/"))
    (request,) = internet.requests
    for name, value in sent.items():
        assert request.header(name.lower()) == [value]


async def test_a_redirect_is_no_way_round(internet, workspace, route):
    for target in (
        "http://evil.test/",
        "https://evil.test/",
        f"http://{zone.METADATA}/",
    ):
        result = await curl(
            workspace, "-L", *route.arguments, route.url(f"/redirect?to={target}")
        )
        assert result.exit_code != 0 or "X-Isobox-Denied" in result.stdout
    assert {seen.address for seen in internet.connections} == {zone.WEB}
    good = f"{route.scheme}://other.example.org/"
    result = await curl(
        workspace, "-L", *route.arguments, route.url(f"/redirect?to={good}")
    )
    assert result.exit_code == 0


async def test_what_ends_early_is_not_taken_for_whole(internet, workspace, route):
    result = await curl(workspace, *route.arguments, route.url("/cut?bytes=100"))
    assert result.exit_code in (18, 56)


UPGRADE = (
    "GET /chat HTTP/1.1\r\nHost: www.example.org\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Version: 13\r\n\r\n"
)
SOCKETS = {
    "proxy": {"dial": "proxy"},
    "connect": {"dial": "connect", "port": 80},
    "socks5": {"dial": "socks5", "port": 80},
    "direct": {"dial": "direct", "port": 80},
    "connect, TLS": {"dial": "connect", "port": 443, "tls": "www.example.org"},
    "direct, TLS": {"dial": "direct", "port": 443, "tls": "www.example.org"},
}


@pytest.mark.parametrize("read", [False, True], ids=["", "read"])
@pytest.mark.parametrize("way", SOCKETS)
async def test_websocket(internet, make, way, read):
    rule = NetworkRule(host="www.example.org", methods=("GET",) if read else None)
    opening = UPGRADE
    if way == "proxy":
        opening = UPGRADE.replace("/chat", "http://www.example.org/chat")
    job = {**SOCKETS[way], "host": "www.example.org"}
    frames = ["\x81\x02hi", 0.2, "\x82\x03\x00\xff\x01", "\x88\x00"]
    async with make([rule]) as workspace:
        outcome = await probe_one(
            workspace, **job, send=[opening, 0.2, *frames], want="\x88\x00"
        )
    assert outcome.end == "want"
    head, _, echoed = outcome.said.partition("\r\n\r\n")
    assert outcome.status == 101
    assert "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in head.lower()
    assert echoed == "\x81\x02hi\x82\x03\x00\xff\x01\x88\x00"


TUNNELS = ("connect", "socks5", "direct")


@pytest.mark.parametrize("how", TUNNELS)
async def test_a_server_that_speaks_first(internet, make, how):
    banner = zone.BANNER.decode()
    ssh = {"dial": how, "host": "git.example.org", "port": zone.BANNER_PORT}
    async with make([f"git.example.org:{zone.BANNER_PORT}"]) as workspace:
        met = await probe(
            workspace,
            [
                {**ssh, "want": banner},
                {**ssh, "send": ["SSH-2.0-client\r\n", None]},
                {**ssh, "host": "evil.test"},
            ],
        )
    assert (met[0].end, met[0].said) == ("want", banner)
    assert (met[1].end, met[1].said) == ("end", banner + "SSH-2.0-client\r\n")
    assert met[2].end in ("refused", "no such name")
    assert {seen.address for seen in internet.connections} == {zone.FORGE}


@pytest.mark.parametrize("how", TUNNELS)
async def test_a_client_that_speaks_first(internet, make, how):
    echo = {"dial": how, "host": "www.example.org", "port": zone.ECHO_PORT}
    words = "\x00\x01\xff" + "any protocol at all\n" * 1000
    async with make([f"www.example.org:{zone.ECHO_PORT}"]) as workspace:
        met = await probe(
            workspace,
            [
                {**echo, "send": [words, 0.1, "more", None]},
                {**echo, "send": [None]},
                {**echo, "port": zone.CLOSED_PORT, "timeout": 3},
            ],
        )
    assert (met[0].end, met[0].said) == ("end", words + "more")
    assert (met[1].end, met[1].said) == ("end", "")
    assert met[2].end in (
        "refused",
        "reset",
        "Network is unreachable",
        "Connection refused",
    )
    assert {seen.port for seen in internet.connections} == {zone.ECHO_PORT}


async def test_a_server_that_is_slow(internet, make, kind):
    async with make(["www.example.org"], kind=kind) as workspace:
        answer = await told(workspace, "http://www.example.org/slow?seconds=2")
    assert answer["target"] == "/slow?seconds=2"


async def test_many_at_once_come_through(internet, make, kind):
    script = (
        "for i in $(seq 40); do curl -sS -o $i "
        "'http://www.example.org/big?bytes=500000' & done; wait; cat $(seq 40) | wc -c"
    )
    async with make(["www.example.org"], kind=kind) as workspace:
        result = await workspace.run(script, timeout=60)
    assert result.stdout.strip() == "20000000", result.stderr


async def test_a_port_of_the_host(internet, make, kind):
    """What is exposed is that port, and only that."""
    async with make(
        "none" if kind == "caught" else ["www.example.org"], kind=kind
    ) as workspace:
        exposed = await workspace.expose_host_port(8000, inside=0)
        answer = await told(
            workspace, f"http://127.0.0.1:{exposed.port}/own", "--noproxy", "*"
        )
        other = await curl(workspace, "--noproxy", "*", "http://127.0.0.1:8080/")
        await exposed.aclose()
        after = await curl(
            workspace, "--noproxy", "*", f"http://127.0.0.1:{exposed.port}/"
        )
    assert (answer["address"], answer["port"]) == ("127.0.0.1", 8000)
    assert (other.exit_code, after.exit_code) == (7, 7)
    assert len(internet.connections) == 1


async def test_a_port_of_the_host_where_nothing_listens(internet, make, kind):
    network = "none" if kind == "caught" else ["www.example.org"]
    async with make(network, kind=kind) as workspace:
        exposed = await workspace.expose_host_port(zone.CLOSED_PORT, inside=0)
        assert repr(exposed) == f"<Exposed 127.0.0.1:{exposed.port} leads to port 81>"
        result = await curl(
            workspace, "--noproxy", "*", f"http://127.0.0.1:{exposed.port}/"
        )
        later = await workspace.run("true")
    assert [str(denial) for denial in result.denials] == [
        "127.0.0.1:81 (nothing listens at port 81 of the host: Connection refused)"
    ]
    assert later.denials == ()


async def test_a_port_that_is_taken_inside(make):
    async with make(["www.example.org:8080"]) as workspace:
        for port in (443, 8080):
            with pytest.raises(StorageError, match="give inside=, such as 8080: ports"):
                await workspace.expose_host_port(port)


async def test_what_was_read_is_reported(internet, make):
    """The bytes of each connection are on record; so is where it went."""
    sink = MemorySink()
    async with make(["www.example.org"], audit=sink) as workspace:
        await told(workspace, "-d", "x" * 5000, "http://www.example.org/")
    (number,) = [each["number"] for each in sink.records if each.get("op") == "connect"]
    (outcome,) = [
        each
        for each in sink.records
        if each["number"] == number and each["kind"] == "outcome"
    ]
    end = outcome["end"]
    assert end["address"] == zone.WEB
    assert 5000 < end["bytes_out"] < 6000
    assert 5000 < end["bytes_in"] < 7000
    assert json.dumps(sink.records)
