"""Answers of the plain kind."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.egress.talk import PLACE, Server, ok, talk

from isobox._egress.answer import Answer, read, written
from isobox._egress.headers import LARGEST_HEAD
from isobox._egress.redact import Redactor
from isobox.errors import UnreachableError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type:  text/x \r\nContent-Length: 5\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"


def answer(*lines: bytes, status: bytes = b"HTTP/1.1 200 OK", body: bytes = b"hello"):
    return b"\r\n".join([status, *lines, b"", b""]) + body


def test_a_plain_answer():
    headers = [(b"Content-Type", b"text/x"), (b"Content-Length", b"5")]
    assert read(HEAD + b"hello") == Answer(b"200", b"OK", headers, 5, len(HEAD))
    assert read(answer(b"Content-Length: 5", status=b"HTTP/1.1 404 ")).reason == b""
    assert read(answer(b"Content-Length: 5", b"Connection: Keep-Alive")).length == 5


@pytest.mark.parametrize(
    "data",
    [
        HEAD[:-1],
        HEAD.replace(b"\r\n", b"\n"),
        answer(),
        answer(b"Server: x"),
        answer(b"Content-Length: 5", status=b"HTTP/1.0 200 OK"),
        answer(b"Content-Length: 5", status=b"HTTP/1.1 200"),
        *(
            answer(b"Content-Length: 5", status=b"HTTP/1.1 %s X" % status)
            for status in (b"100", b"101", b"103", b"204", b"304", b"600", b"20")
        ),
        answer(b"Content-Length: 5", b"Content-Length: 5"),
        answer(b"Content-Length: 5, 5"),
        answer(b"Content-Length: -5"),
        answer(b"Content-Length: " + b"9" * 19),
        answer(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        answer(b"Content-Length: 5", b"Connection: close"),
        answer(b"Content-Length: 5", b"Connection: keep-alive, x-y"),
        answer(b"Content-Length: 5", b"Upgrade: websocket"),
        answer(b"Content-Length: 5", b"X: a", b" folded"),
        answer(b"Content-Length : 5"),
        answer(b"Content-Length: 5", b"X: a\0b"),
        answer(b"Content-Length: 5", b"X: a\rb"),
        answer(b"Content-Length: 5", b"X: " + b"a" * LARGEST_HEAD),
        b"\r\n" + HEAD,
    ],
)
def test_what_is_left_to_a_whole_parser(data):
    assert read(data) is None


def test_white_space_costs_no_more_than_other_bytes():
    value = b"a" + b" " * (LARGEST_HEAD - 100) + b"b"
    assert read(answer(b"Content-Length: 5", b"X: " + value)).headers[1][1] == value


NAMES = st.sampled_from([b"Server", b"X-y", b"content-length", b"Connection", b"Date"])
VALUES = st.one_of(
    st.sampled_from([b"5", b"05", b"keep-alive", b"", b" 5\t", b"a  b", b"\xe9"]),
    st.binary(max_size=6),
)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=4)
STATUSES = st.integers(100, 699).map(b"%d".__mod__)
REASONS = st.one_of(st.just(b"OK"), st.binary(max_size=4))


@given(STATUSES, REASONS, HEADERS, st.binary(max_size=8))
def test_a_whole_parser_reads_the_same(status, reason, headers, body):
    lines = [b"%s:%s\r\n" % header for header in headers]
    head = b"HTTP/1.1 %s %s\r\n%s\r\n" % (status, reason, b"".join(lines))
    found = read(head + body)
    if found is None:
        return
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="GET", target="/", headers=[("host", "a.test")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(head + body[: found.length])
    event = parser.next_event()
    assert isinstance(event, h11.Response)
    assert (b"%d" % event.status_code, event.reason) == (found.status, found.reason)
    raw = [(bytes(name), bytes(value)) for name, value in event.headers.raw_items()]
    assert raw == found.headers
    taken = b""
    while isinstance(event := parser.next_event(), h11.Data):
        taken += event.data
    assert taken == body[: found.length]
    assert (event is h11.NEED_DATA) == (len(body) < found.length)
    if event is not h11.NEED_DATA:
        assert parser.their_state is h11.DONE
    # What is written for it says the same again.
    again = read(written(found.status, found.reason, found.headers))
    assert (again.headers, again.length) == (found.headers, found.length)


class Dripping(Server):
    """A server whose answers come by one byte, and end as they may."""

    async def receive(self):
        data = await super().receive()
        for byte in data[1:]:
            self.said.put_nowait(bytes((byte,)))
        return data[:1]


class InTwo(Server):
    """A server whose answers come in two pieces, the first with the whole head."""

    async def receive(self):
        data = await super().receive()
        if b"\r\n\r\n" not in data:
            return data
        cut = data.index(b"\r\n\r\n") + 5
        self.said.put_nowait(data[cut:])
        return data[:cut]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Server, InTwo, Dripping])
async def test_however_it_comes_the_client_gets_it(kind):
    met = await talk(GET * 3, kind=kind)
    assert met.statuses == [200] * 3
    assert [body for *_, body in met.answers] == [b"GET a.test / "] * 3
    assert len(met.connected) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Server, InTwo])
async def test_what_follows_an_answer_is_no_answer(kind):
    smuggled = answer(b"Content-Length: 5", body=b"other")
    met = await talk(GET * 2, answer=lambda told: ok(told) + smuggled, kind=kind)
    assert [body for *_, body in met.answers] == [b"GET a.test / "] * 2
    assert len(met.connected) == 2


@pytest.mark.anyio
async def test_an_answer_that_is_broken_off_does_not_pass_for_whole():
    cut = answer(b"Content-Length: 9", body=b"hell")
    met = await talk(GET, answer=lambda _: cut, most=1)
    assert met.refused == [(UnreachableError, PLACE)]
    assert met.said == b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhell"
    assert met.client.ends == ["abort"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Server, InTwo])
async def test_secrets_are_masked(kind):
    told = answer(b"Content-Length: 12", b"X: my-secret-x", body=b"-my-secret-x")
    redactor = Redactor([b"my-secret-x"])
    met = await talk(GET, answer=lambda _: told, redactor=redactor, kind=kind)
    (found,) = met.answers
    assert found[1][b"x"] == b"*" * 11
    assert found[2] == b"-" + b"*" * 11
