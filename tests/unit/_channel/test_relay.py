"""Ports that a guest opens, with an honest guest and with liars."""

from __future__ import annotations

import asyncio
import errno
import struct
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._channel.liar import ISOLATION, ROOT, Liar

from isobox._channel import relay
from isobox._channel.channel import Channel
from isobox._channel.sandbox import ChannelSandbox
from isobox._core import ops
from isobox._guest import agent
from isobox.abc import Capture
from isobox.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    ProtocolError,
    SandboxLostError,
    StorageError,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio

LISTEN = ops.Listen(port=8080)
FIRST = agent.ACCEPTED | 1
HEADER = struct.Struct(">HH")


def sandbox_over(channel, *capabilities, caught=None):
    return ChannelSandbox(
        channel,
        backend="liar",
        root=ROOT,
        capabilities=frozenset(capabilities),
        isolation=ISOLATION,
        caught=caught,
    )


@asynccontextmanager
async def lied_to(*capabilities, caught=None):
    liar = Liar()
    channel = await Channel.over(liar.theirs)
    sandbox = sandbox_over(channel, *(capabilities or ("listen",)), caught=caught)
    try:
        yield liar, sandbox
    finally:
        await sandbox.aclose()
        await liar.aclose()


@asynccontextmanager
async def listening():
    """A liar that listens, the stream that it does so on, and the listener."""
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(sandbox.listen(LISTEN))
        stream, fields = await liar.opened()
        assert (fields["op"], fields["host"], fields["port"]) == (
            "listen",
            "127.0.0.1",
            8080,
        )
        await told(liar, stream)
        yield liar, stream, await task, sandbox.channel


async def told(liar, stream, port=8080):
    await liar.say(
        agent.EVENT, stream, agent.encode({"event": "listening", "port": port})
    )


async def accepted(liar, stream, number=FIRST, **changes):
    fields = {"listener": stream, "address": "127.0.0.1", "port": 8080, **changes}
    await liar.say(agent.ACCEPT, number, agent.encode(fields))


async def until(condition):
    with anyio.fail_after(5):
        while not condition():
            await asyncio.sleep(0.001)


async def broken(channel):
    await until(lambda: channel.failure is not None)
    assert isinstance(channel.failure, ProtocolError)


async def heard(liar, kind, stream):
    """Return the next frame of a kind on a stream."""
    with anyio.fail_after(5):
        while said := await liar.hear():
            if said[:2] == (kind, stream):
                return said[2]
    raise EOFError


# -- an honest guest --------------------------------------------------------------


async def test_a_connection_is_accepted_and_carried():
    async with listening() as (liar, stream, listener, _):
        assert listener.port == 8080
        task = asyncio.create_task(listener.accept())
        await accepted(liar, stream, address="127.64.1.2")
        connection = await task
        assert (connection.address, connection.port) == ("127.64.1.2", 8080)
        await liar.say(agent.DATA, FIRST, b"\0hello")
        assert await connection.receive() == b"hello"
        await connection.send(b"back")
        assert await heard(liar, agent.DATA, FIRST) == b"\0back"
        assert (agent.CREDIT, stream, b"\0\0\0\0\1") in liar.heard


async def test_an_abort_is_passed_on():
    async with listening() as (liar, stream, listener, _):
        await accepted(liar, stream)
        connection = await listener.accept()
        closing = asyncio.create_task(connection.abort())
        said = await heard(liar, agent.CONTROL, FIRST)
        assert agent.decode(said) == {"do": "abort"}
        await heard(liar, agent.CONTROL, FIRST)
        await liar.result(FIRST, {})
        await closing


async def test_two_may_wait_for_a_connection():
    async with listening() as (liar, stream, listener, _):
        waiting = [asyncio.create_task(listener.accept()) for _ in range(2)]
        await asyncio.sleep(0)
        for number in (1, 2):
            await accepted(liar, stream, agent.ACCEPTED | number)
        assert len({await each for each in waiting}) == 2


async def test_what_comes_until_the_port_is_closed_is_broken_off():
    async with listening() as (liar, stream, listener, channel):
        ends = []
        listener.on_end(ends.append)
        closing = asyncio.create_task(listener.aclose())
        await heard(liar, agent.CONTROL, stream)
        await accepted(liar, stream)
        await liar.result(stream, {})
        await heard(liar, agent.CONTROL, FIRST)
        await liar.result(FIRST, {})
        await closing
        await listener.aclose()
        assert ends == [{}]
        with pytest.raises(BrokenPipeError):
            await listener.accept()
        await accepted(liar, stream, agent.ACCEPTED | 2)
        await broken(channel)


async def test_a_lost_sandbox_is_told_to_who_waits():
    async with listening() as (liar, _, listener, _channel):
        task = asyncio.create_task(listener.accept())
        await asyncio.sleep(0)
        liar.sock.close()
        with pytest.raises(SandboxLostError):
            await task
        await listener.aclose()


@pytest.mark.parametrize(
    ("code", "number", "kind"),
    [
        ("storage", errno.EADDRINUSE, StorageError),
        ("access", errno.EACCES, StorageError),
        ("internal", 0, SandboxLostError),
    ],
)
async def test_a_port_that_cannot_be_opened(code, number, kind):
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(sandbox.listen(LISTEN))
        stream, _ = await liar.opened()
        fields = {"code": code, "message": "m", "errno": number, "path": None}
        await liar.say(agent.ERROR, stream, agent.encode(fields))
        with pytest.raises(kind) as caught:
            await task
        assert sandbox.channel.listeners == {}
        if number:
            assert caught.value.errno == number
            assert "port 8080 cannot be opened inside" in str(caught.value)


async def test_a_cancelled_listen_leaves_nothing():
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(sandbox.listen(LISTEN))
        stream, _ = await liar.opened()
        task.cancel()
        await heard(liar, agent.CONTROL, stream)
        await liar.result(stream, {})
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sandbox.channel.listeners == {}


async def test_without_the_capability_it_is_refused():
    async with lied_to("dial") as (_, sandbox):
        with pytest.raises(UnsupportedError, match="liar"):
            await sandbox.listen(LISTEN)


# -- liars ------------------------------------------------------------------------


@pytest.mark.parametrize("port", [0, -1, 65536, True, None, "80", 8081])
async def test_a_port_that_is_none_or_another(port):
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(sandbox.listen(LISTEN))
        stream, _ = await liar.opened()
        await told(liar, stream, port)
        await broken(sandbox.channel)
        with pytest.raises(SandboxLostError):
            await task


@pytest.mark.parametrize(
    "changes",
    [
        {"listener": 77},
        {"listener": None},
        {"listener": True},
        {"listener": [1]},
        {"address": None},
        {"address": "localhost"},
        {"address": "::1"},
        {"address": "1" * 100},
        {"port": 0},
        {"port": True},
        {"port": 65536},
        {"number": 1},
        {"number": agent.ACCEPTED - 1},
    ],
)
async def test_a_connection_that_cannot_be(changes):
    async with listening() as (liar, stream, listener, channel):
        number = changes.pop("number", FIRST)
        await accepted(liar, stream, number, **changes)
        await broken(channel)
        with pytest.raises(SandboxLostError):
            await listener.accept()


async def test_the_same_connection_twice():
    async with listening() as (liar, stream, _, channel):
        for _ in range(2):
            await accepted(liar, stream)
        await broken(channel)


async def test_a_connection_before_the_port_is_open():
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(sandbox.listen(LISTEN))
        stream, _ = await liar.opened()
        await accepted(liar, stream)
        await broken(sandbox.channel)
        with pytest.raises(SandboxLostError):
            await task


async def test_more_connections_than_were_granted():
    async with listening() as (liar, stream, _, channel):
        for number in range(agent.WAITING):
            await accepted(liar, stream, agent.ACCEPTED | number)
        await asyncio.sleep(0.01)
        assert channel.failure is None
        await accepted(liar, stream, agent.ACCEPTED | agent.WAITING)
        await broken(channel)


async def test_more_bytes_than_were_granted():
    async with listening() as (liar, stream, _, channel):
        await accepted(liar, stream)
        for _ in range(agent.ACCEPTED_WINDOW // agent.PIECE):
            await liar.say(agent.DATA, FIRST, b"\0" + bytes(agent.PIECE))
        await asyncio.sleep(0.01)
        assert channel.failure is None
        await liar.say(agent.DATA, FIRST, b"\0x")
        await broken(channel)


async def test_a_port_that_is_told_twice():
    async with listening() as (liar, stream, _, channel):
        await told(liar, stream)
        await broken(channel)


# -- what is caught ---------------------------------------------------------------


class Recorder:
    def __init__(self):
        self.seen = []
        self.questions = []

    async def connected(self, connection, address, port):
        self.seen.append((address, port))
        await connection.send(b"served")

    def asked(self, query):
        self.questions.append(query)
        return b"answer"


CAUGHT = Capture(ports=(80, 443), proxy_port=3128)


class Porter(Liar):
    """Opens what it is asked to, but for the ports that it may not have."""

    def __init__(self, *closed):
        super().__init__()
        self.closed = closed
        self.ports = {}
        self.datagrams = 0
        self.start(self.answer)

    async def answer(self, _, stream, fields):
        if fields["port"] in self.closed:
            refusal = {"code": "access", "message": "", "errno": errno.EACCES}
            await self.say(agent.ERROR, stream, agent.encode({**refusal, "path": None}))
            return
        if fields["op"] == "datagrams":
            self.datagrams = stream
        else:
            self.ports[fields["host"], fields["port"]] = stream
        await told(self, stream, fields["port"])


@asynccontextmanager
async def led(*closed, caught=CAUGHT):
    liar, outlet = Porter(*closed), Recorder()
    sandbox = sandbox_over(
        await Channel.over(liar.theirs), "capture", "listen", caught=caught
    )
    try:
        yield liar, sandbox, outlet
    finally:
        await sandbox.aclose()
        await liar.aclose()


async def test_every_port_is_led():
    async with led() as (liar, sandbox, outlet):
        assert await sandbox.capture(outlet) == "127.64.0.0/10"
        assert set(liar.ports) == {
            ("0.0.0.0", 80),
            ("0.0.0.0", 443),
            ("127.0.0.1", 53),
            ("127.0.0.1", 3128),
        }
        await accepted(liar, liar.ports["0.0.0.0", 443], address="127.64.0.9", port=443)
        await until(lambda: outlet.seen == [("127.64.0.9", 443)])


async def test_without_the_ports_the_filter_s_own_is_led():
    async with led(53, 80, 443) as (liar, sandbox, outlet):
        assert await sandbox.capture(outlet) == "127.64.0.0/10"
        assert set(liar.ports) == {("127.0.0.1", 3128)}
        assert not liar.datagrams


async def test_without_the_filter_s_own_port_there_is_no_start():
    async with led(3128) as (_, sandbox, outlet):
        with pytest.raises(BackendUnavailableError, match="port 3128"):
            await sandbox.capture(outlet)


async def test_the_filter_s_port_may_be_one_that_is_caught():
    caught = Capture(ports=(80, 3128), proxy_port=3128)
    async with led(caught=caught) as (liar, sandbox, outlet):
        await sandbox.capture(outlet)
        assert ("0.0.0.0", 3128) in liar.ports


async def test_it_is_led_once():
    async with led() as (_, sandbox, outlet):
        await sandbox.capture(outlet)
        with pytest.raises(InvalidArgumentError, match="already"):
            await sandbox.capture(outlet)


@pytest.mark.parametrize("caught", [None, CAUGHT])
async def test_it_is_led_only_where_that_was_asked(caught):
    capabilities = ("capture",) if caught is None else ("listen",)
    async with lied_to(*capabilities, caught=caught) as (_, sandbox):
        with pytest.raises(UnsupportedError, match="cannot filter the network"):
            await sandbox.capture(Recorder())


async def test_questions_are_answered():
    async with led() as (liar, sandbox, outlet):
        await sandbox.capture(outlet)
        said = HEADER.pack(7, 3) + b"one" + HEADER.pack(65535, 0)
        for byte in said:
            await liar.say(agent.DATA, liar.datagrams, bytes((0, byte)))
        await until(lambda: outlet.questions == [b"one", b""])
        expected = [HEADER.pack(each, 6) + b"answer" for each in (7, 65535)]
        await until(
            lambda: (
                [
                    payload[1:]
                    for kind, stream, payload in liar.heard
                    if (kind, stream) == (agent.DATA, liar.datagrams)
                ]
                == expected
            )
        )


async def test_too_long_a_question_is_a_lie():
    async with led() as (liar, sandbox, outlet):
        await sandbox.capture(outlet)
        said = HEADER.pack(7, agent.LONGEST_DATAGRAM + 1)
        await liar.say(agent.DATA, liar.datagrams, b"\0" + said)
        await broken(sandbox.channel)


async def test_no_more_are_served_than_the_most(monkeypatch):
    monkeypatch.setattr(relay, "MOST", 3)
    held = asyncio.Event()

    class Holding(Recorder):
        async def connected(self, connection, address, port):
            await super().connected(connection, address, port)
            await held.wait()

    async with led() as (liar, sandbox, _):
        outlet = Holding()
        await sandbox.capture(outlet)
        port = liar.ports["127.0.0.1", 3128]
        for number in range(5):
            await accepted(liar, port, agent.ACCEPTED | number, port=3128)
        await until(lambda: len(outlet.seen) == 3)
        await asyncio.sleep(0.02)
        assert len(outlet.seen) == 3
        for number in range(5):
            await liar.result(agent.ACCEPTED | number, {})
        held.set()
        await until(lambda: len(outlet.seen) == 5)


async def test_closing_ends_what_is_served():
    ended = []

    class Holding(Recorder):
        async def connected(self, connection, address, port):
            try:
                await connection.receive()
            finally:
                ended.append(port)

    async with led() as (liar, sandbox, _):
        await sandbox.capture(Holding())
        await accepted(liar, liar.ports["127.0.0.1", 3128], port=3128)
        await asyncio.sleep(0.02)
        with anyio.fail_after(2):
            await sandbox.aclose()
    assert ended == [3128]
    assert len(asyncio.all_tasks()) <= 2


@given(st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=50))), st.data())
def test_datagrams_are_the_same_however_they_are_cut(messages, data):
    said = b"".join(HEADER.pack(n, len(query)) + query for n, query in messages)
    held, found = bytearray(), []
    while said:
        size = data.draw(st.integers(1, len(said)))
        held += said[:size]
        said = said[size:]
        found += relay._datagrams(held)
    assert found == messages
    assert not held


@given(st.binary(max_size=500))
def test_no_bytes_make_it_hold_much(said):
    held = bytearray(said)
    try:
        for _, query in relay._datagrams(held):
            assert len(query) <= agent.LONGEST_DATAGRAM
    except ProtocolError:
        return
    assert len(held) < HEADER.size + agent.LONGEST_DATAGRAM
