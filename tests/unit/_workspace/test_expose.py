"""A port of the host's is led inside, in bounded numbers, whatever fails."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import anyio
import pytest

from isobox._channel.places import Places
from isobox._channel.sockets import SocketConnection
from isobox._core.ops import Connect, Listen
from isobox._core.results import Listener
from isobox._workspace import expose
from isobox._workspace.expose import Exposed
from isobox.errors import LimitError, SandboxLostError, UnreachableError

pytestmark = pytest.mark.anyio


class Inside(Listener):
    """A port inside, to which a test connects."""

    port = 8080

    def __init__(self):
        super().__init__()
        self._coming = asyncio.Queue()
        self.made = []
        self.taken = 0
        self.gone = False

    def dial(self):
        """Return a program's end of a new connection."""
        ours, theirs = self.pair()
        self._coming.put_nowait(theirs)
        return ours

    def pair(self):
        made = [SocketConnection(sock) for sock in socket.socketpair()]
        self.made += made
        return made

    def lose(self):
        self._coming.put_nowait(SandboxLostError("gone"))

    async def accept(self):
        coming = await self._coming.get()
        if isinstance(coming, Exception):
            raise coming
        self.taken += 1
        return coming

    async def aclose(self):
        self.gone = True
        self._ended({})


class Host:
    """A stack of which every connection is to a service of the host's."""

    def __init__(self):
        self.inside = Inside()
        self.failures = []
        self.told = []
        self.ops = []
        self.serving = []
        self.ending = []

    async def perform(self, op):
        if isinstance(op, Listen):
            return self.inside
        assert isinstance(op, Connect)
        self.ops.append((op.host, op.port, op.via))
        if self.failures:
            raise self.failures.pop(0)
        connection, service = self.inside.pair()
        self.serving.append(service)
        if self.ending:
            connection.on_end(self.ending.pop(0))
        return connection


@contextlib.asynccontextmanager
async def exposed(host, total=1000):
    made = Exposed(
        host.perform,
        5432,
        port=0,
        failed=host.told.append,
        places=Places(lambda: total),
    )
    await made.open()
    try:
        yield made
    finally:
        with anyio.fail_after(10):
            await made.aclose()
            await made.aclose()
        assert host.inside.gone


@pytest.fixture
async def host(monkeypatch):
    # None is ended for others but where a test wants it.
    monkeypatch.setattr(expose.Trap, "grace", 3600.0)
    made = Host()
    yield made
    for connection in made.inside.made:
        await connection.aclose()


async def until(condition):
    with anyio.fail_after(10):
        while not condition():
            await asyncio.sleep(0.001)


async def served(host):
    """Have a program exchange a word with the service."""
    program = host.inside.dial()
    async with program:
        await program.send(b"ping")
        await until(lambda: host.serving)
        async with host.serving.pop() as service:
            assert await service.receive() == b"ping"
            await service.send(b"pong")
            assert await program.receive() == b"pong"


async def ended(program):
    with anyio.fail_after(10), contextlib.suppress(ConnectionResetError):
        return await program.receive() == b""
    return True


async def test_a_program_reaches_the_service(host):
    async with exposed(host) as made:
        assert made.port == 8080
        assert repr(made) == "<Exposed 127.0.0.1:8080 leads to port 5432>"
        await served(host)
    assert host.ops == [("127.0.0.1", 5432, "exposed")]
    assert host.told == []


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (UnreachableError("nothing listens"), "nothing listens"),
        (
            RuntimeError("the value of a secret"),
            "a connection to port 5432 of the host failed: RuntimeError",
        ),
        (
            OSError(28, "/where/it/is"),
            "a connection to port 5432 of the host failed: OSError",
        ),
    ],
)
async def test_one_that_fails_takes_no_other_with_it(host, failure, said):
    host.failures.append(failure)
    async with exposed(host):
        assert await ended(host.inside.dial())
        await served(host)
    (told,) = host.told
    assert isinstance(told, UnreachableError)
    assert str(told) == said


async def test_one_that_is_refused_is_told_as_it_is(host):
    host.failures.append(LimitError("too many"))
    async with exposed(host):
        assert await ended(host.inside.dial())
        await served(host)
    assert [type(error) for error in host.told] == [LimitError]


async def test_one_whose_end_cannot_be_put_on_record_takes_no_other_with_it(host):
    def refuse(_):
        raise RuntimeError("the log's own error")

    host.ending.append(refuse)
    async with exposed(host):
        await served(host)
        await until(lambda: host.told)
        await served(host)
    (told,) = host.told
    assert str(told).endswith("failed: RuntimeError")


async def test_so_many_are_carried_at_once(host, monkeypatch):
    monkeypatch.setattr(expose, "_MOST", 3)
    async with exposed(host):
        programs = [host.inside.dial() for _ in range(5)]
        await until(lambda: host.inside.taken == 4)
        for service in host.serving:
            await service.send(b"hello")
        assert [await program.receive() for program in programs[:3]] == [b"hello"] * 3
        assert len(host.ops) == 3
        await programs[0].aclose()
        await host.serving[0].aclose()
        await until(lambda: len(host.ops) == 4)
        assert host.inside.taken == 5


async def test_all_take_places_of_the_process(host):
    other = Host()
    other.inside.made = host.inside.made
    places = Places(lambda: 8)
    for each in (host, other):
        each.made = Exposed(
            each.perform, 1, port=0, failed=each.told.append, places=places
        )
        await each.made.open()
    held = [host.inside.dial() for _ in range(20)]
    await until(lambda: len(host.ops) == 6)
    for service in host.serving:
        await service.send(b"hello")
    for program in held[:6]:
        assert await program.receive() == b"hello"
    await served(other)
    assert len(host.ops) == 6
    for each in (host, other):
        await each.made.aclose()
    assert not places._shares


async def test_an_idle_one_is_ended_for_who_waits(host, monkeypatch):
    monkeypatch.setattr(expose.Trap, "grace", 0.0)
    async with exposed(host, total=1):
        idle = host.inside.dial()
        await until(lambda: host.serving)
        host.serving.clear()
        await served(host)
        assert await ended(idle)


async def test_more_than_the_record_bears_wait(host, monkeypatch):
    slept, due = [], [0.0, 0.25, 0.5]

    class Slow:
        def spend(self):
            due.pop(0)

        @property
        def due(self):
            return due[0]

    async def sleep(seconds):
        slept.append(seconds)

    async with exposed(host) as made:
        made._pace = Slow()
        monkeypatch.setattr(expose.anyio, "sleep", sleep)
        for _ in range(3):
            await served(host)
    assert (slept, due) == ([0.25, 0.5], [])


async def test_it_ends_while_one_waits_for_a_place(host):
    async with exposed(host, total=1):
        held = host.inside.dial()
        waiting = host.inside.dial()
        await until(lambda: host.inside.taken == 2)
        await until(lambda: host.serving)
    assert await ended(waiting)
    assert await ended(held)
    assert len(host.ops) == 1


async def test_a_sandbox_that_is_lost(host):
    async with exposed(host):
        host.inside.lose()
        await until(host.inside._coming.empty)
