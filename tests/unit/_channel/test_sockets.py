"""Sockets as connections."""

from __future__ import annotations

import asyncio
import os
import socket
import time

import anyio
import pytest

from isobox._channel.sockets import PIECE, SocketConnection

pytestmark = pytest.mark.anyio


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


@pytest.fixture
async def pair(listener):
    """A connection, and the socket at its other end."""
    other = socket.create_connection(listener.getsockname())
    sock, _ = listener.accept()
    connection = SocketConnection(sock)
    with other:
        yield connection, other
        await connection.aclose()


async def whole(connection):
    return b"".join([piece async for piece in connection])


async def test_bytes_go_both_ways(pair):
    connection, other = pair
    await connection.send(b"there")
    assert other.recv(100) == b"there"
    other.sendall(b"back")
    assert await connection.receive() == b"back"


async def test_either_side_may_end_first(pair):
    connection, other = pair
    await connection.send_eof()
    assert other.recv(1) == b""
    other.sendall(b"more")
    other.shutdown(socket.SHUT_WR)
    assert await whole(connection) == b"more"
    assert await connection.receive() == b""


async def test_a_piece_is_bounded(pair):
    connection, other = pair
    content = os.urandom(4 * PIECE)
    sending = asyncio.to_thread(_send_all, other, content)
    task = asyncio.create_task(sending)
    pieces = [piece async for piece in connection]
    await task
    assert b"".join(pieces) == content
    assert max(map(len, pieces)) <= PIECE


def _send_all(sock, content):
    sock.setblocking(True)
    sock.sendall(content)
    sock.shutdown(socket.SHUT_WR)


async def test_a_slow_reader_is_waited_for(pair):
    connection, other = pair
    content = os.urandom(20_000_000)
    sending = asyncio.create_task(connection.send(content))
    await asyncio.sleep(0.05)
    assert not sending.done()
    got = await asyncio.to_thread(_read, other, len(content))
    await sending
    assert got == content


def _read(sock, size):
    found = bytearray()
    while len(found) < size:
        found += sock.recv(1 << 20)
    return bytes(found)


async def test_a_cancelled_receive_loses_nothing(pair):
    connection, other = pair
    for _ in range(3):
        with anyio.move_on_after(0.01):
            await connection.receive()
    other.sendall(b"kept")
    assert await connection.receive() == b"kept"


@pytest.mark.parametrize("at_once", [False, True])
async def test_what_was_read_for_a_cancelled_receive_stays(pair, at_once):
    connection, other = pair
    receiving = asyncio.create_task(connection.receive())
    await asyncio.sleep(0)
    other.sendall(b"kept")
    # As the loop does, just before the task is cancelled.
    connection._arrived()
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    if at_once:
        assert connection.receive_nowait() == b"kept"
    else:
        assert await connection.receive() == b"kept"


async def test_bytes_that_nobody_waits_for_do_not_keep_the_loop_busy(pair):
    connection, other = pair
    receiving = asyncio.create_task(connection.receive())
    await asyncio.sleep(0)
    other.sendall(b"one")
    assert await receiving == b"one"
    other.sendall(b"two")
    busy = time.process_time()
    await asyncio.sleep(0.2)
    assert time.process_time() - busy < 0.1
    assert await connection.receive() == b"two"


async def test_a_cancelled_send_ends(pair):
    connection, _ = pair
    with anyio.move_on_after(0.05) as scope:
        await connection.send(bytes(50_000_000))
    assert scope.cancelled_caught


async def test_closing_wakes_who_waits(pair):
    connection, _ = pair
    receiving = asyncio.create_task(connection.receive())
    sending = asyncio.create_task(connection.send(bytes(50_000_000)))
    await asyncio.sleep(0.01)
    await connection.aclose()
    assert await receiving == b""
    with pytest.raises(BrokenPipeError):
        await sending


async def test_closing_spares_who_has_its_number_next(pair, listener):
    connection, _ = pair
    receiving = asyncio.create_task(connection.receive())
    await asyncio.sleep(0)
    number = connection._sock.fileno()
    await connection.aclose()
    with socket.create_connection(listener.getsockname()) as client:
        sock, _ = listener.accept()
        assert number in (client.fileno(), sock.fileno())
        mine, other = (client, sock) if client.fileno() == number else (sock, client)
        second = SocketConnection(mine)
        waiting = asyncio.create_task(second.receive())
        await asyncio.sleep(0)
        await receiving
        other.sendall(b"seen")
        with anyio.fail_after(5):
            assert await waiting == b"seen"
        await second.aclose()
        other.close()


async def test_it_is_closed_once(pair):
    connection, other = pair
    ends = []
    connection.on_end(ends.append)
    for _ in range(2):
        await connection.aclose()
        await connection.abort()
    await connection.send_eof()
    assert (ends, other.recv(1)) == ([{}], b"")
    assert await connection.receive() == b""
    assert connection.receive_nowait() == b""
    with pytest.raises(BrokenPipeError):
        await connection.send(b"x")


async def test_an_abort_is_seen_as_one(pair):
    connection, other = pair
    await connection.abort()
    with pytest.raises(ConnectionResetError):
        other.recv(1)


async def test_an_abort_of_the_other_side_is_an_error(pair):
    connection, other = pair
    await SocketConnection(other).abort()
    with pytest.raises(ConnectionResetError):
        await connection.receive()
    with pytest.raises(BrokenPipeError):
        await connection.send(b"x")
    await connection.send_eof()


async def test_what_is_there_is_received_at_once(pair):
    connection, other = pair
    assert connection.receive_nowait() == b""
    other.sendall(b"there")
    with anyio.fail_after(5):
        while not (got := connection.receive_nowait()):
            await asyncio.sleep(0.001)
    assert got == b"there"


async def test_a_fast_peer_has_not_the_loop_for_itself(pair):
    connection, other = pair
    stop = time.monotonic() + 0.3
    feeding = asyncio.create_task(asyncio.to_thread(_feed, other, stop))
    longest, turns = 0.0, 0

    async def watch():
        nonlocal longest, turns
        while time.monotonic() < stop:
            began = time.monotonic()
            await asyncio.sleep(0)
            longest, turns = max(longest, time.monotonic() - began), turns + 1

    watching = asyncio.create_task(watch())
    while await connection.receive():
        pass
    await watching
    await feeding
    assert turns > 5


def _feed(sock, stop):
    sock.setblocking(True)
    while time.monotonic() < stop:
        sock.sendall(bytes(1 << 20))
    sock.shutdown(socket.SHUT_WR)
