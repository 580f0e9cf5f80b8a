"""Connections that are looked into, counted, secured and joined."""

from __future__ import annotations

import asyncio
import ssl

import anyio
import pytest
from tests.unit.egress.talk import Script, pair

from isobox._channel.join import carry, join
from isobox._egress.authority import Authority
from isobox._egress.parsing import ParseError
from isobox._egress.wire import LARGEST_LOOK, Peeked, Secured, Tally
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


async def test_carry_says_that_it_is_over():
    target = Script()
    await carry(Script(b"a", b"b"), target)
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
