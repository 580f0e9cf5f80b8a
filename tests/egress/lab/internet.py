"""Every server, on every address, in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

from tests.egress.lab import mcp, names, zone
from tests.egress.lab.authority import Authority
from tests.egress.lab.forge import Forge
from tests.egress.lab.packages import Index, Registry
from tests.egress.lab.web import Conversation, Request, Seen, Site

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

Serve = Callable[[Seen, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

EVERYWHERE = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))
YEAR = dt.timedelta(days=365)


class Internet:
    """Servers that answer on every address of this network namespace.

    Attributes:
        authority: Signs the certificates; whoever trusts it trusts the servers.
        names: The DNS server.
        connections: Every connection that reached a server, in order, also one
            on which nothing was said.
        datagrams: Every datagram to port 443.
        forge: The git server.
        faults: Errors of the servers themselves.
    """

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.names = names.Names(zone.ADDRESSES)
        self.connections: list[Seen] = []
        self.datagrams: list[bytes] = []
        self.forge = Forge(folder)
        self._sites: dict[str, Site] = {
            "git.example.org": self.forge,
            "mcp.example.org": mcp.answer,
            "pypi.example.org": Index(),
            "registry.example.org": Registry(),
        }
        self._contexts = _contexts(self.authority, folder)
        self._asked = WeakKeyDictionary[object, str]()
        self.faults: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def requests(self) -> list[Request]:
        """Every request that reached a server."""
        return [each for seen in self.connections for each in seen.requests]

    @property
    def received(self) -> bytes:
        """What all servers have received, end to end."""
        return b"\n".join(bytes(seen.received) for seen in self.connections)

    def forget(self) -> None:
        """Know nothing of what was so far."""
        self.connections.clear()
        self.datagrams.clear()
        self.names.forget()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Self]:
        """Serve in a thread of its own."""
        ready: Future[Callable[[], object]] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)))
        thread.start()
        stop = ready.result()
        try:
            yield self
        finally:
            stop()
            thread.join()

    async def _run(self, ready: Future[Callable[[], object]]) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        with contextlib.ExitStack() as closing:
            try:
                await self._open(loop, closing)
            except BaseException as error:
                ready.set_exception(error)
                raise
            ready.set_result(lambda: loop.call_soon_threadsafe(stop.set))
            await stop.wait()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        # What was closed now is gone at the loop's next turn.
        await asyncio.sleep(0)

    async def _open(
        self, loop: asyncio.AbstractEventLoop, closing: contextlib.ExitStack
    ) -> None:
        for sink, address in (
            (partial(names.Datagrams, self.names), ("127.0.0.1", 53)),
            (partial(_Sink, self.datagrams), ("0.0.0.0", 443)),
        ):
            transport, _ = await loop.create_datagram_endpoint(sink, address)
            closing.callback(transport.close)
        over_tcp = partial(names.over_tcp, self.names)
        server = await asyncio.start_server(over_tcp, "127.0.0.1", 53)
        closing.callback(server.close)
        for port in zone.HTTP_PORTS:
            self._listen(port, "http", self._web)
        for port in zone.HTTPS_PORTS:
            self._listen(port, "https", self._web, self._tls())
        self._listen(zone.BANNER_PORT, "banner", _banner)
        self._listen(zone.ECHO_PORT, "echo", _echo)

    def _listen(
        self, port: int, protocol: str, serve: Serve, tls: ssl.SSLContext | None = None
    ) -> None:
        for family, address in EVERYWHERE:
            if family == socket.AF_INET6 and not zone.has_ipv6():
                continue
            listener = socket.create_server(
                (address, port), family=family, backlog=4096
            )
            listener.setblocking(False)
            self._start(self._accept(listener, protocol, serve, tls))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.faults.append(error)

    async def _accept(
        self,
        listener: socket.socket,
        protocol: str,
        serve: Serve,
        tls: ssl.SSLContext | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                client, _ = await loop.sock_accept(listener)
                address, port = client.getsockname()[:2]
                seen = Seen(address, port, protocol)
                self.connections.append(seen)
                self._start(self._serve(seen, serve, client, tls))

    async def _serve(
        self,
        seen: Seen,
        serve: Serve,
        client: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:
        reader = asyncio.StreamReader()
        # Who is cut off in the middle is what many of the tests are about.
        with contextlib.suppress(OSError, EOFError):
            loop = asyncio.get_running_loop()
            transport, protocol = await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(reader), client, ssl=tls
            )
            try:
                if tls:
                    secure = transport.get_extra_info("ssl_object")
                    seen.sni = self._asked.get(secure)
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                await serve(seen, reader, writer)
            finally:
                transport.close()

    async def _web(
        self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await Conversation(seen, self._sites, reader, writer).run()

    def _tls(self) -> ssl.SSLContext:
        first = self._contexts["www.example.org"]

        def named(connection: ssl.SSLObject, name: str, _: ssl.SSLContext) -> None:
            self._asked[connection] = name
            parent = (name or "").partition(".")[2]
            near = self._contexts.get(f"*.{parent}", first)
            connection.context = self._contexts.get(name, near)

        first.sni_callback = named
        return first


def _contexts(authority: Authority, folder: Path) -> dict[str, ssl.SSLContext]:
    contexts = {name: authority.context(name) for name in zone.SECURE}
    long_ago = dt.datetime.now(dt.UTC) - YEAR
    contexts["wrong.example.org"] = authority.context("elsewhere.example.org")
    contexts["expired.example.org"] = authority.context(
        "expired.example.org", start=long_ago
    )
    contexts["unknown-authority.example.org"] = Authority(folder, "unknown").context(
        "unknown-authority.example.org"
    )
    return contexts


async def _banner(
    seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    writer.write(zone.BANNER)
    await _echo(seen, reader, writer)


async def _echo(
    seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    while data := await reader.read(1 << 16):
        seen.keep(data)
        writer.write(data)
        await writer.drain()


class _Sink(asyncio.DatagramProtocol):
    def __init__(self, datagrams: list[bytes]) -> None:
        self._datagrams = datagrams

    def datagram_received(self, data: bytes, _: object) -> None:
        self._datagrams.append(data)
