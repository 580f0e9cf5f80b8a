"""An HTTP/1.1 server that says what it was asked and remembers it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote_from_bytes, urlsplit

import h11

#: Of what a connection brings, this much is remembered.
KEPT = 1 << 20


@dataclass
class Request:
    """One request, as it arrived.

    Attributes:
        host: Its Host.
        headers: In lower case, in order.
    """

    method: str
    target: str
    host: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> list[str]:
        """Return the values of a header."""
        return [value for key, value in self.headers if key == name]


@dataclass
class Seen:
    """One connection that reached a server.

    Attributes:
        address: The one that was dialled, as the port.
        protocol: What was spoken there.
        sni: The name that a TLS client asked for.
        received: Its first bytes, after decryption.
    """

    address: str
    port: int
    protocol: str
    sni: str | None = None
    received: bytearray = field(default_factory=bytearray)
    requests: list[Request] = field(default_factory=list)

    def keep(self, data: bytes) -> None:
        """Remember what arrived, as far as there is room."""
        self.received += data[: KEPT - len(self.received)]


@dataclass
class Answer:
    """What is answered to a request."""

    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


Site = Callable[[Request], Awaitable[Answer]]


class Conversation:
    """One connection's requests, one after another.

    Args:
        sites: What answers for a host, instead of an echo.
    """

    def __init__(
        self,
        seen: Seen,
        sites: dict[str, Site],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._seen = seen
        self._sites = sites
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 18)

    async def run(self) -> None:
        """Answer until the client has no more to ask, or says what is no HTTP."""
        try:
            while await self._turn():
                self._http.start_next_cycle()
        except h11.RemoteProtocolError:
            self._writer.write(
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n"
                b"Connection: close\r\n\r\n"
            )

    async def _turn(self) -> bool:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return False
        if self._http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))
        body = await self._body()
        request = Request(
            method=head.method.decode(),
            target=head.target.decode("latin-1"),
            host="",
            headers=[(k.decode(), v.decode("latin-1")) for k, v in head.headers],
            body=body,
        )
        request.host = "".join(request.header("host")).lower().partition(":")[0]
        self._seen.requests.append(request)
        if request.header("upgrade"):
            await self._upgrade(request)
            return False
        await self._reply(request)
        await self._writer.drain()
        return self._http.our_state is h11.DONE

    async def _event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(1 << 16)
            self._seen.keep(data)
            self._http.receive_data(data)
        return event

    async def _body(self) -> bytes:
        parts = []
        while isinstance(event := await self._event(), h11.Data):
            parts.append(bytes(event.data))
        return b"".join(parts)

    async def _reply(self, request: Request) -> None:
        if site := self._sites.get(request.host):
            self._say(request, await site(request))
            return
        url = urlsplit(request.target)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        page = PAGES.get(url.path)
        if page is None:
            self._say(request, self._echo(request))
        else:
            await page(self, request, asked)

    def _echo(self, request: Request) -> Answer:
        told = {
            "method": request.method,
            "target": request.target,
            "headers": request.headers,
            "body": request.body[:KEPT].decode("latin-1"),
            "length": len(request.body),
            "sha256": hashlib.sha256(request.body).hexdigest(),
            "address": self._seen.address,
            "port": self._seen.port,
            "sni": self._seen.sni,
            "protocol": self._seen.protocol,
        }
        return Answer(
            headers=[("Content-Type", "application/json")],
            body=json.dumps(told).encode(),
        )

    def _say(self, request: Request, answer: Answer) -> None:
        length = ("Content-Length", str(len(answer.body)))
        self._send(
            h11.Response(status_code=answer.status, headers=[*answer.headers, length])
        )
        if request.method != "HEAD":
            self._send(h11.Data(data=answer.body))
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")

    async def _big(self, _: Request, asked: dict[str, str]) -> None:
        left = int(asked["bytes"])
        self._send(
            h11.Response(status_code=200, headers=[("Content-Length", str(left))])
        )
        block = bytes(range(256)) * 1024
        while left:
            self._send(h11.Data(data=block[:left]))
            await self._writer.drain()
            left -= min(left, len(block))
        self._send(h11.EndOfMessage())

    async def _slow(self, request: Request, asked: dict[str, str]) -> None:
        await asyncio.sleep(float(asked["seconds"]))
        self._say(request, self._echo(request))

    async def _redirect(self, request: Request, asked: dict[str, str]) -> None:
        self._say(request, Answer(302, [("Location", asked["to"])]))

    async def _chunked(self, _: Request, asked: dict[str, str]) -> None:
        self._send(
            h11.Response(status_code=200, headers=[("Transfer-Encoding", "chunked")])
        )
        for number in range(int(asked["pieces"])):
            self._send(h11.Data(data=b"piece %d\n" % number))
        self._send(h11.EndOfMessage(headers=[("X-Trailer", "last")]))

    async def _until_close(self, _: Request, asked: dict[str, str]) -> None:
        self._send(h11.Response(status_code=200, headers=[("Connection", "close")]))
        self._send(h11.Data(data=b"x" * int(asked["bytes"])))
        self._send(h11.EndOfMessage())

    async def _cut(self, _: Request, asked: dict[str, str]) -> None:
        self._send(
            h11.Response(status_code=200, headers=[("Content-Length", "1000000")])
        )
        self._send(h11.Data(data=b"x" * int(asked["bytes"])))
        await self._writer.drain()
        raise ConnectionAbortedError

    async def _reveal(self, request: Request, _: dict[str, str]) -> None:
        """Say what the client is authorised by, in several ways and in pieces."""
        text = "".join(request.header("authorization")).rpartition(" ")[2]
        value = text.encode()
        self._send(
            h11.Response(
                status_code=200,
                headers=[("Transfer-Encoding", "chunked"), ("X-Said", text)],
            )
        )
        ways = [base64.b64encode(b"." * at + value) for at in range(3)]
        for way in (value, *ways, quote_from_bytes(value, safe="").encode()):
            for at in range(0, len(way), 3):
                self._send(h11.Data(data=way[at : at + 3]))
                await self._writer.drain()
            self._send(h11.Data(data=b"\n"))
        self._send(h11.EndOfMessage())

    async def _upgrade(self, request: Request) -> None:
        key = "".join(request.header("sec-websocket-key")).encode()
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        accept = base64.b64encode(digest).decode()
        self._send(
            h11.InformationalResponse(
                status_code=101,
                headers=[
                    ("Upgrade", "websocket"),
                    ("Connection", "Upgrade"),
                    ("Sec-WebSocket-Accept", accept),
                ],
            )
        )
        early, _ = self._http.trailing_data
        self._writer.write(early)
        while data := await self._reader.read(1 << 16):
            self._seen.keep(data)
            self._writer.write(data)


PAGES: dict[str, Callable[[Conversation, Request, dict[str, str]], Awaitable[None]]] = {
    "/big": Conversation._big,
    "/slow": Conversation._slow,
    "/redirect": Conversation._redirect,
    "/cut": Conversation._cut,
    "/chunked": Conversation._chunked,
    "/reveal": Conversation._reveal,
    "/until-close": Conversation._until_close,
}
