"""Where requests and answers end: what was said too early, and what comes late."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.egress.talk import Server, ok, talk

from isobox._egress import http
from isobox.errors import PolicyDeniedError

pytestmark = pytest.mark.anyio

GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"
FORGED = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly"
PIECES = [b"x" * 1000] * 50


def upload(*lines: bytes, size: int = 50_000) -> bytes:
    head = [b"POST / HTTP/1.1", b"Host: a.test", b"Content-Length: %d" % size, *lines]
    return b"\r\n".join([*head, b"", b""])


class Looked(Server):
    """A server of which it is seen whether it has said something, or ended."""

    async def is_silent(self):
        return self.said.empty()


class Talkative(Looked):
    """It says something else after its answer."""

    def _answer(self):
        super()._answer()
        self.said.put_nowait(FORGED)


class Early(Server):
    """It answers as soon as it hears something, and takes the body all the same."""

    asked = False

    async def send(self, data):
        if not self.asked:
            self.asked = True
            self.said.put_nowait(self.answer(None))
        await super().send(data)

    def _answer(self):
        count = len(self.requests)
        super()._answer()
        self.asked = False
        assert len(self.requests) == count + 1
        self.said.get_nowait()


# -- before a request ----------------------------------------------------------------


@pytest.mark.parametrize("linked", [True, False])
async def test_a_server_that_has_gone_is_not_asked(linked):
    met = await talk(GET + POST + POST, most=1, kind=Looked, linked=linked)
    assert met.statuses == [200, 200, 200]
    assert [told.body for told in met.requests] == [b"", b"hello", b"hello"]
    assert len(met.connected) == 3


@pytest.mark.parametrize("method", [b"HEAD", b"GET", b"POST"])
@pytest.mark.parametrize("status", [b"200 OK", b"204 No Content", b"304 Not Modified"])
async def test_what_was_said_unasked_is_no_answer(method, status):
    first = b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status

    def answer(told):
        return first if told.target == b"/first" else ok(told)

    asked = b"%s /first HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n" % method
    met = await talk(asked + GET, answer=answer, kind=Talkative)
    assert b"forged" not in met.said
    assert met.said.endswith(b"GET a.test / ")
    assert len(met.connected) == 2


async def test_a_connection_that_has_said_something_is_not_left_to_others():
    met = await talk(GET, GET, kind=Talkative)
    assert met.statuses == [200, 200]
    assert len(met.left) < 2


# -- answers that come before the body has ended ---------------------------------------


async def test_a_body_is_sent_on_after_its_answer():
    met = await talk(upload(), *PIECES, POST, answer=lambda _: ANSWER, kind=Early)
    assert [len(told.body) for told in met.requests] == [50_000, 5]
    assert met.statuses == [200, 200]
    assert len(met.connected) == 1


async def test_who_leaves_with_an_early_answer_is_not_refused():
    met = await talk(upload(), *PIECES[1:], answer=lambda _: ANSWER, kind=Early)
    assert met.said == ANSWER
    assert met.refused == []
    assert met.requests == []


async def test_who_was_not_told_to_go_on_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(http, "_LINGER", 0.05)
    met = await talk(
        upload(b"Expect: 100-continue"),
        then="stays",
        answer=lambda _: ANSWER,
        kind=Early,
    )
    assert met.broke is None
    assert met.said == ANSWER
    assert met.client.ends == ["eof"]


class Full(Early):
    """It takes only the beginning of a body."""

    async def send(self, data):
        if self.asked:
            raise BrokenPipeError
        await super().send(data)


async def test_what_a_server_does_not_take_is_taken_from_the_client():
    met = await talk(upload(), *PIECES, answer=lambda _: ANSWER, kind=Full)
    assert met.said == ANSWER
    assert met.client.pieces == []
    assert met.client.ends == ["eof"]


async def test_a_refused_body_is_taken_to_its_end():
    async def refuse(*_):
        raise PolicyDeniedError("no", rule="r")

    pieces = [bytes(1 << 16)] * 64
    met = await talk(upload(size=4 << 20), *pieces, prepare=refuse)
    assert met.statuses == [403]
    assert met.client.pieces == []


async def test_a_refused_body_is_not_taken_for_ever(monkeypatch):
    monkeypatch.setattr(http, "_LINGER", 0.05)

    async def refuse(*_):
        raise PolicyDeniedError("no", rule="r")

    met = await talk(upload(), b"x", then="stays", prepare=refuse)
    assert met.statuses == [403]
    assert met.broke is None


# -- the end of a client's connection ----------------------------------------------


async def test_what_follows_the_last_request_does_not_break_its_answer():
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    met = await talk(last, b"\r\n", b"and more", answer=ok)
    assert met.statuses == [200]
    assert met.client.pieces == []
    assert met.client.ends == ["eof"]


async def test_the_server_is_left_before_that(monkeypatch):
    """The next client may come before this one has gone."""
    monkeypatch.setattr(http, "_SILENCE", 3600)
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    left = asyncio.Event()

    class Left(Server):
        async def aclose(self):
            await super().aclose()
            left.set()

    talking = asyncio.ensure_future(talk(last, then="stays", kind=Left))
    async with asyncio.timeout(10):
        await left.wait()
    assert not talking.done()
    talking.cancel()
    await asyncio.wait([talking])
