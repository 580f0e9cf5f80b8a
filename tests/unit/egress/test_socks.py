"""The server's side of SOCKS 5, with clients of every sort."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._egress.parsing import ParseError
from isobox._egress.socks import Reply, Request, Socks, reply

GREETING = b"\5\1\0"
PORT = b"\1\xbb"


def named(name: bytes, port: bytes = PORT) -> bytes:
    return b"\5\1\0\3" + bytes((len(name),)) + name + port


def refused(data: bytes) -> tuple[str, bytes]:
    with pytest.raises(ParseError) as caught:
        Socks().receive(data)
    assert re.fullmatch(r"[ -~]{1,2000}", str(caught.value))
    return str(caught.value), caught.value.reply


def test_a_name():
    socks = Socks()
    assert socks.receive(GREETING) == b"\5\0"
    assert socks.request is None
    assert socks.receive(named(b"Example.ORG")) == b""
    assert socks.request == Request("Example.ORG", 443)
    assert socks.rest == b""


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (b"\1" + bytes((192, 0, 2, 1)), "192.0.2.1"),
        (b"\4" + ipaddress.ip_address("2001:db8::1").packed, "2001:db8::1"),
        (b"\4" + bytes(16), "::"),
        (b"\4" + bytes(10) + b"\xff\xff\x7f\0\0\1", "::ffff:127.0.0.1"),
    ],
)
def test_an_address(address, text):
    socks = Socks()
    socks.receive(GREETING + b"\5\1\0" + address + PORT)
    assert socks.request is not None
    assert ipaddress.ip_address(socks.request.host) == ipaddress.ip_address(text)
    assert socks.request.host == str(ipaddress.ip_address(text))


def test_a_client_that_does_not_wait():
    socks = Socks()
    assert socks.receive(GREETING + named(b"a.test") + b"\x16\3\1") == b"\5\0"
    assert socks.request == Request("a.test", 443)
    assert socks.rest == b"\x16\3\1"


@pytest.mark.parametrize("password", [b"\1\4user\4word", b"\1\0\0", b"\1\1u\0"])
def test_a_password_is_taken_and_ignored(password):
    socks = Socks()
    assert socks.receive(b"\5\2\1\2") == b"\5\2"
    assert socks.receive(password) == b"\1\0"
    assert socks.receive(named(b"a.test")) == b""
    assert socks.request == Request("a.test", 443)


def test_no_password_is_asked_for_without_need():
    assert Socks().receive(b"\5\3\2\1\0") == b"\5\0"


@pytest.mark.parametrize("methods", [b"\0", b"\1\1", b"\2\x80\xff"])
def test_other_ways_to_authenticate_are_refused(methods):
    words, said = refused(b"\5" + methods)
    assert "authenticate" in words
    assert said == b"\5\xff"


def test_socks_4_is_refused_in_its_own_words():
    words, said = refused(b"\4\1\0\x50\xc0\0\2\1user\0")
    assert "only SOCKS 5" in words
    assert said == b"\0\x5b" + bytes(6)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", b"\x16\3\1", b"\0", b"\6\1\0"])
def test_what_is_not_socks_is_refused(data):
    words, said = refused(data)
    assert "does not speak SOCKS" in words
    assert said == b""


@pytest.mark.parametrize("command", [2, 3, 0, 9, 0xF0])
def test_only_connect_is_offered(command):
    words, said = refused(GREETING + bytes((5, command, 0, 1)) + bytes(6))
    assert f"command {command}" in words
    assert said == b"\5\0" + reply(Reply.UNKNOWN_COMMAND)
    assert said[3] == 7


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"\4\1\0\1", 1),
        (b"\5\1\1\1", 1),
        (b"\5\1\0\0", 8),
        (b"\5\1\0\2", 8),
        (b"\5\1\0\5", 8),
        (named(b"a.test", b"\0\0"), 1),
    ],
)
def test_a_malformed_request_is_refused(request_, code):
    assert refused(GREETING + request_)[1] == b"\5\0" + reply(code)


@pytest.mark.parametrize(
    "name",
    [
        b"attacker\0.example.org",
        b"a.test\r\nHost: b.test",
        b"a.test\n",
        b"a .test",
        b"\x7f",
        b"\x1b[2J.test",
        "exämple.org".encode(),
        "example。org".encode(),
        b"\xff",
        b"",
        b"a" * 254,
        b"a" * 255,
    ],
    ids=range(12),
)
def test_a_name_that_no_host_has_is_refused(name):
    words, said = refused(GREETING + named(name))
    assert "the host name" in words
    assert said == b"\5\0" + reply(Reply.FAILED)


def test_the_longest_name_is_taken():
    socks = Socks()
    socks.receive(GREETING + named(b"a" * 253))
    assert socks.request == Request("a" * 253, 443)


def test_a_malformed_password_is_refused():
    assert refused(b"\5\1\2\5\1\0")[1] == b"\5\2\1\1"


def play(pieces: list[bytes]) -> tuple[object, ...]:
    """Everything that a conversation comes to."""
    socks, said = Socks(), b""
    for at, piece in enumerate(pieces):
        try:
            said += socks.receive(piece)
        except ParseError as error:
            return str(error), said + error.reply
        if socks.request:
            return said, socks.request, socks.rest + b"".join(pieces[at + 1 :])
    return said, socks.request, socks.rest


@settings(max_examples=500, deadline=None)
@given(
    start=st.sampled_from(
        [b"", GREETING, b"\5\1\2", b"\5\1\2\1\1u\1p", GREETING + b"\5\1\0"]
    ),
    end=st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=255).map(named),
        st.binary(min_size=1, max_size=20).map(lambda tail: named(b"a.test") + tail),
    ),
    sizes=st.lists(st.integers(1, 60), max_size=20),
)
def test_pieces_come_to_the_same_as_the_whole(start, end, sizes):
    data = start + end
    whole = play([data])
    assert play([data[at : at + 1] for at in range(len(data))]) == whole
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    assert play([*pieces, data[at:]]) == whole


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_speaks_to_it():
    async def serve(reader, writer):
        socks = Socks()
        while socks.request is None:
            writer.write(socks.receive(await reader.read(100)))
        asked.append(socks.request)
        writer.write(reply(Reply.DENIED))
        writer.close()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for proxy in (f"socks5h://127.0.0.1:{port}", f"socks5h://u:p@127.0.0.1:{port}"):
            curl = await asyncio.create_subprocess_exec(
                "curl", "-sS", "--noproxy", "", "-x", proxy, "http://a.test:8080/",
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, told = await curl.communicate()
            assert b"(2)" in told
        server.close()

    asked: list[Request] = []
    asyncio.run(main())
    assert asked == [Request("a.test", 8080)] * 2
