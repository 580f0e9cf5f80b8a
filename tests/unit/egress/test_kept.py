"""Connections to servers, secured, that one client after another asks by."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.egress.test_filter import get, over_tls, secret, secured, world

from isobox._egress import kept, upstream
from isobox.errors import PolicyDeniedError

__all__ = ["world"]

pytestmark = pytest.mark.anyio


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
    said = await over_tls(it.dial(it.address("a.test"), port), data)
    await asyncio.sleep(0.01)
    return said.rpartition(b"\r\n\r\n")[2]


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
    assert site.ended == 2
    assert it.filter._kept._waiting == {}


@pytest.mark.parametrize("early", [b"HTTP/1.1 200 OK\r\n\r\n", b"x"])
async def test_what_nobody_has_asked_for_is_no_answer(world, early):
    it, _ = await a_world(world, Site(after=early))
    assert await ask(it, path="/1") == b"GET /1 of 1"
    await asyncio.sleep(0.2)  # the kernel waits to send so little
    assert await ask(it, path="/2") == b"GET /2 of 2"


@pytest.mark.parametrize("scheme", ["NTLM abc", "Negotiate abc", "negotiate abc"])
async def test_who_is_known_by_the_connection_is_not_taken_for_another(world, scheme):
    it, site = await a_world(world)
    assert await ask(it, f"Authorization: {scheme}") == b"GET /x of 1"
    assert await ask(it) == b"GET /x of 2"
    await asyncio.sleep(0.05)
    assert site.ended == 1


async def test_it_waits_for_a_moment(world, monkeypatch):
    monkeypatch.setattr(kept, "_WAIT", 0.05)
    it, site = await a_world(world)
    assert await ask(it) == b"GET /x of 1"
    await asyncio.sleep(0.3)
    assert site.ended == 1
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
    await asyncio.sleep(0.05)
    assert len(it.filter._kept._waiting) == 2
    assert site.ended == 2
    await it.filter.aclose()
    await asyncio.sleep(0.05)
    assert site.ended == 4


async def test_who_comes_back_after_the_end_is_sent_away(world):
    it, site = await a_world(world)
    await it.filter._kept.aclose()
    assert await ask(it) == b"GET /x of 1"
    assert site.ended == 1
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
    await asyncio.sleep(0.05)
    assert site.ended == 1
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
