"""What comes back from the hosts of secrets, and how what was switched to ends."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.egress.test_filter import GET, get, said_by, secret, secured, world
from tests.unit.egress.test_kept import TRUSTING

from isobox._egress import http
from isobox._egress.wire import Secured

__all__ = ["world"]

pytestmark = pytest.mark.anyio

VALUE = b"correct-horse-battery"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n"
)
SWITCH = b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


async def client_of(it):
    client = Secured(it.dial(it.address("a.test"), 443), TRUSTING, host="a.test")
    await client.shake()
    return client


async def heard(client, end):
    said = b""
    async with asyncio.timeout(10):
        while not said.endswith(end):
            data = await client.receive()
            assert data, said
            said += data
    return said


async def learned(it):
    await it.vault._value(it.vault._secrets[0])


async def test_a_value_that_is_read_later_is_masked_in_an_answer_that_began(world):
    it = await world("a.test", secrets=[secret()])
    known = asyncio.Event()

    async def serve(connection):
        await connection.receive()
        await connection.send(CHUNKED + b"2\r\n: \r\n")
        await known.wait()
        await connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(VALUE), VALUE))

    it.servers["a.test", 443] = secured(serve)
    async with await client_of(it) as client:
        await client.send(get("a.test"))
        await heard(client, b"2\r\n: \r\n")
        await learned(it)
        known.set()
        said = await heard(client, b"0\r\n\r\n")
    assert b"*" * len(VALUE) in said
    assert VALUE not in said


async def test_a_value_is_masked_on_every_port_of_its_host(world):
    it = await world("a.test", secrets=[secret()])
    await learned(it)

    async def serve(connection):
        await connection.receive()
        await connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(VALUE), VALUE)
        )

    it.servers["a.test", 80] = serve
    said = await said_by(it.dial(it.address("a.test"), 80), GET)
    assert said.endswith(b"\r\n\r\n" + b"*" * len(VALUE))


@pytest.mark.parametrize(
    ("head", "piece", "shown"),
    [
        (CHUNKED, b"7\r\nbasic c\r\n", b"1\r\nc\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", b"basic c", b"basic c"),
    ],
)
async def test_what_only_begins_like_a_value_does_not_wait_for_long(
    world, monkeypatch, head, piece, shown
):
    monkeypatch.setattr(http, "_HELD_BACK", 0.01)
    monkeypatch.setattr(http, "_PATIENCE", 0.01)
    it = await world("a.test", secrets=[secret()])
    await learned(it)

    async def serve(connection):
        await connection.receive()
        await connection.send(head + piece)
        await connection.receive()

    it.servers["a.test", 443] = secured(serve)
    async with await client_of(it) as client:
        await client.send(get("a.test"))
        await heard(client, shown)


# -- WebSockets over TLS that is read ----------------------------------------------


async def test_that_a_server_ends_a_websocket_is_told(world):
    it = await world("a.test", secrets=[secret()])

    async def serve(connection):
        await connection.receive()
        await connection.send(SWITCH + b"hello")

    it.servers["a.test", 443] = secured(serve)
    async with await client_of(it) as client:
        await client.send(UPGRADE)
        await heard(client, b"hello")
        async with asyncio.timeout(10):
            assert await client.receive() == b""


async def test_that_a_client_ends_a_websocket_is_told(world, monkeypatch):
    monkeypatch.setattr("isobox._channel.join._LAST_WORDS", 0.05)
    it = await world("a.test", secrets=[secret()])
    ended, leave = asyncio.Event(), asyncio.Event()

    async def serve(connection):
        await connection.receive()
        await connection.send(SWITCH + b"hello")
        assert await connection.receive() == b""
        ended.set()
        await leave.wait()  # it says nothing, and does not hang up

    it.servers["a.test", 443] = secured(serve)
    client = await client_of(it)
    await client.send(UPGRADE)
    await heard(client, b"hello")
    await client.aclose()
    async with asyncio.timeout(10):
        await ended.wait()
        await asyncio.wait([it.serving[0]])
    assert it.filter._budget._alive == 0
    leave.set()
