"""Connections that are looked into, counted, secured and joined."""

from __future__ import annotations

import asyncio
import ssl

import anyio
import pytest
from tests.unit.egress.talk import Script, pair

from isobox._channel.join import join
from isobox._egress.authority import Authority
from isobox._egress.parsing import ParseError
from isobox._egress.wire import LARGEST_LOOK, Peeked, Records, Secured, Tally, is_silent
from isobox.errors import LimitError

pytestmark = pytest.mark.anyio


async def test_what_was_looked_at_is_received_again():
    peeked = Peeked(Script(b"one", b"two"))
    assert await peeked.peek() == b"one"
    assert await peeked.peek() == b"one"
    assert await peeked.peek_more() is True
    assert await peeked.peek() == b"onetwo"
    assert await peeked.peek_more() is False
    assert await peeked.receive() == b"onetwo"
    peeked.unread(b"b")
    peeked.unread(b"a")
    assert await peeked.receive() == b"ab"
    assert await peeked.receive() == b""
    assert await peeked.peek() == b""


async def test_a_look_has_a_bound():
    peeked = Peeked(Script(*[b"x" * 65536] * 10))
    assert [await peeked.peek_more() for _ in range(3)] == [True] * 3
    with pytest.raises(ParseError):
        await peeked.peek_more()
    assert len(await peeked.peek()) <= LARGEST_LOOK + 65536


async def test_what_ends_a_peeked_connection_ends_the_connection():
    script = Script()
    peeked = Peeked(script)
    await peeked.send(b"x")
    await peeked.send_eof()
    await peeked.abort()
    await peeked.aclose()
    assert (script.sent, script.ends) == (b"x", ["eof", "abort", "close"])


async def test_bytes_are_counted():
    spent, ends, released = [], [], []
    tally = Tally(
        Script(b"abc"),
        lambda *both: spent.append(both),
        {"address": "192.0.2.1"},
        lambda: released.append(1),
    )
    tally.on_end(ends.append)
    assert await tally.receive() == b"abc"
    await tally.send(b"hello")
    await tally.send_eof()
    await tally.aclose()
    await tally.abort()
    await tally.aclose()
    assert spent == [(3, 0), (0, 5)]
    assert ends == [{"address": "192.0.2.1", "bytes_in": 3, "bytes_out": 5}]
    assert released == [1]


async def test_what_is_too_much_is_not_sent():
    script = Script(b"abc")

    def spend(*_):
        raise LimitError("too much")

    tally = Tally(script, spend, {}, lambda: None)
    for call in (tally.send(b"x"), tally.receive()):
        with pytest.raises(LimitError):
            await call
    assert script.sent == b""


async def test_a_release_comes_once_though_closing_is_cancelled():
    class Stuck(Script):
        async def aclose(self):
            await asyncio.sleep(60)

    ends, released = [], []
    tally = Tally(Stuck(), lambda *_: None, {}, lambda: released.append(1))
    tally.on_end(ends.append)
    with anyio.move_on_after(0.02):
        await tally.aclose()
    with anyio.move_on_after(0.02):
        await tally.aclose()
    assert (len(ends), released) == (1, [1])


async def test_join_carries_both_ways_and_both_ends():
    client, inside = pair()
    outside, server = pair()
    async with client, inside, outside, server, anyio.create_task_group() as group:
        group.start_soon(join, inside, outside)
        await client.send(b"question")
        assert await server.receive() == b"question"
        await client.send_eof()
        assert await server.receive() == b""
        await server.send(b"answer" * 100000)
        await server.send_eof()
        assert await client.read() == b"answer" * 100000


async def test_join_raises_what_breaks():
    with pytest.raises(ConnectionResetError):
        await join(Script(then="breaks"), Script(then="stays"))


class Deaf(Script):
    """A side that takes nothing, and says why once it was told something."""

    def __init__(self, *pieces, **options):
        super().__init__(*pieces, **options)
        self.told = asyncio.Event()

    async def receive(self):
        await self.told.wait()
        return await super().receive()

    async def send(self, data):
        self.told.set()
        raise BrokenPipeError


async def test_what_a_side_says_that_takes_no_more_is_carried():
    client, server = Script(b"up", b"load", b"s"), Deaf(b"too", b" large")
    with pytest.raises(BrokenPipeError):
        await join(client, server)
    assert (client.sent, client.ends) == (b"too large", ["eof"])
    assert client.pieces == []
    assert server.ends == []


async def test_who_takes_no_more_is_not_heard_for_long(monkeypatch):
    monkeypatch.setattr("isobox._channel.join._LAST_WORDS", 0.02)
    with anyio.fail_after(10), pytest.raises(BrokenPipeError):
        await join(Script(b"x", then="stays"), Deaf(b"why", then="stays"))


async def test_a_limit_is_none_of_the_side_s():
    class Limited(Script):
        async def send(self, data):
            raise LimitError("too much")

    with anyio.fail_after(10), pytest.raises(LimitError):
        await join(Script(b"x", then="stays"), Limited(then="stays"))


async def test_without_halves_the_other_side_has_not_long(monkeypatch):
    monkeypatch.setattr("isobox._channel.join._LAST_WORDS", 0.02)
    client, server = Script(b"bye"), Script(b"rest", then="stays")
    with anyio.fail_after(10):
        await join(client, server, halves=False)
    assert (client.sent, server.sent, server.ends) == (b"rest", b"bye", ["eof"])


async def test_join_says_that_it_is_over():
    target = Script()
    await join(Script(b"a", b"b"), target)
    assert (target.sent, target.ends) == (b"ab", ["eof"])


AUTHORITY = Authority()


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem.decode())
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def shaking(handshake, connection):
    try:
        return await handshake
    except (ssl.SSLError, anyio.BrokenResourceError) as error:
        await connection.aclose()
        return error


async def secured(context=None, host="a.test"):
    inner, outer = pair()
    server, client = await asyncio.gather(
        shaking(Secured.accept(inner, AUTHORITY.context("a.test")), inner),
        shaking(Secured.connect(outer, context or trusting(), host), outer),
    )
    return server, client, inner, outer


async def test_tls_both_ways():
    server, client, *_ = await secured()
    async with server, client:
        sending = asyncio.ensure_future(client.send(b"question" * 50000))
        got = b""
        while len(got) < 400000:
            got += await server.receive()
        await sending
        assert got == b"question" * 50000
        await server.send(b"answer")
        assert await client.receive() == b"answer"
        await client.send_eof()
        closing = asyncio.ensure_future(client.aclose())
        assert await server.receive() == b""
        await server.aclose()
        await closing


async def test_tls_for_another_host_is_refused():
    server, client, inner, outer = await secured(host="b.test")
    async with inner, outer:
        assert isinstance(client, ssl.SSLCertVerificationError)
        assert isinstance(server, ssl.SSLError)


async def test_tls_without_trust_is_refused():
    server, client, inner, outer = await secured(ssl.create_default_context())
    async with inner, outer:
        assert isinstance(client, ssl.SSLCertVerificationError)
        assert isinstance(server, ssl.SSLError)


async def test_what_is_cut_off_is_no_end_of_tls():
    server, client, _, outer = await secured()
    async with server:
        await outer.abort()
        with pytest.raises(ConnectionError):
            await server.receive()
    await client.aclose()


async def test_an_end_that_nobody_vouched_for_is_none():
    careless = trusting()
    careless.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    server, client, _, outer = await secured(careless)
    async with server, client:
        await client.send(b"half of it")
        await outer.send_eof()
        assert await server.receive() == b"half of it"
        # Of which kind it is, Pythons differ.
        with pytest.raises(ssl.SSLError, match=r"EOF|eof"):
            await server.receive()
    assert not careless.options & ssl.OP_IGNORE_UNEXPECTED_EOF


async def test_the_end_of_one_side_is_said_and_the_other_goes_on():
    server, client, *_ = await secured()
    async with server, client:
        await client.send(b"before")
        await server._take()
        await server.send_eof()
        assert await client.receive() == b""
        await client.send(b"after")
        assert await server.receive() == b"before"
        assert await server.receive() == b"after"
        with pytest.raises(ssl.SSLError):
            await server.send(b"too late")
        await client.send_eof()
        assert await server.receive() == b""


async def arrival(sock):
    async with asyncio.timeout(10):
        while sock.peek_nowait() is None:
            await asyncio.sleep(0.001)


async def test_session_tickets_are_no_words(monkeypatch):
    monkeypatch.setattr(AUTHORITY.context("a.test"), "num_tickets", 2)
    server, client, _, outer = await secured()
    async with server, client:
        await arrival(outer)  # of the tickets
        assert await client.is_silent()
        assert outer.peek_nowait() is None
        await server.send(b"x")
        await arrival(outer)
        assert not await client.is_silent()
        # To look takes it: it is not forgotten.
        assert not await client.is_silent()


async def test_session_tickets_may_come_one_by_one(monkeypatch):
    monkeypatch.setattr(AUTHORITY.context("a.test"), "num_tickets", 2)
    server, client, _, outer = await secured()
    async with server, client:
        await arrival(outer)
        data = await outer.receive()
        size = 5 + int.from_bytes(data[3:5], "big")
        assert 0 < size < len(data)
        client._inner = Piecemeal(data[:size], data[size:], then="stays")
        assert await client.is_silent()
        client._inner = outer


class Piecemeal(Script):
    async def is_silent(self):
        return not self.pieces


async def test_the_beginning_of_a_record_is_no_silence():
    server, client, inner, outer = await secured()
    async with server, client:
        assert await client.is_silent()
        server._tls.write(b"words")
        record = server._leaving.read()
        await inner.send(record[:3])
        await arrival(outer)
        assert not await client.is_silent()
        assert not client.says_nothing()


async def test_the_end_is_no_silence():
    for end in ("send_eof", "aclose", "abort"):
        server, client, _, outer = await secured()
        async with server, client:
            await getattr(server, end)()
            await arrival(outer)
            assert not await client.is_silent()


async def test_whoever_is_looked_at_is_asked():
    one, other = pair()
    async with one, other:
        tally = Tally(one, lambda *_: None, {}, lambda: None)
        peeked = Peeked(tally)
        assert await is_silent(peeked)
        await other.send(b"x")
        await arrival(one)
        assert not await is_silent(peeked)
        assert await peeked.peek() == b"x"
        assert not await is_silent(peeked)
        assert await peeked.receive() == b"x"
        assert await is_silent(peeked)
        await other.send_eof()
        await arrival(one)
        assert not await is_silent(tally)
    assert await is_silent(Script())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100, 1000])
def test_records_are_followed_however_they_are_cut(size):
    bodies = [b"", b"x", b"\xff" * 300, b"y" * 5]
    data, ends = b"", {0}
    for body in bodies:
        data += b"\x17\x03\x03" + len(body).to_bytes(2, "big") + body
        ends.add(len(data))
    records = Records()
    for at in range(0, len(data), size):
        records.feed(data[at : at + size])
        assert records.is_whole == (min(at + size, len(data)) in ends)


async def test_many_records_are_received_at_once():
    server, client, *_ = await secured()
    async with server, client:
        sending = asyncio.ensure_future(client.send(b"x" * 1_000_000))
        await asyncio.sleep(0.05)
        pieces = [await server.receive()]
        while sum(map(len, pieces)) < 1_000_000:
            pieces.append(await server.receive())
        await sending
    assert max(map(len, pieces)) > 1 << 14
    assert max(map(len, pieces)) <= 1 << 18


async def test_after_a_send_that_was_cut_short_nothing_is_sent():
    server, client, *_ = await secured()
    async with server, client:
        with anyio.move_on_after(0.05) as scope:
            await client.send(bytes(50_000_000))
        assert scope.cancelled_caught
        with pytest.raises(BrokenPipeError):
            await client.send(b"more")
        await client.abort()


async def test_a_peer_that_says_nothing_does_not_keep_tls_open():
    server, client, _, outer = await secured()
    with anyio.fail_after(5):
        await server.aclose()
    await outer.aclose()
    await client.aclose()


async def test_no_renegotiation_and_nothing_before_tls_1_2():
    inner, outer = pair()
    old = trusting()
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    server, client = await asyncio.gather(
        Secured.accept(inner, AUTHORITY.context("a.test")),
        Secured.connect(outer, old, "a.test"),
    )
    async with server, client:
        assert client._tls.version() == "TLSv1.2"
        assert client._tls.selected_alpn_protocol() == "http/1.1"
        assert AUTHORITY.context("a.test").options & ssl.OP_NO_RENEGOTIATION
