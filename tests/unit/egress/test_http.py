"""Requests that are read: what is sent on, what is refused, what comes back."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.egress.talk import PLACE, Server, Talk, ok, talk

from isobox._egress import http
from isobox._egress.headers import LARGEST_HEAD
from isobox._egress.http import LARGEST_SIGNED
from isobox._egress.place import BadRequestError, Place
from isobox._egress.placeholders import Finder, Scanner, make
from isobox._egress.redact import Redactor
from isobox._egress.sources import SecretError
from isobox.errors import LimitError, PolicyDeniedError, UnreachableError

pytestmark = pytest.mark.anyio

GET = b"GET /x?y HTTP/1.1\r\nHost: a.test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
)
SECURE = Place("a.test", 443, secure=True)


def request(*lines: bytes, head=b"GET / HTTP/1.1", host=b"Host: a.test") -> bytes:
    return b"\r\n".join([head, *([host] if host else []), *lines, b"", b""])


def answering(data: bytes):
    return lambda _: data


# -- what is sent on ---------------------------------------------------------


async def test_a_request_and_its_answer():
    met = await talk(GET)
    (told,) = met.requests
    assert (told.method, told.target, told.body) == (b"GET", b"/x?y", b"")
    assert told.headers == ((b"host", b"a.test"),)
    assert met.answers == [(200, {b"content-length": b"16"}, b"GET a.test /x?y ")]
    assert met.connected == [PLACE]
    assert met.refused == []


async def test_requests_follow_one_another_on_one_connection():
    met = await talk(GET + POST + CHUNKED + GET)
    assert [told.body for told in met.requests] == [b"", b"hello", b"hello", b""]
    assert met.statuses == [200] * 4
    assert len(met.connected) == 1


async def test_a_connection_that_is_there_is_used():
    met = await talk(GET, linked=True)
    assert len(met.connected) == 1
    assert met.statuses == [200]


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ([b"X-A: 1", b"x-a: 2"], [(b"x-a", b"1"), (b"x-a", b"2")]),
        ([b"Connection: close, X-Hop", b"X-Hop: 1", b"X-A: 1"], [(b"x-a", b"1")]),
        (
            [b"Connection: host, content-length", b"Content-Length: 0"],
            [(b"content-length", b"0")],
        ),
        ([b"Proxy-Authorization: Basic eDp5", b"TE: trailers", b"Keep-Alive: 5"], []),
        (
            [
                b"Upgrade: h2c",
                b"Connection: Upgrade, HTTP2-Settings",
                b"HTTP2-Settings: x",
            ],
            [],
        ),
        ([b"X-Folded: a", b"  b"], [(b"x-folded", b"a b")]),
        ([b"Content-Length: 0, 0"], [(b"content-length", b"0")]),
        ([b"X-A: \xc3\xa9"], [(b"x-a", b"\xc3\xa9")]),
        ([b"Authorization: Bearer x", b"Connection: authorization"], []),
    ],
)
async def test_headers_that_go_on(lines, kept):
    met = await talk(request(*lines))
    assert met.requests[0].headers == ((b"host", b"a.test"), *kept)


@pytest.mark.parametrize(
    ("host", "place", "sent"),
    [
        (b"Host: A.Test.", PLACE, b"a.test"),
        (b"Host: a.test:80", PLACE, b"a.test"),
        (b"Host: a.test", Place("a.test", 8080), b"a.test:8080"),
        (b"Host: a.test:8080", Place("a.test", 8080), b"a.test:8080"),
        (b"Host: a.test:443", SECURE, b"a.test"),
        (b"Host: [2001:DB8:0::1]", Place("2001:db8::1", 80), b"[2001:db8::1]"),
        (b"Host: [2001:db8::1]:80", Place("2001:db8::1", 80), b"[2001:db8::1]"),
        (b"Host: 192.0.2.1", Place("192.0.2.1", 80), b"192.0.2.1"),
    ],
)
async def test_the_host_that_is_sent_is_the_one_that_was_allowed(host, place, sent):
    met = await talk(request(host=host), place=place)
    assert met.requests[0].header(b"host") == sent


@pytest.mark.parametrize(
    "host",
    [
        b"Host: b.test",
        b"Host: a.test:81",
        b"Host: a.test.b.test",
        b"Host: 192.0.2.1",
        b"Host: [::1]",
    ],
)
async def test_a_request_for_another_host_is_denied(host):
    met = await talk(request(host=host) + GET)
    assert met.requests == []
    assert met.statuses == [403]
    assert met.refused[0][0] is PolicyDeniedError
    assert met.answers[0][1][b"x-isobox-denied"] == b"host"


async def test_a_whole_target_is_for_the_host_too():
    met = await talk(
        request(head=b"GET http://a.test/x HTTP/1.1")
        + request(head=b"GET http://b.test/x HTTP/1.1", host=b"Host: b.test")
    )
    assert [told.target for told in met.requests] == [b"/x"]
    assert met.statuses == [200, 403]


async def test_options_of_the_server_itself():
    met = await talk(request(head=b"OPTIONS * HTTP/1.1"))
    assert met.requests[0].target == b"*"


# -- what is refused ---------------------------------------------------------

SMUGGLED = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(b"Content-Length: 6", b"Transfer-Encoding: chunked") + SMUGGLED, 400),
        (request(b"Transfer-Encoding: chunked", b"Content-Length: 6") + SMUGGLED, 400),
        (request(b"Content-Length: 1", b"Content-Length: 2") + b"xx", 400),
        (request(b"Content-Length: 1, 2") + b"xx", 400),
        (request(b"Content-Length: +1") + b"x", 400),
        (request(b"Content-Length: 0x1") + b"x", 400),
        (request(b"Content-Length: -1"), 400),
        (request(b"Content-Length: " + b"9" * 30), 400),
        (request(b"Content-Length:"), 400),
        (request(b"Transfer-Encoding: xchunked") + SMUGGLED, 501),
        (request(b"Transfer-Encoding: chunked, identity") + SMUGGLED, 501),
        (request(b"Transfer-Encoding: gzip, chunked") + SMUGGLED, 501),
        (request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x"), 501),
        (request(b"Transfer-Encoding : chunked") + SMUGGLED, 400),
        (request(b"Transfer-Encoding:\x0bchunked") + SMUGGLED, 400),
        (request(b"Transfer_Encoding\0: chunked") + SMUGGLED, 400),
        (request(b" Transfer-Encoding: chunked", host=b"") + SMUGGLED, 400),
        (request(b"X: a\rb"), 400),
        (request(b"X: a\0b"), 400),
        (request(b"no colon"), 400),
        (request(b": empty"), 400),
        (request(b"Host: a.test"), 400),
        (request(host=b""), 400),
        (request(host=b"Host:"), 400),
        (request(host=b"Host: a.test, b.test"), 400),
        (request(host=b"Host: a.test:"), 200),
        (request(host=b"Host: a.test:0"), 400),
        (request(host=b"Host: a.test:65536"), 400),
        (request(host=b"Host: a.test:000080"), 400),
        (request(host=b"Host: a.test:80:80"), 400),
        (request(host=b"Host: a.test:+80"), 400),
        (request(host=b"Host: u:p@a.test"), 400),
        (request(host=b"Host: a.test/x"), 400),
        (request(host=b"Host: 2001:db8::1"), 400),
        (request(host=b"Host: [a.test]"), 400),
        (request(host=b"Host: 0x7f.1"), 400),
        (request(host=b"Host: a\xc3\xa9.test"), 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
        (b"GET / HTTP/1.1 \r\nHost: a.test\r\n\r\n", 400),
        (b"GET /\x7f HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
        (b"GET\t/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
        (b"\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
        (b"\x16\3\1\2\0\1\0", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (request(head=b"GET /a#b HTTP/1.1"), 400),
        (request(head=b"GET a.test/ HTTP/1.1"), 400),
        (request(head=b"GET https://a.test/ HTTP/1.1"), 400),
        (request(head=b"GET ftp://a.test/ HTTP/1.1"), 400),
        (request(head=b"GET http://u@a.test/ HTTP/1.1"), 400),
        (request(head=b"GET http:///x HTTP/1.1"), 400),
        (request(head=b"CONNECT a.test:80 HTTP/1.1"), 400),
        (request(head=b"CONNECT / HTTP/1.1"), 400),
        (request(b"X: " + b"a" * LARGEST_HEAD), 431),
        (request(head=b"GET /" + b"a" * LARGEST_HEAD + b" HTTP/1.1"), 431),
    ],
)
async def test_what_servers_may_differ_about(data, status):
    met = await talk(data)
    assert met.statuses[:1] == [status]
    if status != 200:
        assert met.requests == []
        assert met.refused == [(BadRequestError, PLACE)]
        assert met.answers[0][1][b"connection"] == b"close"


@pytest.mark.parametrize(
    "chunks",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX0\r\n\r\n",
        b"5 x\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"g\r\n\r\n",
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"FFFFFFFFFFFFFFFFFFFFF\r\nhello",
        b"5\r\nhel",
        b"5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n",
        b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
    ],
)
async def test_a_body_in_malformed_pieces_is_never_whole(chunks):
    met = await talk(
        request(b"Transfer-Encoding: chunked", head=b"POST / HTTP/1.1") + chunks
    )
    assert met.requests == []
    assert met.statuses == [400]
    assert met.refused == [(BadRequestError, PLACE)]


async def test_what_a_parser_says_is_short():
    met = await talk(request(b"X \r" + b"a" * 60000))
    assert len(met.answers[0][2]) < 400


@pytest.mark.parametrize(
    ("reason", "phrase"),
    [
        ("no", b"isobox denies a.test:80: no (rule 'r')"),
        ("no\r\nX: y", b"isobox denies a.test:80: no??X: y (rule 'r')"),
        ("n\u00f6", b"isobox denies a.test:80: n? (rule 'r')"),
        ("n" * 9999, b"isobox denies a.test:80: " + b"n" * 175),
    ],
)
async def test_the_status_line_says_why(reason, phrase):
    async def refuse(*_):
        raise PolicyDeniedError(reason, rule="r")

    met = await talk(request(), prepare=refuse)
    assert met.said.partition(b"\r\n")[0] == b"HTTP/1.1 403 " + phrase


async def test_a_refusal_of_head_has_no_body():
    met = await talk(request(head=b"HEAD / HTTP/1.1", host=b"Host: b.test"))
    head, _, rest = met.said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")
    assert rest == b""


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (
            PolicyDeniedError("no", rule="!a.test"),
            403,
            "isobox denies a.test:80: no (rule '!a.test')\n",
        ),
        (
            UnreachableError("it is gone"),
            502,
            "isobox cannot reach a.test:80: it is gone\n",
        ),
        (LimitError("too much"), 429, "isobox limits a.test:80: too much\n"),
        (
            SecretError("secret K: /etc/key is gone", secret="K"),
            502,
            "isobox cannot get secret K for a.test:80\n",
        ),
    ],
)
async def test_a_refusal_is_told(error, status, text):
    async def prepare(*_):
        raise error

    met = await talk(GET + GET, prepare=prepare)
    ((said, headers, body),) = met.answers
    assert (said, body.decode()) == (status, text)
    assert headers[b"content-type"] == b"text/plain; charset=utf-8"
    assert met.connected == []
    assert met.client.ends == ["eof"]


@pytest.mark.parametrize("rule", ["a\r\nSet-Cookie: x", "\u20ac", " ", "", "a" * 9999])
async def test_a_rule_cannot_split_an_answer(rule):
    async def prepare(*_):
        raise PolicyDeniedError("no", rule=rule)

    met = await talk(GET, prepare=prepare)
    ((status, headers, _),) = met.answers
    assert status == 403
    assert b"set-cookie" not in headers
    assert 0 < len(headers[b"x-isobox-denied"]) <= 512


async def test_a_secret_that_no_header_can_hold_is_not_quoted():
    async def prepare(asked, _):
        return asked.with_header(b"Authorization", b"s3cr3t\r\nX: y")

    met = await talk(GET, prepare=prepare)
    assert met.statuses == [400]
    assert b"s3cr3t" not in met.said
    assert met.requests == []


# -- a proxy -----------------------------------------------------------------


async def test_a_proxy_goes_where_it_is_told():
    met = await talk(
        request(head=b"GET http://a.test/x?y HTTP/1.1")
        + request(head=b"GET http://B.test:81?z HTTP/1.1", host=b"Host: b.test:81")
        + request(head=b"GET HTTP://a.test HTTP/1.1"),
        place=None,
    )
    assert met.connected == [PLACE, Place("b.test", 81), PLACE]
    assert [told.target for told in met.requests] == [b"/x?y", b"/?z", b"/"]
    assert met.statuses == [200, 200, 200]


async def test_a_proxy_knows_what_an_address_stands_for():
    met = await talk(
        request(head=b"GET http://198.18.0.1/ HTTP/1.1", host=b"Host: 198.18.0.1"),
        place=None,
    )
    assert met.connected == [Place("named.test", 80)]
    assert met.requests[0].header(b"host") == b"named.test"


@pytest.mark.parametrize(
    "data",
    [
        GET,
        request(head=b"GET http://b.test/ HTTP/1.1"),
        request(head=b"GET http://a.test:81/ HTTP/1.1", host=b"Host: a.test:80"),
        request(head=b"GET https://a.test/ HTTP/1.1"),
        request(head=b"CONNECT a.test HTTP/1.1"),
        request(head=b"CONNECT a.test: HTTP/1.1"),
        request(head=b"CONNECT a.test:0 HTTP/1.1"),
        request(head=b"CONNECT a.test:65536 HTTP/1.1"),
        request(head=b"CONNECT http://a.test:80/ HTTP/1.1"),
        request(head=b"CONNECT u@a.test:80 HTTP/1.1"),
        request(head=b"CONNECT 2001:db8::1:80 HTTP/1.1"),
    ],
)
async def test_a_proxy_refuses(data):
    met = await talk(data, place=None)
    assert met.statuses == [400]
    assert (met.connected, met.tunnels) == ([], [])
    assert met.refused == [(BadRequestError, None)]


@pytest.mark.parametrize(
    ("target", "there"),
    [
        (b"a.test:443", ("a.test", 443)),
        (b"A.Test.:22", ("a.test", 22)),
        (b"[2001:DB8::1]:443", ("2001:db8::1", 443)),
        (b"[::ffff:192.0.2.1]:443", ("192.0.2.1", 443)),
    ],
)
async def test_a_tunnel(target, there):
    head = request(b"Content-Length: 3", head=b"CONNECT " + target + b" HTTP/1.1")
    met = await talk(head + b"\x16\3\1 and more", place=None)
    assert met.tunnels == [(*there, b"\x16\3\1 and more")]
    assert met.said == b""


async def test_a_tunnel_that_is_denied():
    met = await talk(request(head=b"CONNECT denied.test:443 HTTP/1.1"), place=None)
    assert met.statuses == [403]
    assert met.refused == [(PolicyDeniedError, Place("denied.test", 443, secure=True))]


@pytest.mark.parametrize(("host", "status"), [(b"denied", 403), (b"gone", 502)])
async def test_a_proxy_tells_why_not(host, status):
    data = b"GET http://%s.test/ HTTP/1.0\r\n\r\n" % host
    met = await talk(data, place=None)
    assert met.statuses == [status]


# -- answers -----------------------------------------------------------------


async def test_an_answer_without_a_length_ends_with_the_connection():
    data = b"HTTP/1.0 200 OK\r\n\r\nhello"
    met = await talk(GET, answer=answering(data), most=1)
    assert met.answers == [(200, {b"transfer-encoding": b"chunked"}, b"hello")]


async def test_an_old_client_gets_no_chunks():
    data = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    met = await talk(b"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n", answer=answering(data))
    assert met.answers == [(200, {b"connection": b"close"}, b"hello")]


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        (b"HEAD / HTTP/1.1", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        (b"GET / HTTP/1.1", b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"GET / HTTP/1.1", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
    ],
)
async def test_answers_without_a_body(head, answer):
    met = await talk(
        request(head=head) + GET,
        answer=lambda told: answer if told.target == b"/" else ok(told),
    )
    assert len(met.requests) == 2
    assert len(met.connected) == 1
    assert met.said.startswith(answer.partition(b"\r\n\r\n")[0])


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified", b"200 OK"])
async def test_what_follows_an_answer_is_not_the_next_one(status):
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    first = b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n%s" % (status, forged)
    met = await talk(
        request() + GET, answer=lambda told: first if told.target == b"/" else ok(told)
    )
    assert b"forged" not in met.said
    assert len(met.connected) == 2
    assert met.answers[1][0] == 200


async def test_answers_of_both_framings_have_one():
    data = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n"
    )
    met = await talk(GET, answer=answering(data))
    assert met.answers == [(200, {b"transfer-encoding": b"chunked"}, b"hello")]


async def test_hop_by_hop_headers_of_an_answer_stay():
    data = (
        b"HTTP/1.1 200 OK\r\nConnection: X-Hop, close, content-length\r\nX-Hop: 1\r\n"
        b"Keep-Alive: 5\r\nProxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nok"
    )
    met = await talk(GET, answer=answering(data), most=1)
    assert met.answers == [(200, {b"content-length": b"2"}, b"ok")]


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        None,
    ],
    ids=lambda data: repr(data)[:30],
)
async def test_what_is_no_answer_is_a_bad_gateway(data):
    met = await talk(POST, answer=answering(data))
    assert met.statuses == [502]
    assert met.refused == [(UnreachableError, PLACE)]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
    ],
)
async def test_part_of_an_answer_does_not_pass_for_the_whole(data):
    met = await talk(POST, answer=answering(data), most=1)
    assert met.client.ends == ["abort"]
    assert met.refused == [(UnreachableError, PLACE)]
    assert not met.said.endswith(b"0\r\n\r\n")


class Breaking(Server):
    async def receive(self):
        data = await self.said.get()
        if not data:
            raise ConnectionResetError
        return data


async def test_a_broken_connection_is_no_end_of_an_answer():
    data = b"HTTP/1.0 200 OK\r\n\r\nhello"
    met = await talk(POST, answer=answering(data), most=1, kind=Breaking)
    assert met.client.ends == ["abort"]
    assert b"hello" in met.said
    assert not met.said.endswith(b"0\r\n\r\n")


async def test_a_kept_connection_that_breaks_is_made_again():
    met = await talk(GET + GET, most=1, kind=Breaking)
    assert met.statuses == [200, 200]
    assert len(met.connected) == 2


async def test_hints_come_before_the_answer():
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 5\r\n\r\n"
    met = await talk(GET, answer=lambda told: hints * 2 + ok(told))
    assert met.said.startswith(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 2)
    assert met.statuses == [200]


async def test_an_old_client_gets_no_hints():
    hints = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    met = await talk(
        b"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n", answer=lambda told: hints + ok(told)
    )
    assert met.said.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(("hints", "status"), [(16, 200), (17, 502), (20000, 502)])
async def test_a_flood_of_hints_is_not_passed_on(hints, status):
    said = b"HTTP/1.1 100 Continue\r\n\r\n" * hints
    met = await talk(GET, answer=lambda told: said + ok(told))
    assert met.statuses == [status]
    assert met.said.count(b"100 Continue") == (16 if hints == 16 else 0)


# -- kept connections --------------------------------------------------------


@pytest.mark.parametrize("linked", [True, False])
async def test_a_connection_that_ended_meanwhile_is_made_again(linked):
    met = await talk(GET + GET + GET, most=1, linked=linked)
    assert met.statuses == [200, 200, 200]
    assert len(met.connected) == 3


async def test_a_request_with_a_body_is_not_repeated():
    met = await talk(GET + POST, most=1)
    assert len(met.requests) == 1
    assert met.statuses == [200, 502]


async def test_a_new_connection_that_ends_is_not_tried_again():
    met = await talk(GET, answer=answering(None))
    assert len(met.connected) == 1
    assert met.statuses == [502]


async def test_a_given_connection_that_had_ended_is_made_again():
    met = await talk(GET, answer=answering(None), linked=True)
    assert len(met.connected) == 2
    assert met.statuses == [502]


# -- bodies ------------------------------------------------------------------


class Hasty(Server):
    async def send(self, data):
        await asyncio.sleep(0)
        if self.ended:
            raise BrokenPipeError
        self.ended = True
        self.said.put_nowait(self.answer(None))


async def test_a_server_that_answers_and_takes_no_more(monkeypatch):
    monkeypatch.setattr(http, "_LINGER", 0.05)
    head = request(b"Content-Length: 1000000", head=b"POST / HTTP/1.1")
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
    met = await talk(
        head,
        *[b"x" * 1000] * 10,
        then="stays",
        answer=answering(answer),
        kind=Hasty,
    )
    assert met.answers == [(413, {b"content-length": b"2"}, b"no")]
    assert met.client.ends == ["eof"]


async def test_the_server_says_to_go_on():
    head = request(
        b"Expect: 100-continue", b"Content-Length: 5", head=b"PUT / HTTP/1.1"
    )
    met = await talk(head, b"hello")
    assert met.requests[0].header(b"expect") == b"100-continue"
    assert met.requests[0].body == b"hello"


async def test_a_signed_body_is_held_and_sent_whole():
    async def prepare(asked, _):
        return asked.with_header(b"X-Length", str(len(asked.body)).encode())

    head = request(
        b"Expect: 100-continue", b"Transfer-Encoding: chunked", head=b"PUT / HTTP/1.1"
    )
    met = await talk(
        head, b"3\r\nhel\r\n", b"2\r\nlo\r\n0\r\n\r\n", signed=True, prepare=prepare
    )
    (told,) = met.requests
    assert told.body == b"hello"
    assert told.header(b"content-length") == b"5"
    assert told.header(b"x-length") == b"5"
    assert told.header(b"expect") is None
    assert told.header(b"transfer-encoding") is None
    assert met.said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert met.budget._held == 0


async def test_a_signed_body_has_a_bound():
    head = request(b"Transfer-Encoding: chunked", head=b"PUT / HTTP/1.1")
    piece = b"40000\r\n" + b"x" * 0x40000 + b"\r\n"
    pieces = [piece] * (LARGEST_SIGNED // 0x40000 + 1)
    met = await talk(head, *pieces, signed=True)
    assert met.statuses == [403]
    assert met.requests == []
    assert met.budget._held == 0


async def test_signed_bodies_have_a_bound_together(monkeypatch):
    monkeypatch.setattr("isobox._egress.budget._HELD", 4)
    met = await talk(POST, signed=True)
    assert met.statuses == [429]
    assert met.budget._held == 0


PLACEHOLDERS = make(["KEY"])
FINDER = Finder(PLACEHOLDERS)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 20, 40])
async def test_a_placeholder_in_a_body_is_stopped(cut, signed):
    text = PLACEHOLDERS["KEY"].encode()
    head = request(b"Content-Length: %d" % (len(text) + 2), head=b"POST / HTTP/1.1")
    met = await talk(
        head,
        b"x" + text[:cut],
        text[cut:] + b"y",
        scanner=lambda: Scanner(FINDER),
        signed=signed,
    )
    assert met.requests == []
    assert met.statuses == [403]
    assert met.answers[0][1][b"x-isobox-denied"] == b"secret KEY"


# -- what comes back is masked -----------------------------------------------

SECRET = b"correct-horse-battery"


@pytest.mark.parametrize("cut", range(0, len(SECRET) + 1, 5))
async def test_a_secret_does_not_come_back(cut):
    def answer(_):
        return (
            b"HTTP/1.1 103 Hints %s\r\nX-%s: %s\r\n\r\n"
            b"HTTP/1.1 200 %s\r\nX-Echo: a%sb\r\nX-%s: 1\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            % ((SECRET,) * 6)
            + b"%x\r\n%s\r\n" % (cut + 1, b"x" + SECRET[:cut])
            + b"%x\r\n%s\r\n0\r\n\r\n" % (len(SECRET) - cut + 1, SECRET[cut:] + b"y")
        )

    met = await talk(GET, answer=answer, redactor=Redactor([SECRET]))
    assert SECRET not in met.said
    ((status, headers, body),) = met.answers
    assert status == 200
    assert headers[b"x-echo"] == b"a" + b"*" * len(SECRET) + b"b"
    assert body == b"x" + b"*" * len(SECRET) + b"y"


async def test_a_secret_that_looks_like_a_length_breaks_nothing():
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 00000002\r\n\r\nok"
    met = await talk(GET, answer=answering(data), redactor=Redactor([b"00000002"]))
    assert met.answers[0][2] == b"ok"


# -- WebSockets --------------------------------------------------------------

UPGRADE = [
    b"Connection: keep-alive, Upgrade",
    b"Upgrade: WebSocket",
    b"Sec-WebSocket-Key: x",
]
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Accept: y\r\n\r\n"
)


async def test_a_websocket_goes_on_as_it_is():
    met = await talk(
        request(*UPGRADE),
        b"client frame",
        answer=answering(SWITCH + b"server frame"),
        most=1,
    )
    (told,) = met.requests
    assert told.headers == (
        (b"host", b"a.test"),
        (b"sec-websocket-key", b"x"),
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
    )
    head, _, rest = met.said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"Upgrade: websocket" in head
    assert b"Sec-WebSocket-Accept: y" in head
    assert rest == b"server frame"


async def test_a_websocket_that_the_server_does_not_want():
    met = await talk(request(*UPGRADE) + GET)
    assert met.statuses == [200, 200]


@pytest.mark.parametrize(
    "data",
    [
        request(*UPGRADE, b"Content-Length: 5", head=b"POST / HTTP/1.1") + b"hello",
        request(*UPGRADE, head=b"GET / HTTP/1.0"),
        request(b"Connection: Upgrade", b"Upgrade: h2c, websocket"),
        request(b"Connection: Upgrade", b"Upgrade: spdy"),
    ],
)
async def test_nothing_else_becomes_something_else(data):
    met = await talk(data)
    assert met.requests[0].header(b"upgrade") is None
    assert met.statuses == [200]


@pytest.mark.parametrize(
    "data", [GET, request(b"Connection: Upgrade", b"Upgrade: h2c")]
)
async def test_nobody_switches_unasked(data):
    met = await talk(
        data, b"GET /smuggled HTTP/1.1\r\n", answer=answering(SWITCH), most=1
    )
    assert met.statuses == [502]
    assert len(met.requests) == 1


# -- clients that are slow, or gone ------------------------------------------


async def test_a_slow_head_is_answered(monkeypatch):
    monkeypatch.setattr(http, "_HEAD", 0.05)
    met = await talk(b"GET / HT", then="stays")
    assert met.statuses == [408]


async def test_a_client_that_asks_nothing_is_left(monkeypatch):
    monkeypatch.setattr(http, "_IDLE", 0.05)
    met = await talk(GET, then="stays")
    assert met.statuses == [200]
    assert met.refused == []
    assert (await talk(then="stays")).said == b""


async def test_a_client_that_left_is_noticed(monkeypatch):
    monkeypatch.setattr(http, "_PATIENCE", 0.05)
    met = await talk(GET, answer=answering(b""))
    assert isinstance(met.broke, ConnectionAbortedError)
    assert met.said == b""
    met = await talk(GET, answer=answering(b""), then="breaks")
    assert isinstance(met.broke, ConnectionResetError)


async def test_a_client_that_only_shut_its_side_gets_its_answer():
    met = await talk(GET, answer=ok)
    assert met.statuses == [200]


async def test_the_end_of_a_body_is_not_made_up():
    met = await talk(request(b"Content-Length: 5", head=b"POST / HTTP/1.1"), b"hel")
    assert met.requests == []
    assert met.refused == [(BadRequestError, PLACE)]


# -- however it arrives ------------------------------------------------------

REQUESTS = st.sampled_from(
    [
        GET,
        POST,
        CHUNKED,
        request(head=b"HEAD / HTTP/1.1"),
        request(b"Connection: close"),
        request(b"Content-Length: 1", b"Transfer-Encoding: chunked"),
        request(host=b"Host: b.test"),
        request(b"X: a\0b"),
        request(b"Transfer-Encoding: chunked") + b"5\r\nhelloX",
        b"garbage\r\n\r\n",
        request(*UPGRADE),
    ]
)
STREAMS = st.lists(REQUESTS, min_size=1, max_size=4).map(b"".join)


def outcome(met: Talk):
    said = met.said if met.client.ends != ["abort"] else b"aborted"
    return said, met.requests, [kind for kind, _ in met.refused]


@given(STREAMS, st.lists(st.integers(0, 600), max_size=8))
@example(
    b"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXY",
    [69],
)
@settings(max_examples=200, deadline=None)
def test_pieces_come_to_the_same_as_the_whole(data, cuts):
    cuts = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    pieces = [data[a:b] for a, b in itertools.pairwise(cuts)]
    whole = asyncio.run(talk(data))
    assert outcome(asyncio.run(talk(*pieces))) == outcome(whole)


@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from(
            [
                b"\r\n",
                b"\n",
                b" ",
                b":",
                b"GET ",
                b"/",
                b" HTTP/1.1\r\n",
                b"Host: a.test\r\n",
                b"Content-Length: 3\r\n",
                b"Transfer-Encoding: chunked\r\n",
                b"0\r\n\r\n",
            ]
        ),
        max_size=12,
    ),
    st.sampled_from([PLACE, None]),
    st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_no_bytes_of_a_client_are_too_strange(pieces, place, signed):
    met = asyncio.run(talk(*pieces, place=place, signed=signed))
    assert met.broke is None or isinstance(met.broke, OSError)
    assert all(told.header(b"host") is not None for told in met.requests)


@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from(
            [
                b"\r\n",
                b"HTTP/1.1 200 OK\r\n",
                b"HTTP/1.1 101 X\r\n",
                b"HTTP/1.0 204 X\r\n",
                b"Content-Length: 3\r\n",
                b"Transfer-Encoding: chunked\r\n",
                b"3\r\nabc\r\n",
            ]
        ),
        max_size=8,
    ).map(b"".join),
    st.sampled_from([GET, POST, request(*UPGRADE), request(head=b"HEAD / HTTP/1.1")]),
)
@settings(max_examples=500, deadline=None)
def test_no_bytes_of_a_server_are_too_strange(answer, data):
    met = asyncio.run(talk(data, answer=answering(answer), most=1))
    assert met.broke is None
    assert met.said or met.client.ends == ["abort"]
