"""Connections to servers, secured, that one client after another asks by."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from dataclasses import replace

import pytest
from tests.unit.egress.test_filter import (
    INSIDE,
    OUTSIDE,
    get,
    over_tls,
    secret,
    secured,
    world,
)

from isobox import Answer
from isobox._egress import kept, upstream
from isobox._egress.wire import Secured
from isobox.errors import PolicyDeniedError

__all__ = ["world"]

pytestmark = pytest.mark.anyio

TRUSTING = ssl.create_default_context(cadata=INSIDE.certificate_pem.decode())


class Site:
    """A web server that goes on, and counts the connections."""

    def __init__(self, *, most=1000, after=b""):
        self.seen = []
        self.ended = 0
        self.most = most
        self.after = after

    async def serve(self, connection):
        try:
            await self._serve(connection)
        finally:
            self.ended += 1

    async def _serve(self, connection):
        self.seen.append([])
        told, held, number = self.seen[-1], b"", len(self.seen)
        while len(told) < self.most and (data := await connection.receive()):
            held += data
            while b"\r\n\r\n" in held:
                head, _, held = held.partition(b"\r\n\r\n")
                length = 2 if b"Content-Length: 2" in head else 0
                while len(held) < length:
                    held += await connection.receive()
                held = held[length:]
                told.append(head.split(b" HTTP")[0])
                body = b"%s of %d" % (told[-1], number)
                await connection.send(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                    % (len(body), body)
                )
                if self.after:
                    await connection.send(self.after)


async def a_world(world, site=None, *rules, **options):
    it = await world(*(rules or ("a.test",)), secrets=[secret()], **options)
    site = site or Site()
    it.servers["a.test", 443] = secured(site.serve)
    return it, site


async def ask(it, *lines, method="GET", path="/x", port=443, body=b""):
    data = get("a.test", *lines, path=path).replace(b"GET", method.encode(), 1) + body
    inside = it.dial(it.address("a.test"), port)
    caught = it.serving[-1]
    said = await over_tls(inside, data)
    await asyncio.wait([caught], timeout=5)
    return said.rpartition(b"\r\n\r\n")[2]


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_next_client_asks_by_the_same_connection(world):
    it, site = await a_world(world)
    assert await ask(it, path="/1") == b"GET /1 of 1"
    assert await ask(it, path="/2") == b"GET /2 of 1"
    assert it.reached == [("a.test", 443)]
    assert site.seen == [[b"GET /1", b"GET /2"]]
    # Each was a connection of its own to whoever decides, and on record.
    connects = [each for each in it.events("allowed") if each["method"] is None]
    assert len(connects) == 2
    ended = [each for each in it.events("ended") if "bytes_in" in each]
    assert [each["address"] for each in ended] == ["192.0.2.1"] * 2
    assert ended[0]["bytes_in"] > ended[1]["bytes_in"] > 0
    assert it.filter._budget._alive == 0


async def test_it_counts_as_nobody_s_while_it_waits(world):
    it, _ = await a_world(world, connections=1)
    assert await ask(it) == b"GET /x of 1"
    assert await ask(it) == b"GET /x of 1"


async def test_what_cannot_be_asked_again_is_not_risked(world):
    it, site = await a_world(world)
    assert await ask(it) == b"GET /x of 1"
    posted = await ask(it, "Content-Length: 2", method="POST", body=b"ab")
    assert posted == b"POST /x of 2"
    assert site.seen == [[b"GET /x"], [b"POST /x"]]
    # Both wait now.
    assert len(it.filter._kept._waiting) == 2
    assert await ask(it) == b"GET /x of 2"


async def test_a_server_that_has_gone_is_found_again(world):
    it, site = await a_world(world, Site(most=1))
    assert await ask(it, path="/1") == b"GET /1 of 1"
    assert await ask(it, path="/2") == b"GET /2 of 2"
    await until(lambda: site.ended == 2)
    assert it.filter._kept._waiting == {}


@pytest.mark.parametrize("early", [b"HTTP/1.1 200 OK\r\n\r\n", b"x"])
async def test_what_nobody_has_asked_for_is_no_answer(world, early):
    it, _ = await a_world(world, Site(after=early))
    assert await ask(it, path="/1") == b"GET /1 of 1"
    (waiting,) = it.filter._kept._waiting
    await until(lambda: waiting.sock.peek_nowait() is not None)
    assert await ask(it, path="/2") == b"GET /2 of 2"


@pytest.mark.parametrize("scheme", ["NTLM abc", "Negotiate abc", "negotiate abc"])
async def test_who_is_known_by_the_connection_is_not_taken_for_another(world, scheme):
    it, site = await a_world(world)
    assert await ask(it, f"Authorization: {scheme}") == b"GET /x of 1"
    assert await ask(it) == b"GET /x of 2"
    await until(lambda: site.ended == 1)


async def test_it_waits_for_a_moment(world, monkeypatch):
    monkeypatch.setattr(kept, "_WAIT", 0.05)
    it, site = await a_world(world)
    assert await ask(it) == b"GET /x of 1"
    await until(lambda: site.ended == 1)
    assert it.filter._kept._waiting == {}
    assert await ask(it) == b"GET /x of 2"


async def test_an_old_one_has_to_prove_itself_again(world, monkeypatch):
    monkeypatch.setattr(kept, "_OLDEST", 0)
    it, _ = await a_world(world)
    assert await ask(it) == b"GET /x of 1"
    assert await ask(it) == b"GET /x of 2"


async def test_so_many_wait(world, monkeypatch):
    monkeypatch.setattr(kept, "_MOST", 2)
    it, site = await a_world(world)
    answers = await asyncio.gather(*(ask(it) for _ in range(4)))
    assert len(set(answers)) == 4
    await until(lambda: site.ended == 2)
    assert len(it.filter._kept._waiting) == 2
    await it.filter.aclose()
    await until(lambda: site.ended == 4)


async def test_who_comes_back_after_the_end_is_sent_away(world):
    it, site = await a_world(world)
    await it.filter._kept.aclose()
    assert await ask(it) == b"GET /x of 1"
    await until(lambda: site.ended == 1)
    assert it.filter._kept._waiting == {}


async def test_an_address_that_may_no_longer_be_reached(world, monkeypatch):
    it, site = await a_world(world)
    assert await ask(it) == b"GET /x of 1"

    def check(*_):
        raise PolicyDeniedError("it is ours now", rule="own")

    monkeypatch.setattr(upstream, "check", check)
    with pytest.raises(ConnectionError):
        await ask(it)
    assert it.denials == [("a.test", 443, "own")]
    await until(lambda: site.ended == 1)
    assert it.filter._budget._alive == 0


async def test_without_tls_nothing_is_kept(world):
    it, site = await a_world(world)
    assert await ask(it) == b"GET /x of 1"
    plain = Site()
    it.servers["a.test", 443] = plain.serve
    async with it.dial(it.address("a.test"), 443) as inside:
        await inside.send(get("a.test:443"))
        said = await inside.read()
    assert said.endswith(b"GET /x of 1")
    assert plain.seen == [[b"GET /x"]]
    assert len(site.seen[0]) == 1


async def test_another_sandbox_has_its_own(world):
    one, site = await a_world(world)
    assert await ask(one) == b"GET /x of 1"
    other, _ = await a_world(world, site)
    assert await ask(other) == b"GET /x of 2"


async def test_a_client_that_leaves_in_the_middle_leaves_nothing_to_be_read(world):
    it, _ = await a_world(world)
    reached = asyncio.Event()

    class Slow(Site):
        async def serve(self, connection):
            await connection.receive()
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfirst")
            reached.set()
            await connection.receive()

    it.servers["a.test", 443] = secured(Slow().serve)
    inside = it.dial(it.address("a.test"), 443)
    asking = asyncio.ensure_future(over_tls(inside, get("a.test")))
    await reached.wait()
    asking.cancel()
    await asyncio.wait([asking])
    await asyncio.sleep(0.2)
    assert it.filter._kept._waiting == {}
    site = Site()
    it.servers["a.test", 443] = secured(site.serve)
    assert await ask(it) == b"GET /x of 1"


async def test_the_limits_hold_by_it_too(world):
    it, _ = await a_world(world, bytes_in=6000)
    assert await ask(it) == b"GET /x of 1"
    it.filter._network = replace(it.network, bytes_in=1)
    it.filter._budget._network = it.filter._network
    with pytest.raises(ConnectionError):
        await ask(it)
    assert it.filter._budget._alive == 0


# -- what goes by it ---------------------------------------------------------------


class Dying(Site):
    """Its first connection ends as the second request comes."""

    async def _serve(self, connection):
        self.most = 1 if not self.seen else 1000
        first = not self.seen
        await super()._serve(connection)
        if first:
            await connection.receive()


@pytest.mark.parametrize(
    ("lines", "method", "body"),
    [
        (("Content-Length: 2",), "GET", b"ab"),
        (("X-HTTP-Method-Override: DELETE",), "GET", b""),
        (("Content-Length: 2",), "POST", b"ab"),
        (("Content-Length: 0",), "POST", b""),
    ],
)
async def test_what_cannot_be_asked_twice_has_a_connection_of_its_own(
    world, lines, method, body
):
    it, site = await a_world(world, Dying())
    assert await ask(it) == b"GET /x of 1"
    said = await ask(it, *lines, method=method, body=body)
    assert said == b"%s /x of 2" % method.encode()
    assert site.seen == [[b"GET /x"], [b"%s /x" % method.encode()]]


async def test_what_can_is_asked_again(world):
    it, _site = await a_world(world, Dying())
    assert await ask(it) == b"GET /x of 1"
    assert await ask(it) == b"GET /x of 2"
    assert len(it.reached) == 2


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_who_is_known_by_a_renewed_connection_is_not_either(world, method):
    it, _site = await a_world(world, Dying())
    assert await ask(it) == b"GET /x of 1"
    bound = await ask(
        it, "Authorization: Negotiate abc", "Content-Length: 0", method=method
    )
    assert bound == b"%s /x of 2" % method.encode()
    assert await ask(it) == b"GET /x of 3"


async def test_who_is_known_by_what_a_secret_says_is_not_either(world):
    it = await world("a.test", secrets=[secret(value="Negotiate abcdefgh")])
    site = Site()
    it.servers["a.test", 443] = secured(site.serve)
    text = it.vault.environment()["KEY"]
    assert await ask(it, f"Authorization: {text}") == b"GET /x of 1"
    assert await ask(it) == b"GET /x of 2"


async def test_it_is_looked_at_once_more_before_a_request(world):
    """What comes while the client thinks is no answer either."""
    it, site = await a_world(world)
    said = asyncio.Event()

    class Impatient(Site):
        async def _serve(self, connection):
            self.most = 1
            await super()._serve(connection)
            self.most = 1000
            await said.wait()
            await connection.send(
                b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 5\r\n\r\nstale"
            )
            await connection.receive()

    site = Impatient()
    it.servers["a.test", 443] = secured(site.serve)
    assert await ask(it) == b"GET /x of 1"
    it.servers["a.test", 443] = secured(Site().serve)
    inside = it.dial(it.address("a.test"), 443)
    async with inside:
        client = Secured(inside, TRUSTING, host="a.test")
        await client.shake()
        said.set()
        await asyncio.sleep(0.5)
        await client.send(get("a.test"))
        assert (await client.receive()).endswith(b"GET /x of 1")
    assert len(it.reached) == 2


async def test_what_has_said_something_stays_unfit(world):
    it, site = await a_world(world)
    said, heard = asyncio.Event(), asyncio.Event()

    class Chatty(Site):
        async def _serve(self, connection):
            if self.seen:
                await super()._serve(connection)
                return
            self.most = 1
            await super()._serve(connection)
            self.most = 1000
            await said.wait()
            await connection.send(b"x")
            heard.set()
            await connection.receive()

    site = Chatty()
    it.servers["a.test", 443] = secured(site.serve)
    assert await ask(it) == b"GET /x of 1"
    async with it.dial(it.address("a.test"), 443) as inside:
        client = Secured(inside, TRUSTING, host="a.test")
        await client.shake()
        said.set()
        await heard.wait()
        await asyncio.sleep(0.5)
        await client.send(get("a.test"))
        assert (await client.receive()).endswith(b"GET /x of 2")
    assert await ask(it) == b"GET /x of 2"
    assert len(it.filter._kept._waiting) == 1


async def test_a_client_that_thinks_for_long_does_not_ask_by_it(world, monkeypatch):
    monkeypatch.setattr(kept, "_WAIT", 0.2)
    it, _site = await a_world(world)
    assert await ask(it) == b"GET /x of 1"
    inside = it.dial(it.address("a.test"), 443)
    async with inside:
        client = Secured(inside, TRUSTING, host="a.test")
        await client.shake()
        await asyncio.sleep(0.3)
        await client.send(get("a.test"))
        assert (await client.receive()).endswith(b"GET /x of 2")


async def test_who_only_looks_in_does_not_make_it_wait_for_longer(world, monkeypatch):
    monkeypatch.setattr(kept, "_WAIT", 0.4)
    it, _site = await a_world(world)
    assert await ask(it) == b"GET /x of 1"
    for _ in range(4):
        async with it.dial(it.address("a.test"), 443) as inside:
            await Secured(inside, TRUSTING, host="a.test").shake()
        await asyncio.sleep(0.15)
    assert await ask(it) == b"GET /x of 2"


async def test_a_client_that_says_nothing_leaves_it_as_it_was(world):
    it, _ = await a_world(world)
    assert await ask(it) == b"GET /x of 1"
    await it.dial(it.address("a.test"), 443).aclose()
    await asyncio.wait([it.serving[-1]], timeout=5)
    assert await ask(it) == b"GET /x of 1"


async def test_a_server_that_has_taken_its_leave(world):
    """Its goodbye came with the answer, and it did not hang up."""
    it, _ = await a_world(world)

    class Polite(Site):
        async def _serve(self, connection):
            self.most = 1
            await super()._serve(connection)

    def shaken(serve):
        async def shake(connection):
            tls = await Secured.accept(connection, OUTSIDE.context("a.test"))
            await serve(tls)
            with contextlib.suppress(ssl.SSLError):
                tls._tls.unwrap()
            await tls._flush()
            await connection.receive()

        return shake

    site = Polite()
    it.servers["a.test", 443] = shaken(site.serve)
    assert await ask(it) == b"GET /x of 1"
    await asyncio.sleep(0.1)
    assert await ask(it) == b"GET /x of 2"


# -- for whoever decides, and on record ---------------------------------------------


async def test_another_connection_for_a_client_is_no_other_decision(world):
    asked = []

    async def approve(question):
        asked.append(question.facts)
        return Answer(True)

    it, _ = await a_world(world, None, "?a.test", approve=approve, connections=1)
    assert await ask(it) == b"GET /x of 1"
    assert await ask(it, "Content-Length: 0", method="POST") == b"POST /x of 2"
    assert len(asked) == 2
    ended = [each for each in it.events("ended") if "bytes_in" in each]
    assert len(ended) == 2
    assert ended[1]["bytes_in"] > 0


async def test_without_tls_it_is_one_connection_too(world):
    it, _ = await a_world(world, connections=1)
    assert await ask(it) == b"GET /x of 1"
    it.servers["a.test", 443] = Site().serve
    async with it.dial(it.address("a.test"), 443) as inside:
        await inside.send(get("a.test:443"))
        assert (await inside.read()).endswith(b"GET /x of 1")
    await until(lambda: len(it.events("allowed")) >= 3)
    connects = [each for each in it.events("allowed") if each["method"] is None]
    assert len(connects) == 2


async def test_what_is_not_kept_there_is_not_put_there(world):
    it, site = await a_world(world, None, "a.test:8443")
    it.servers["a.test", 8443] = secured(site.serve)
    inside = it.dial(it.address("a.test"), 8443)
    said = await over_tls(inside, get("a.test:8443"))
    assert said.endswith(b"GET /x of 1")
    await asyncio.sleep(0.05)
    assert it.filter._kept._waiting == {}


async def test_a_record_that_is_not_taken_leaks_no_connection(world, caplog):
    it, _site = await a_world(world)
    put = it.sink.put
    failing = [True]

    def full(record):
        if failing and "bytes_in" in (record.get("end") or {}):
            failing.pop()
            raise OSError(errno.ENOSPC, "no room")
        put(record)

    it.sink.put = full
    assert await ask(it) == b"GET /x of 1"
    assert failing == []
    assert it.filter._budget._alive == 0
    assert await ask(it) == b"GET /x of 1"
    assert len(it.filter._kept._waiting) == 1


async def test_all_sandboxes_together_keep_so_many(world, monkeypatch):
    monkeypatch.setattr(kept, "_ROOM", kept._Room())
    monkeypatch.setattr(kept, "available", lambda: 2 * kept._SHARE)
    one, site = await a_world(world)
    assert len(set(await asyncio.gather(*(ask(one) for _ in range(4))))) == 4
    await until(lambda: site.ended == 2)
    assert len(one.filter._kept._waiting) == 2
    other, _ = await a_world(world, site)
    await ask(other)
    assert other.filter._kept._waiting == {}
    await one.filter.aclose()
    await ask(other)
    assert len(other.filter._kept._waiting) == 1


async def test_who_is_cut_for_others_keeps_nothing(world):
    it, site = await a_world(world)
    inside = it.dial(it.address("a.test"), 443)
    client = Secured(inside, TRUSTING, host="a.test")
    await client.shake()
    await client.send(get("a.test").replace(b"Connection: close\r\n", b""))
    assert (await client.receive()).endswith(b"GET /x of 1")
    it.serving[-2].cancel()
    await until(lambda: site.ended == 1)
    assert it.filter._kept._waiting == {}
    it.serving.pop(-2)
    await inside.aclose()


# -- a client's own connection, before each of its requests ----------------------------


EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"
KEEPS = b"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab"


async def test_half_of_a_record_is_not_left_to_the_next_client(world):
    it, site = await a_world(world)
    late = asyncio.Event()

    async def serve(connection):
        tls = await Secured.accept(connection, OUTSIDE.context("a.test"))
        await tls.receive()
        tls._tls.write(b"HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n")
        first = tls._leaving.read()
        tls._tls.write(EVIL)
        second = tls._leaving.read()
        await connection.send(first + second[:9])
        await late.wait()
        await connection.send(second[9:])

    it.servers["a.test", 443] = serve
    await ask(it, method="HEAD")
    assert it.filter._kept._waiting == {}
    late.set()
    it.servers["a.test", 443] = secured(site.serve)
    assert await ask(it) == b"GET /x of 1"


@pytest.mark.parametrize("port", [80, 443])
async def test_a_server_that_went_while_a_client_thought_is_found_again(
    world, monkeypatch, port
):
    it, site = await a_world(world, Site(most=1))
    reached = []

    async def reach(*where):
        found = await it.reach(*where)
        reached.append(found[0])
        return found

    monkeypatch.setattr(upstream, "reach", reach)
    it.servers["a.test", 80] = site.serve
    async with it.dial(it.address("a.test"), port) as inside:
        client = inside
        if port == 443:
            client = Secured(inside, TRUSTING, host="a.test")
            await client.shake()
        await client.send(KEEPS)
        assert (await client.receive()).endswith(b"POST /x of 1")
        await until(lambda: reached[0].peek_nowait() is not None)
        await client.send(KEEPS)
        assert (await client.receive()).endswith(b"POST /x of 2")


async def test_session_tickets_do_not_make_it_connect_again(world, monkeypatch):
    monkeypatch.setattr(OUTSIDE.context("a.test"), "num_tickets", 2)
    it, site = await a_world(world)
    ready = asyncio.Event()

    async def serve(connection):
        tls = await Secured.accept(connection, OUTSIDE.context("a.test"))
        ready.set()
        await site.serve(tls)

    it.servers["a.test", 443] = serve
    async with it.dial(it.address("a.test"), 443) as inside:
        client = Secured(inside, TRUSTING, host="a.test")
        await client.shake()
        await ready.wait()
        await client.send(KEEPS)
        assert (await client.receive()).endswith(b"POST /x of 1")
    assert len(it.reached) == 1
