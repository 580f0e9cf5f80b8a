"""The engine's streams, cut and handed over, whatever the engine says."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._backends.docker.hijack import Cutter, Hijacked, open_stream
from isobox._backends.docker.places import Place
from isobox.errors import SandboxLostError

pytestmark = pytest.mark.anyio

UPGRADE = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def header(output: int, size: int) -> bytes:
    return bytes((output, 0, 0, 0)) + size.to_bytes(4, "big")


def framed(*pieces: tuple[int, bytes]) -> bytes:
    return b"".join(header(output, len(data)) + data for output, data in pieces)


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8),
    st.lists(st.integers(1, 30), max_size=20),
)
def test_pieces_arrive_however_they_are_cut(pieces, cuts):
    data, found = framed(*pieces), {1: b"", 2: b""}

    def printed(output: int, piece: bytes) -> None:
        found[output] += piece

    cutter = Cutter(printed)
    at = 0
    for cut in [*cuts, len(data)]:
        cutter.feed(data[at : at + cut])
        at += cut
    for output in (1, 2):
        assert found[output] == b"".join(data for o, data in pieces if o == output)


@given(st.binary(max_size=200))
def test_any_bytes_are_cut(data):
    Cutter(lambda *_: None).feed(data)


class Receiver(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost = asyncio.Event()
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data

    def connection_lost(self, exc):
        assert not self.lost.is_set()
        self.lost.set()


@contextlib.asynccontextmanager
async def engine(*answers: bytes, then=None):
    """An engine that says what it is told to, whatever it is asked."""
    asked: list[bytes] = []
    served = asyncio.Event()

    async def serve(reader, writer):
        with contextlib.suppress(ConnectionError):
            asked.append(head := await reader.readuntil(b"\r\n\r\n"))
            length = head.lower().partition(b"content-length: ")[2].split()[0]
            await reader.readexactly(int(length))
            for answer in answers:
                writer.write(answer)
                await writer.drain()
                await asyncio.sleep(0.01)
            if then is not None:
                await then(reader, writer)
        writer.close()
        served.set()

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "socket")
        server = await asyncio.start_unix_server(serve, path)
        async with server:
            yield Place(f"unix://{path}", "test"), asked
            await asyncio.wait_for(served.wait(), 5)


async def test_a_stream_carries_both_ways():
    async def echo(reader, writer):
        writer.write(framed((1, await reader.readexactly(5))))
        await writer.drain()

    async with engine(UPGRADE, then=echo) as (place, asked):
        stream = await open_stream(place, "/v1.41/x", {"Tty": False})
        receiver = Receiver()
        stream.give(receiver)
        stream.write(b"hello")
        await asyncio.wait_for(receiver.lost.wait(), 5)
    assert receiver.data == b"hello"
    assert asked[0].startswith(b"POST /v1.41/x HTTP/1.1\r\n")


async def test_what_comes_with_the_upgrade_is_not_lost():
    async with engine(UPGRADE + framed((1, b"early"), (2, b"why"))) as (place, _):
        stream = await open_stream(place, "/x")
        await asyncio.sleep(0.05)
        receiver = Receiver()
        stream.give(receiver)
        await asyncio.wait_for(receiver.lost.wait(), 5)
    assert receiver.data == b"early"
    assert stream.complaint == b"why"


class Listener(Receiver):
    """Takes pieces of both outputs, as a program's owner does."""

    def __init__(self, stream: Hijacked) -> None:
        super().__init__()
        self.pieces: list[tuple[int, bytes]] = []
        stream.on_piece = lambda *piece: self.pieces.append(piece)
        stream.give(self)

    def connection_lost(self, exc):
        self.pieces.append((0, b""))
        super().connection_lost(exc)


@pytest.mark.parametrize("late", [False, True])
async def test_what_is_printed_before_somebody_listens_is_told_in_order(late):
    first = framed((2, b"pid"), (1, b"out"), (2, b"why"), (3, b"engine"))

    async def go_on(reader, writer):
        await go.wait()
        writer.write(framed((1, b"late")))

    go = asyncio.Event()
    if late:
        go.set()
    async with engine(UPGRADE + first, then=go_on) as (place, _):
        stream = await open_stream(place, "/x")
        while late and not stream._ended:
            await asyncio.sleep(0)
        listener = Listener(stream)
        go.set()
        await asyncio.wait_for(listener.lost.wait(), 5)
    early = [(2, b"pid"), (1, b"out"), (2, b"why"), (3, b"engine")]
    assert listener.pieces == [*early, (1, b"late"), (0, b"")]


async def test_a_terminal_may_print_before_somebody_listens():
    async with engine(UPGRADE + b"hello") as (place, _):
        stream = await open_stream(place, "/x", plain=True)
        while not stream._ended:
            await asyncio.sleep(0)
        listener = Listener(stream)
        await asyncio.wait_for(listener.lost.wait(), 5)
    assert listener.pieces == [(1, b"hello"), (0, b"")]


async def test_who_floods_before_somebody_listens_has_to_wait():
    async with engine(UPGRADE, framed((1, bytes(8 << 20)))) as (place, _):
        stream = await open_stream(place, "/x")
        while stream._transport.is_reading():
            await asyncio.sleep(0)
        assert stream._early_size < 1 << 20
        receiver = Receiver()
        stream.give(receiver)
        await asyncio.wait_for(receiver.lost.wait(), 5)
    assert receiver.data == bytes(8 << 20)


async def test_a_flood_of_complaints_is_not_kept():
    async with engine(UPGRADE, framed((2, bytes(1 << 20)))) as (place, _):
        stream = await open_stream(place, "/x")
        receiver = Receiver()
        stream.give(receiver)
        await asyncio.wait_for(receiver.lost.wait(), 5)
    assert len(stream.complaint) == 8192


REFUSALS = {
    "refused": (
        b"HTTP/1.1 409 Conflict\r\nContent-Length: 11\r\n\r\nnot running",
        "409.*not running",
    ),
    "without reason": (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "500"),
    "no HTTP": (b"\x00\x01\x02 what\r\n\r\n", "HTTP"),
    "nothing": (b"", "hung up"),
    "half": (b"HTTP/1.1 101 UPGR", "hung up"),
    "another upgrade": (b"HTTP/1.1 103 Early Hints\r\n\r\n", "hung up"),
    "a huge header": (b"HTTP/1.1 101 U\r\nX: " + bytes(200_000), "HTTP|hung up"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_is_told(case):
    answer, words = REFUSALS[case]
    async with engine(answer) as (place, _):
        with pytest.raises(SandboxLostError, match=words):
            await asyncio.wait_for(open_stream(place, "/x"), 5)


async def abandoned(place):
    """Have a stream that ends, and that nobody waits for."""
    ended = asyncio.Event()
    stream = Hijacked("/x", None, "docker")
    stream.on_end = ended.set
    await asyncio.get_running_loop().create_unix_connection(lambda: stream, place.path)
    await asyncio.wait_for(ended.wait(), 5)


async def test_nobody_is_told_of_a_stream_that_nobody_waits_for(monkeypatch):
    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_exception_handler", complaints.append)
    async with engine(b"") as (place, _):
        await abandoned(place)
    gc.collect()
    assert complaints == []
