"""Requests that mean one thing to the filter and another to a server."""

from __future__ import annotations

import pytest
from tests.egress.inside import probe, probe_one
from tests.egress.lab import zone

pytestmark = pytest.mark.anyio

HOST = "Host: www.example.org"
#: What must never be taken for a request of its own.
HIDDEN = "GET /hidden HTTP/1.1\r\nHost: evil.test\r\n\r\n"
SIZE = len(HIDDEN)


def framed(*lines: str, body: str = "") -> str:
    """Return headers, and what comes after a request that they frame somehow."""
    return "\r\n".join((*lines, "", body)) + HIDDEN


CHUNKED = "Transfer-Encoding: chunked"
LAST = "0\r\n\r\n"
REFUSED = {
    "length and chunked": framed(HOST, f"Content-Length: {SIZE}", CHUNKED, body=LAST),
    "chunked and length": framed(HOST, CHUNKED, "Content-Length: 4", body="1\r\na\r\n"),
    "two lengths": framed(HOST, "Content-Length: 0", f"Content-Length: {SIZE}"),
    "a list of lengths": framed(HOST, f"Content-Length: 0, {SIZE}"),
    "a signed length": framed(HOST, "Content-Length: +0"),
    "a negative length": framed(HOST, "Content-Length: -1"),
    "a length in hexadecimal": framed(HOST, "Content-Length: 0x0"),
    "an endless length": framed(HOST, f"Content-Length: {'9' * 30}"),
    "an unknown coding": framed(HOST, "Transfer-Encoding: xchunked", body=LAST),
    "two codings": framed(HOST, CHUNKED, "Transfer-Encoding: identity", body=LAST),
    "chunked not last": framed(HOST, f"{CHUNKED}, identity", body=LAST),
    "a space before the colon": framed(HOST, "Transfer-Encoding : chunked", body=LAST),
    "a tab before the colon": framed(HOST, "Content-Length\t: 0"),
    "a vertical tab": framed(HOST, "Transfer-Encoding:\x0bchunked", body=LAST),
    "a NUL in a value": framed(HOST, "X-A: a\0b"),
    "a NUL in a name": framed(HOST, "X\0A: a"),
    "a bare CR in a value": framed(HOST, f"X-A: a\r{CHUNKED}"),
    "a bare CR before a name": framed(HOST, "\rX-A: a"),
    "a line without a colon": framed(HOST, "X-A"),
    "a line that goes on before the first": framed(" X-A: a", HOST),
    "two hosts": framed(HOST, "Host: evil.test"),
    "one host twice": framed(HOST, HOST),
    "another host": framed("Host: evil.test"),
    "a host with a path": framed("Host: www.example.org/evil.test"),
    "a host with a user": framed("Host: www.example.org@evil.test"),
    "no host": framed("X-A: a"),
}
CHUNKS = {
    "a size in 0x": "0x2\r\nab\r\n0\r\n\r\n",
    "a signed size": "+2\r\nab\r\n0\r\n\r\n",
    "a negative size": "-2\r\nab\r\n0\r\n\r\n",
    "an endless size": f"{'f' * 40}\r\nab\r\n0\r\n\r\n",
    "a size that wraps": f"{'0' * 16}100000000\r\nab\r\n0\r\n\r\n",
    "no size": "\r\nab\r\n0\r\n\r\n",
    "too much data": "1\r\nab\r\n0\r\n\r\n",
    "a bare CR": "2\rab\r\n0\r\n\r\n",
}
LINES = {
    "no target": "GET HTTP/1.1",
    "two spaces": "GET  http://www.example.org/ HTTP/1.1",
    "three words": "GET http://www.example.org/ a HTTP/1.1",
    "a tab": "GET\thttp://www.example.org/ HTTP/1.1",
    "a bare CR": "GET http://www.example.org/\r HTTP/1.1",
    "a NUL": "GET http://www.example.org/\0 HTTP/1.1",
    "no version": "GET http://www.example.org/",
    "another protocol": "GET http://www.example.org/ ICAP/1.0",
    "a space first": " GET http://www.example.org/ HTTP/1.1",
    "a method that is none": "G(T http://www.example.org/ HTTP/1.1",
    "https": "GET https://www.example.org/ HTTP/1.1",
    "ftp": "GET ftp://www.example.org/ HTTP/1.1",
    "a user": "GET http://evil.test@www.example.org/ HTTP/1.1",
    "a port that is none": "GET http://www.example.org:99999/ HTTP/1.1",
    "no port": "CONNECT www.example.org HTTP/1.1",
    "a URL to connect to": "CONNECT http://www.example.org:443 HTTP/1.1",
    "port 0": "CONNECT www.example.org:0 HTTP/1.1",
    "only a path": "GET / HTTP/1.1",
    "only a star": "OPTIONS * HTTP/1.1",
}


def through_proxy(rest: str) -> dict:
    line = "POST http://www.example.org/shown HTTP/1.1\r\n"
    return {"dial": "proxy", "send": [line + rest]}


def straight(rest: str) -> dict:
    where = {"dial": "direct", "host": "www.example.org", "port": 80}
    return {**where, "send": ["POST /shown HTTP/1.1\r\n" + rest]}


WAYS = {"proxy": through_proxy, "direct": straight}
GOOD = f"{HOST}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


async def test_what_has_two_meanings(internet, make, way):
    async with make(["www.example.org", "evil.test"]) as workspace:
        met = await probe(workspace, [way(rest) for rest in REFUSED.values()])
        for name, outcome in zip(REFUSED, met, strict=True):
            assert outcome.status in (400, 403, 501), (name, outcome)
            assert outcome.said.count("HTTP/1.1 ") == 1, (name, outcome)
        # No server has seen any of it.
        assert internet.requests == []
        assert internet.received.strip(b"\n") == b""
        assert (await probe_one(workspace, **way(GOOD))).status == 200


async def test_chunks_that_are_none(internet, make, way):
    head = f"{HOST}\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with make(["www.example.org", "evil.test"]) as workspace:
        jobs = [way(head + chunks + HIDDEN) for chunks in CHUNKS.values()]
        met = await probe(workspace, jobs)
        for name, outcome in zip(CHUNKS, met, strict=True):
            assert outcome.status != 200, (name, outcome)
        assert (await probe_one(workspace, **way(GOOD))).status == 200
    # The head may have gone on before; whole requests there were none but one.
    assert [request.target for request in internet.requests] == ["/shown"]
    assert b"hidden" not in internet.received


async def test_lines_that_are_none(internet, make):
    async with make(["www.example.org", "evil.test"]) as workspace:
        jobs = [
            {"dial": "proxy", "send": [f"{line}\r\n{HOST}\r\n\r\n"]}
            for line in LINES.values()
        ]
        met = await probe(workspace, jobs)
    for name, outcome in zip(LINES, met, strict=True):
        assert outcome.status in (400, 403, 501, 505), (name, outcome)
    assert internet.connections == []


ONE = f"{HOST}\r\nConnection: close\r\nContent-Length: 5\r\n"


async def test_what_is_odd_but_clear_is_written_anew(internet, make, way):
    chunked = f"{HOST}\r\nConnection: close\r\nTransfer-Encoding: CHUNKED\r\n"
    odd = [
        f"{ONE}X-Folded: a\r\n b\r\n\r\nhello",
        f"{ONE}X-Bare: a\r\n\r\nhello".replace("\r\n", "\n"),
        f"{ONE}Content-Length: 5\r\n\r\nhello",
        f"{ONE}X-Empty:\r\n\r\nhello",
        f"{ONE.upper()}\r\nhello",
        f"{chunked}\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    ]
    async with make(["www.example.org"]) as workspace:
        met = await probe(workspace, [way(rest) for rest in odd])
    for rest, outcome in zip(odd, met, strict=True):
        assert outcome.status in (200, 400), (rest, outcome)
    for request in internet.requests:
        assert (request.host, request.target) == ("www.example.org", "/shown")
        assert request.body == b"hello"
    assert b"\r\n b" not in internet.received
    assert internet.received.count(b"\n") == internet.received.count(b"\r\n") + max(
        0, len(internet.connections) - 1
    )


async def test_headers_of_a_connection_stay_there(internet, make):
    rest = (
        f"{HOST}\r\nProxy-Authorization: Basic dTpw\r\nKeep-Alive: 5\r\n"
        "Proxy-Connection: keep-alive\r\nX-Hop: 1\r\nX-Kept: yes\r\nTE: trailers\r\n"
        "Connection: close, X-Hop, Content-Length, Host\r\nContent-Length: 2\r\n\r\nok"
    )
    async with make(["www.example.org"]) as workspace:
        outcome = await probe_one(workspace, **through_proxy(rest))
    assert outcome.status == 200
    (request,) = internet.requests
    names = {name for name, _ in request.headers}
    assert {"host", "x-kept", "content-length"} <= names
    dropped = {"proxy-authorization", "proxy-connection", "x-hop", "keep-alive", "te"}
    assert not names & dropped
    assert request.body == b"ok"


def get(host: str, path: str) -> str:
    return f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n"


async def test_requests_one_after_another(internet, make):
    """Each of them is decided by itself, also when they arrive at once."""
    asked = [get("www.example.org", f"/{number}") for number in range(20)]
    asked.insert(10, get("evil.test", "/hidden"))
    async with make(["www.example.org"]) as workspace:
        outcome = await probe_one(workspace, dial="proxy", send=["".join(asked)])
    assert outcome.said.count("HTTP/1.1 200") == 10
    assert outcome.said.count("HTTP/1.1 403") == 1
    assert "isobox denies evil.test:80" in outcome.said
    assert [request.target for request in internet.requests] == [
        f"/{n}" for n in range(10)
    ]
    assert {seen.address for seen in internet.connections} == {zone.WEB}


async def test_one_connection_to_several_hosts(internet, make):
    hosts = ["www.example.org", "other.example.org"] * 3
    asked = [get(host, "/") for host in hosts]
    asked[-1] = asked[-1].replace("\r\n", "\r\nConnection: close\r\n", 1)
    async with make(["www.example.org", "other.example.org"]) as workspace:
        outcome = await probe_one(workspace, dial="proxy", send=["".join(asked)])
    assert outcome.said.count("HTTP/1.1 200") == 6
    assert [request.host for request in internet.requests] == hosts


async def test_a_tunnel_is_no_proxy(internet, make):
    """What comes after CONNECT goes to its host, whatever it says."""
    inner = get("evil.test", "/hidden")
    job = {"dial": "connect", "host": "www.example.org", "port": 80, "send": [inner]}
    early = (
        "CONNECT www.example.org:80 HTTP/1.1\r\nHost: www.example.org:80\r\n\r\n"
        + inner
    )
    async with make(["www.example.org", "evil.test"]) as workspace:
        met = await probe(workspace, [job, {"dial": "proxy", "send": [early]}])
    assert met[0].status in (400, 403)
    assert "HTTP/1.1 200 OK" not in met[1].said
    assert internet.requests == []


GIANTS = {
    "a header of a MiB": f"{HOST}\r\nX-A: {'a' * (1 << 20)}\r\n\r\n",
    "headers without end": f"{HOST}\r\n" + "X-A: a\r\n" * 200_000 + "\r\n",
    "a name of a MiB": f"{HOST}\r\n{'a' * (1 << 20)}: a\r\n\r\n",
    "a MiB of folds": f"{HOST}\r\nX-A: a\r\n" + " a\r\n" * (1 << 18) + "\r\n",
    "a MiB of empty lines": "\r\n" * (1 << 19),
}


@pytest.mark.parametrize("rest", GIANTS.values(), ids=GIANTS)
async def test_giants(internet, make, way, rest):
    async with make(["www.example.org"]) as workspace:
        outcome = await probe_one(workspace, **way(rest))
        assert outcome.status in (400, 413, 414, 431) or outcome.end == "reset", outcome
        assert (await probe_one(workspace, **way(GOOD))).status == 200
    assert [request.target for request in internet.requests] == ["/shown"]


async def test_a_giant_target(internet, make):
    targets = ["/" + "a" * (1 << 20), "/" + "a" * (1 << 15)]
    async with make(["www.example.org"]) as workspace:
        jobs = [
            {"dial": "proxy", "send": [get("www.example.org", each)]}
            for each in targets
        ]
        jobs[1]["want"] = "}"
        huge, large = await probe(workspace, jobs)
    assert huge.status in (400, 414, 431) or huge.end == "reset"
    assert large.status == 200
    assert [request.target for request in internet.requests] == targets[1:]


SOCKS = {
    "version 4": "\x04\x01\x00\x50\x5d\xb8\xd7\x0e\x00",
    "version 4a": "\x04\x01\x00\x50\x00\x00\x00\x01\x00www.example.org\x00",
    "no methods": "\x05\x00",
    "only unknown methods": "\x05\x02\x01\x80",
    "to listen": "\x05\x01\x00\x05\x02\x00\x01\x5d\xb8\xd7\x0e\x00\x50",
    "datagrams": "\x05\x01\x00\x05\x03\x00\x01\x5d\xb8\xd7\x0e\x00\x50",
    "no such kind of address": "\x05\x01\x00\x05\x01\x00\x02\x5d\xb8\xd7\x0e\x00\x50",
    "an empty name": "\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50",
    "port 0": "\x05\x01\x00\x05\x01\x00\x03\x0fwww.example.org\x00\x00",
    "cut short": "\x05\x01\x00\x05\x01\x00\x03\xffwww",
    "a version inside": "\x05\x01\x00\x04\x01\x00\x01\x5d\xb8\xd7\x0e\x00\x50",
}


async def test_socks_that_is_none(internet, make):
    jobs = [
        {"dial": "proxy", "send": [words], "timeout": 2} for words in SOCKS.values()
    ]
    good = {"dial": "socks5", "host": "www.example.org", "port": 80}
    async with make(["www.example.org"]) as workspace:
        met = await probe(workspace, jobs, len(jobs))
        for name, outcome in zip(SOCKS, met, strict=True):
            waits = name == "cut short" and outcome.end == "timeout"
            assert waits or outcome.end in ("end", "reset"), (name, outcome)
            assert "\x05\x00\x00" not in outcome.said
        assert internet.connections == []
        outcome = await probe_one(workspace, **good, send=["GET / HTTP/1.1\r\n" + GOOD])
    assert outcome.status == 200
