"""What is caught reaches the outlet, in bounded numbers."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import resource
import socket
import struct
import time

import anyio
import pytest

from isobox._channel import trap as trapping
from isobox._channel.places import Places, available
from isobox._channel.trap import Trap, plain_address

pytestmark = pytest.mark.anyio

LOCAL = "127.0.0.1"


class Recorder:
    """An outlet that holds every connection until it is told to go on."""

    def __init__(self):
        self.seen = []
        self.questions = []
        self.going = asyncio.Event()
        self.answer = b"answer"
        self.ended = 0

    async def connected(self, connection, address, port):
        self.seen.append((address, port))
        try:
            await self.going.wait()
            await connection.send(b"served")
        finally:
            self.ended += 1

    def asked(self, query):
        self.questions.append(query)
        return self.answer


class Greeting(Recorder):
    """Tells every client something at once: it is in use."""

    async def connected(self, connection, address, port):
        await connection.send(b"hello")
        await super().connected(connection, address, port)


class Failing(Recorder):
    async def connected(self, connection, address, port):
        raise RuntimeError("a mistake of the outlet's")

    def asked(self, query):
        raise RuntimeError("a mistake of the outlet's")


async def until(condition):
    with anyio.fail_after(10):
        while not condition():
            await asyncio.sleep(0.001)


def stream(address=LOCAL):
    return socket.create_server((address, 0), backlog=1024)


def datagram():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IP, trapping._IP_PKTINFO, 1)
    sock.bind(("0.0.0.0", 0))
    return sock


@contextlib.asynccontextmanager
async def trapped(outlet, *sockets, grace=0.05, **options):
    trap = Trap(outlet, **options)
    trap.grace = grace
    try:
        await trap.open(sockets)
        yield trap
    finally:
        await trap.aclose()
        await trap.aclose()


@contextlib.contextmanager
def reported():
    """Collect what is reported to the loop, in place of a log."""
    found = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(context["message"]))
    try:
        yield found
    finally:
        loop.set_exception_handler(None)


def connect(listener, address=LOCAL):
    return socket.create_connection((address, listener.getsockname()[1]), timeout=10)


async def whole(client):
    with client.makefile("rb") as file:
        return await asyncio.to_thread(file.read)


async def received(client):
    return await asyncio.to_thread(client.recv, 100)


# -- connections ------------------------------------------------------------------


async def test_the_dialled_address_is_told():
    outlet, listener = Recorder(), stream("0.0.0.0")
    outlet.going.set()
    port = listener.getsockname()[1]
    async with trapped(outlet, listener):
        for address in ("127.0.0.1", "127.9.8.7"):
            with connect(listener, address) as client:
                assert await received(client) == b"served"
                assert await received(client) == b""
    assert outlet.seen == [("127.0.0.1", port), ("127.9.8.7", port)]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%lo", "fe80::1"),
        ("2001:DB8::1", "2001:db8::1"),
    ],
)
def test_an_address_is_plain(text, plain):
    assert plain_address(text) == plain


async def test_more_than_the_most_wait():
    outlet, one, two = Greeting(), stream(), stream()
    async with trapped(outlet, one, two, most=3):
        with contextlib.ExitStack() as held:
            clients = [
                held.enter_context(connect(listener))
                for listener in (one, two, one, two, one)
            ]
            await until(lambda: len(outlet.seen) == 3)
            await asyncio.sleep(0.05)
            assert len(outlet.seen) == 3
            outlet.going.set()
            for client in clients:
                assert await whole(client) == b"helloserved"
    assert (len(outlet.seen), outlet.ended) == (5, 5)


class Waiting(Recorder):
    """Serves who has said the head of a request."""

    async def connected(self, connection, address, port):
        self.seen.append((address, port))
        try:
            said = b""
            while not said.endswith(b"\r\n\r\n"):
                piece = await connection.receive()
                if not piece:
                    return
                said += piece
            await self.going.wait()
            await connection.send(b"served")
        finally:
            self.ended += 1


async def test_the_oldest_that_said_nothing_makes_room():
    outlet, listener = Waiting(), stream()
    async with trapped(outlet, listener, most=4):
        with contextlib.ExitStack() as held:
            asking = held.enter_context(connect(listener))
            for piece in (b"GET / HTTP/1.1\r\n\r", b"\n"):
                asking.send(piece)
                await asyncio.sleep(0.01)
            idle = [held.enter_context(connect(listener)) for _ in range(20)]
            for client in idle[:10]:
                client.send(b"GET / HTTP/1.1\r\n")
            good = held.enter_context(connect(listener))
            good.send(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: len(outlet.seen) == 22 and outlet.ended == 18)
            outlet.going.set()
            assert await whole(asking) == await whole(good) == b"served"
            with pytest.raises(ConnectionResetError):
                await received(idle[0])


async def test_places_are_shared_by_sandboxes():
    places = Places(lambda: 8)
    greedy, modest = Greeting(), Waiting()
    one, two = stream(), stream()
    async with trapped(greedy, one, places=places):
        with contextlib.ExitStack() as held:
            clients = [held.enter_context(connect(one)) for _ in range(12)]
            await until(lambda: len(greedy.seen) == 6)
            async with trapped(modest, two, places=places):
                good = held.enter_context(connect(two))
                good.send(b"GET / HTTP/1.1\r\n\r\n")
                modest.going.set()
                assert await whole(good) == b"served"
                assert len(greedy.seen) == 6
            greedy.going.set()
            for client in clients:
                assert await whole(client) == b"helloserved"


async def test_idle_connections_of_one_sandbox_keep_no_other_out():
    places = Places(lambda: 8)
    greedy, modest = Waiting(), Waiting()
    one, two = stream(), stream()
    modest.going.set()
    async with trapped(greedy, one, places=places):
        with contextlib.ExitStack() as held:
            for _ in range(30):
                held.enter_context(connect(one))
            await until(lambda: len(greedy.seen) == 30)
            assert greedy.ended == 24
            async with trapped(modest, two, places=places):
                for _ in range(9):
                    good = held.enter_context(connect(two))
                    good.send(b"GET / HTTP/1.1\r\n\r\n")
                    assert await whole(good) == b"served"


async def test_who_has_less_than_its_part_takes_from_who_has_more():
    total = 8
    places = Places(lambda: total)
    greedy, modest = Waiting(), Waiting()
    one, two = stream(), stream()
    async with trapped(greedy, one, places=places):
        with contextlib.ExitStack() as held:
            for _ in range(6):
                held.enter_context(connect(one))
            await until(lambda: len(greedy.seen) == 6)
            async with trapped(modest, two, places=places):
                for _ in range(4):
                    client = held.enter_context(connect(two))
                    client.send(b"GET / HTTP/1.1\r\n\r\n")
                await until(lambda: len(modest.seen) == 4)
                await until(lambda: greedy.ended == 2)
                assert modest.ended == 0


async def test_a_crowd_that_comes_at_once_is_served_whole():
    outlet, listener = Waiting(), stream()
    outlet.going.set()
    async with trapped(outlet, listener, most=4, grace=10):
        with contextlib.ExitStack() as held:
            clients = [held.enter_context(connect(listener)) for _ in range(20)]
            await until(lambda: len(outlet.seen) == 4)
            await asyncio.sleep(0.05)
            for client in clients:
                client.send(b"GET / HTTP/1.1\r\n\r\n")
            for client in clients:
                assert await whole(client) == b"served"
    assert outlet.ended == 20


def test_places_come_from_the_soft_limit(monkeypatch):
    for soft, expected in ((1024, 384), (4, 1), (resource.RLIM_INFINITY, 1 << 20)):
        monkeypatch.setattr(
            resource, "getrlimit", lambda _, soft=soft: (soft, resource.RLIM_INFINITY)
        )
        assert available() == expected


async def test_closing_ends_what_is_open():
    outlet, listener = Recorder(), stream()
    async with trapped(outlet, listener):
        client = connect(listener)
        await until(lambda: outlet.seen)
    with client:
        assert await received(client) == b""
    assert outlet.ended == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        listener.getsockname()


async def test_a_mistake_of_the_outlet_costs_one_connection():
    outlet, listener, questions = Failing(), stream(), datagram()
    async with trapped(outlet, listener, questions):
        with reported() as found:
            for _ in range(2):
                with connect(listener) as client:
                    assert await received(client) == b""
            for _ in range(2):
                with asker(questions) as client:
                    client.send(b"?")
            await until(lambda: len(found) == 4)
    assert set(found) == {
        "a caught connection was not served",
        "a question for a name was not answered",
    }


async def test_without_descriptors_it_waits_for_some():
    outlet, listener = Recorder(), stream()
    outlet.going.set()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with trapped(outlet, listener):
        with connect(listener) as client:
            assert await received(client) == b"served"
        with contextlib.ExitStack() as held:
            clients = [held.enter_context(connect(listener)) for _ in range(4)]
            used = max(map(int, os.listdir("/proc/self/fd"))) + 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
            filled = list(_every_descriptor())
            try:
                began = time.process_time()
                await asyncio.sleep(0.5)
                assert time.process_time() - began < 0.25
                assert len(outlet.seen) == 1
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for fd in filled:
                    os.close(fd)
            for client in clients:
                assert await received(client) == b"served"


def _every_descriptor():
    with contextlib.suppress(OSError):
        while True:
            yield os.open("/dev/null", os.O_RDONLY)


async def test_a_client_that_is_gone_again_is_no_matter():
    outlet, listener = Recorder(), stream()
    outlet.going.set()
    async with trapped(outlet, listener):
        for _ in range(20):
            client = connect(listener)
            once = struct.pack("ii", 1, 0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, once)
            client.close()
        with reported(), connect(listener) as client:
            assert await received(client) == b"served"


# -- questions --------------------------------------------------------------------


def asker(sock, address=LOCAL):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(10)
    client.connect((address, sock.getsockname()[1]))
    return client


async def test_an_answer_leaves_from_where_the_question_went():
    outlet, questions = Recorder(), datagram()
    async with trapped(outlet, questions):
        for address in (LOCAL, "127.5.5.5"):
            with asker(questions, address) as client:
                client.send(b"question")
                assert await received(client) == b"answer"
    assert outlet.questions == [b"question", b"question"]


async def test_some_questions_have_no_answer():
    outlet, questions = Recorder(), datagram()
    outlet.answer = None
    async with trapped(outlet, questions):
        with asker(questions) as client:
            client.send(b"")
            client.send(bytes(5000))
            client.send(b"last")
            await until(lambda: len(outlet.questions) == 2)
    assert outlet.questions == [b"", b"last"]


async def test_an_answer_that_cannot_be_sent_is_lost():
    outlet, questions = Recorder(), datagram()
    outlet.answer = bytes(100_000)
    async with trapped(outlet, questions):
        with asker(questions) as client:
            client.send(b"long")
            await until(lambda: outlet.questions)
            outlet.answer = b"short"
            client.send(b"again")
            assert await received(client) == b"short"


@pytest.fixture
def port(monkeypatch):
    """A listener whose port counts as that of questions."""
    listener = stream()
    monkeypatch.setattr(trapping, "DNS", listener.getsockname()[1])
    return listener


def framed(*queries):
    return b"".join(len(query).to_bytes(2, "big") + query for query in queries)


async def test_questions_over_tcp_are_answered_in_turn(port):
    outlet = Recorder()
    async with trapped(outlet, port):
        with connect(port) as client:
            for byte in framed(b"one", b"two"):
                client.send(bytes((byte,)))
                await asyncio.sleep(0)
            found = b""
            while len(found) < 16:
                found += await received(client)
            assert found == framed(b"answer", b"answer")
            client.shutdown(socket.SHUT_WR)
            assert await received(client) == b""
    assert (outlet.questions, outlet.seen) == ([b"one", b"two"], [])


@pytest.mark.parametrize("said", [b"\xff\xff", framed(bytes(5000)), b"\0", b""])
async def test_no_question_over_tcp_ends_the_connection(port, said):
    outlet = Recorder()
    async with trapped(outlet, port):
        with connect(port) as client:
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert await received(client) == b""
    assert outlet.questions == []


async def test_no_answer_over_tcp_ends_the_connection(port):
    outlet = Recorder()
    outlet.answer = None
    async with trapped(outlet, port):
        with connect(port) as client:
            client.sendall(framed(b"one", b"two"))
            with contextlib.suppress(ConnectionResetError):
                assert await received(client) == b""
    assert outlet.questions == [b"one"]


async def test_a_slow_question_is_not_waited_for(port, monkeypatch):
    monkeypatch.setattr(trapping, "_QUESTION", 0.05)
    async with trapped(Recorder(), port):
        with connect(port) as client:
            client.sendall(b"\0\5half")
            with contextlib.suppress(ConnectionResetError):
                assert await received(client) == b""


def test_it_serves_where_nothing_says_which_loop_runs():
    async def serve():
        outlet, listener = Recorder(), stream()
        outlet.going.set()
        async with trapped(outlet, listener):
            with connect(listener) as client:
                assert await received(client) == b"served"

    # The plugin's own tests run in a context that says it.
    contextvars.Context().run(asyncio.run, serve())
