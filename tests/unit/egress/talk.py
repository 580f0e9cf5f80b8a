"""Both ends of a filter's connections, without a network."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field, replace

import h11

from isobox._channel.sockets import SocketConnection
from isobox._core.results import Connection
from isobox._egress.budget import Budget
from isobox._egress.http import HttpSession, Upstream
from isobox._egress.place import Place
from isobox._egress.refusal import explained
from isobox._egress.wire import BROKEN, Peeked
from isobox._policy.network import Network
from isobox.errors import PolicyDeniedError, UnreachableError

PLACE = Place("a.test", 80)


class Script(Connection):
    """A side that says what it has to say, and then leaves, stays or breaks."""

    def __init__(self, *pieces: bytes, then: str = "leaves"):
        super().__init__()
        self.pieces = [piece for piece in pieces if piece]
        self.then = then
        self.sent = bytearray()
        self.ends: list[str] = []

    async def receive(self) -> bytes:
        await asyncio.sleep(0)
        if self.pieces:
            return self.pieces.pop(0)
        if self.then == "stays":
            await asyncio.sleep(3600)
        if self.then == "breaks":
            raise ConnectionResetError
        return b""

    async def send(self, data: bytes) -> None:
        await asyncio.sleep(0)
        self.sent += data

    async def send_eof(self) -> None:
        self.ends.append("eof")

    async def abort(self) -> None:
        self.ends.append("abort")
        self._ended({})

    async def aclose(self) -> None:
        self.ends.append("close")
        self._ended({})


class Server(Connection):
    """A server that gives each request an answer.

    What `answer` returns is sent as it is; None ends the connection.
    """

    def __init__(self, answer, requests, *, most=None):
        super().__init__()
        self.answer = answer
        self.requests = requests
        self.most = most
        self.parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        self.request = None
        self.body = b""
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = False
        self.closed = False

    async def send(self, data: bytes) -> None:
        await asyncio.sleep(0)
        if self.ended:
            raise BrokenPipeError
        self.parser.receive_data(data)
        while True:
            event = self.parser.next_event()
            if isinstance(event, h11.Request):
                self.request, self.body = event, b""
            elif isinstance(event, h11.Data):
                self.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._answer()
                return
            else:
                return

    def _answer(self) -> None:
        self.requests.append(Told.of(self.request, self.body))
        answer = self.answer(self.requests[-1])
        if answer:
            self.said.put_nowait(answer)
        self.most = self.most and self.most - 1
        if answer is None or self.most == 0:
            self.ended = True
            self.said.put_nowait(b"")
        self.parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)

    async def receive(self) -> bytes:
        data = await self.said.get()
        if not data:
            self.said.put_nowait(b"")
        return data

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class Told:
    """What a server was asked."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @classmethod
    def of(cls, request, body):
        headers = tuple((bytes(name), bytes(value)) for name, value in request.headers)
        return cls(bytes(request.method), bytes(request.target), headers, bytes(body))

    def header(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)


def ok(told: Told) -> bytes:
    """Answer with what was asked."""
    body = b"%s %s %s %s" % (told.method, told.header(b"host"), told.target, told.body)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@dataclass
class Talk:
    """What came of a client's connection."""

    said: bytes = b""
    requests: list[Told] = field(default_factory=list)
    connected: list[Place] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    refused: list[tuple[type, Place | None]] = field(default_factory=list)
    tunnels: list[tuple[str, int, bytes]] = field(default_factory=list)
    left: list[Place] = field(default_factory=list)
    client: Script = field(default_factory=Script)
    broke: BaseException | None = None
    budget: Budget = field(default_factory=lambda: Budget(Network()))

    @property
    def statuses(self) -> list[int]:
        return [status for status, _, _ in self.answers]

    @property
    def answers(self) -> list[tuple[int, dict[bytes, bytes], bytes]]:
        """Parse what the client was told; raises if it is no HTTP."""
        parser = h11.Connection(h11.CLIENT)
        found, data = [], bytes(self.said)
        for told in [*self.requests, None, None]:
            parser = h11.Connection(h11.CLIENT)
            method = told.method if told else b"GET"
            parser.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
            parser.send(h11.EndOfMessage())
            parser.receive_data(data)
            parser.receive_data(b"")
            if not data:
                break
            body, event = b"", parser.next_event()
            while isinstance(event, h11.InformationalResponse):
                event = parser.next_event()
            assert isinstance(event, h11.Response)
            response = event
            while isinstance(event := parser.next_event(), h11.Data):
                body += event.data
            assert isinstance(event, h11.EndOfMessage)
            headers = {bytes(n): bytes(v) for n, v in response.headers}
            found.append((response.status_code, headers, body))
            data = parser.trailing_data[0]
        return found


async def talk(  # noqa: C901 - each part of an Upstream is a function
    *pieces: bytes,
    place: Place | None = PLACE,
    answer=ok,
    most=None,
    then="leaves",
    signed=False,
    linked=False,
    redactor=None,
    scanner=None,
    prepare=None,
    kind=Server,
) -> Talk:
    """Let a client say something, and return what comes of it."""
    talk = Talk()
    talk.client = Script(*pieces, then=then)

    async def connect(there):
        if there.host == "denied.test":
            raise PolicyDeniedError("no rule allows it", rule="default")
        if there.host == "gone.test":
            raise UnreachableError("gone.test does not resolve")
        talk.connected.append(there)
        talk.servers.append(kind(answer, talk.requests, most=most))
        return talk.servers[-1]

    async def leave(there, link):
        talk.left.append(there)
        await link.aclose()

    async def renew(there, link):
        await link.aclose()
        return await connect(there)

    async def prepared(request, there):
        return request if prepare is None else await prepare(request, there)

    async def redact(_):
        return redactor and redactor.fresh()

    async def tunnel(host, port, client):
        if host == "denied.test":
            raise PolicyDeniedError("no rule allows it", rule="default")
        talk.tunnels.append((host, port, await client.receive()))

    async def explain(error, there):
        talk.refused.append((type(error), there))
        return explained(error, there)

    def find(there):
        return (
            replace(there, host="named.test") if there.host == "198.18.0.1" else there
        )

    upstream = Upstream(
        find=find,
        connect=connect,
        leave=leave,
        renew=renew,
        needs_body=lambda *_: signed,
        hold=talk.budget.hold,
        prepare=prepared,
        scanner=lambda _: scanner and scanner(),
        redactor=redact,
        tunnel=tunnel,
        explain=explain,
    )
    link = await connect(place) if linked else None
    session = HttpSession(Peeked(talk.client), place, upstream, link)
    try:
        async with asyncio.timeout(20):
            await session.serve()
    except BROKEN as error:
        talk.broke = error
    talk.said = bytes(talk.client.sent)
    assert all(server.closed for server in talk.servers)
    return talk


def pair() -> tuple[SocketConnection, SocketConnection]:
    """Return two ends of one connection, which can be broken off as TCP is."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    return SocketConnection(one), SocketConnection(other)
