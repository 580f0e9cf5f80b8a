"""What is said first is looked at, and stays."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.egress.hellos import openssl
from tests.unit.egress.talk import Script

from isobox._egress import look
from isobox._egress.parsing import ParseError
from isobox._egress.wire import Peeked
from isobox.errors import PolicyDeniedError


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", None),
        (b"\r\n", None),
        (b"GET", None),
        (b"GET /", None),
        (b"GET / ", None),
        (b"GET / HTTP/", True),
        (b"GET / HTTP/1.1\r\n", True),
        (b"\r\n\r\n GET / http/1.1", True),
        (b"GET\t/\tHTTP/1.1\r\n", True),
        (b"GET\x0b/\x0cHTTP/1.1\r\n", True),
        (b"GET /\xff HTTP/1.1", True),
        (b"GET " + b"a" * 10000, True),
        (b"GET /\r\n", True),
        (b"GET /\0\x1b\n", True),
        (b"GET key\r\n", True),
        (b"get key\r\n", False),
        (b"GET \r\n", False),
        (b"GET /x rtsp/1.0", True),
        (b"SOURCE /x ICE/1.1", True),
        (b"PUBLISH service/1\r\n", False),
        (b"\x1c\x85GET\xa0/\x1dHTTP/1.1", True),
        (b"PUT\r\nx", False),
        (b"CONNECT\naccept-version:1.2\n", False),
        (b"GET\r\n", False),
        (b"EHLO mail.example.org\r\n", False),
        (b"a1 LOGIN x y\r\n", False),
        (b"0032git-upload-pack /x\0host=a.test\0", False),
        (b"PING\r\n", False),
        (b"*1\r\n$4\r\nPING\r\n", False),
        (b'{"a": 1}', False),
        (b"\0\0\0\x08\4\xd2\x16\x2f", False),
        (b"AMQP\0\0\x09\1", False),
        (b"SSH-2.0-OpenSSH_9.6 Ubuntu\r\n", False),
        (b"a" * 100, False),
        (b"\x16\3\1", False),
    ],
)
def test_what_could_be_taken_for_http(data, expected):
    assert look.is_like_http(data) is expected


@given(
    st.lists(
        st.sampled_from([b"GET", b" ", b"\t", b"\r\n", b"/", b"HTTP/", b"\0", b"\xff"])
        | st.binary(max_size=5),
        max_size=10,
    ).map(b"".join)
)
@settings(max_examples=500)
def test_it_is_decided_once(data):
    said = [look.is_like_http(data[:end]) for end in range(len(data) + 1)]
    decided = [each for each in said if each is not None]
    assert all(each is decided[0] for each in decided)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("client", "server", "expected"),
    [
        (Script(b"x", then="stays"), Script(then="stays"), False),
        (Script(then="stays"), Script(b"220 hello", then="stays"), True),
        (Script(then="stays"), Script(), True),
        (Script(), Script(then="stays"), False),
    ],
)
async def test_who_speaks_first(client, server, expected):
    looked = Peeked(client), Peeked(server)
    said = [b"".join(each.pieces) for each in (client, server)]
    assert await look.server_speaks_first(*looked) is expected
    for each, all_of_it in zip(looked, said, strict=True):
        if all_of_it:
            assert await each.receive() == all_of_it


@pytest.mark.anyio
async def test_both_speak_at_once():
    client, server = Peeked(Script(b"a")), Peeked(Script(b"b"))
    await look.server_speaks_first(client, server)
    assert (await client.receive(), await server.receive()) == (b"a", b"b")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((), None),
        ((b"G", b"ET ", b"/"), "http"),
        ((b"\x16", b"\3"), "tls"),
        ((b"GE",), "other"),
        ((b"\0",), "other"),
    ],
)
async def test_what_is_spoken(pieces, expected):
    client = Peeked(Script(*pieces))
    assert await look.spoken(client) == expected


@pytest.mark.anyio
async def test_a_hello_in_pieces():
    data = openssl()
    client = Peeked(Script(*(data[at : at + 7] for at in range(0, len(data), 7))))
    assert (await look.hello(client)).server_name is not None
    assert await client.receive() == data


@pytest.mark.anyio
async def test_a_hello_that_does_not_come(monkeypatch):
    with pytest.raises(ParseError, match="ends early"):
        await look.hello(Peeked(Script(openssl()[:50])))
    monkeypatch.setattr(look, "HELLO", 0.02)
    for wait in (look.hello, look.could_be_http):
        with pytest.raises(TimeoutError):
            await wait(
                Peeked(Script(b"\x16" if wait is look.hello else b"GET ", then="stays"))
            )


@pytest.mark.parametrize(
    ("data", "passes"),
    [
        (b"\0GET / HTTP/1.1\r\n", False),
        (b"\r\n(GET / RTSP/1.1\r\n", False),
        (b"\0 ICE/1.1\n", False),
        (b"PRI * HTTP/2.0\r\n\r\n", False),
        (b"\0" + b"a" * 60000 + b" http/", False),
        (b"{'path': '/service/x'}" + b"y" * 100, True),
        (b"\0\nGET / HTTP/1.1\n", True),
        (b"SSH-2.0-OpenSSH_9.6\r\nHTTP/1.1", True),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 7, 100000])
@pytest.mark.anyio
async def test_a_first_line_is_watched_while_it_is_carried(data, passes, size):
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    watched, found = look.Watched(Script(*pieces)), b""
    try:
        while piece := await watched.receive():
            found += piece
    except PolicyDeniedError:
        assert not passes
        assert not look._VERSION.search(found)
    else:
        assert passes
        assert found == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"HTTP/1.1 408 Late\r\n", True),
        (b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x80", True),
        (b"\0\0\0\4\0\0\0\0\0", True),
        (b"220 hello\r\n", False),
        (b"\x4a\0\0\0\x0a8.0", False),
        (b"", False),
    ],
)
def test_a_server_of_the_web_that_speaks_first(data, expected):
    assert look.server_is_of_the_web(data) is expected


@pytest.mark.anyio
async def test_a_line_in_drops_costs_little():
    drops = Script(b"GET ", *[b"a"] * 20000)
    assert await look.could_be_http(Peeked(drops))
    # What is looked at again with each is no longer than servers take a line to be.
    assert len(drops.pieces) >= 20000 - (1 << 13)
