"""Where connections from inside arrive on the host, and who serves them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio

from isobox._channel.background import Background
from isobox._channel.deadline import deadline
from isobox._channel.places import SHARED, Caught
from isobox._channel.sockets import SocketConnection
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from isobox._channel.places import Places
    from isobox._core.results import Connection
    from isobox.abc import Outlet

#: The port of questions for names.
DNS: Final = 53

#: Connections of a sandbox that are served at once, where the process has places
#: for so many; more wait in the kernel.
MOST: Final = 1024

#: Seconds before another attempt where the host had no descriptor or memory left.
_PAUSE: Final = 0.1
#: Seconds that a question over TCP may take to arrive.
_QUESTION: Final = 10.0
#: The longest question that is read; RFC 6891 advises 4096 for a buffer.
_LONGEST: Final = 4096
#: Questions that are answered before others have their turn.
_TURN: Final = 32

_IP_PKTINFO: Final = 8
_IPV4: Final = struct.Struct("i4s4s")
_IPV6: Final = struct.Struct("16si")
_LENGTH: Final = struct.Struct(">H")
_ROOM: Final = socket.CMSG_SPACE(_IPV6.size)


class Trap:
    """Serves what is caught by an outlet.

    Where there is no place for one more connection, the oldest is ended that was
    not used yet: so idle ones keep nobody out.

    Attributes:
        outlet: The outlet.
        grace: Seconds that a connection has to be used.
    """

    grace = 2.0

    def __init__(
        self, outlet: Outlet, *, most: int = MOST, places: Places = SHARED
    ) -> None:
        self.outlet = outlet
        self._share = places.join(most, free=self._tell_freed, cut=self._ask_to_cut)
        # Those that were not used yet, the oldest first, and some that were.
        self._unused: dict[Caught, None] = {}
        self._next: deque[socket.socket] = deque()
        self._room = asyncio.Event()
        self._cutting: asyncio.TimerHandle | None = None
        self._background = Background()
        self._listeners: list[socket.socket] = []
        self._datagrams: list[socket.socket] = []

    async def open(self, sockets: Iterable[socket.socket] = ()) -> None:
        """Serve bound sockets, which it then owns, until it is closed."""
        self._loop = asyncio.get_running_loop()
        for sock in sockets:
            sock.setblocking(False)
            stream = sock.type == socket.SOCK_STREAM
            (self._listeners if stream else self._datagrams).append(sock)
        await self._background.open()
        for sock in self._datagrams:
            self._loop.add_reader(sock, self._answer_datagrams, sock)
        self._listen()

    def start(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something in a task of its own until it is closed."""
        self._background.start(job)

    async def aclose(self) -> None:
        """End every connection and close the sockets; safe to call again."""
        held = [*self._listeners, *self._datagrams]
        self._listeners, self._datagrams = [], []
        while self._next:
            self._next.popleft().close()
        if self._cutting is not None:
            self._cutting.cancel()
        for sock in held:
            self._loop.remove_reader(sock)
            sock.close()
        await self._background.aclose()
        self._share.leave()

    # Connections.

    def keep_to(self, most: int) -> None:
        """Serve so many connections at once at most."""
        self._share.most = most

    async def place(self) -> None:
        """Wait for a place for a connection, which `serve` gives back."""
        while not self._share.take():
            self._room.clear()
            await self._room.wait()

    def serve(self, connection: Connection, address: str, port: int) -> None:
        """Serve a connection, for which there is a place, in a task of its own."""
        caught = Caught(connection, self._loop.time())
        self._unused[caught] = None
        self.start(functools.partial(self._serve, caught, address, port))

    async def _serve(self, connection: Caught, address: str, port: int) -> None:
        try:
            if port == DNS:
                await connection.serve(_converse(connection, self.asked))
            else:
                await connection.serve(self.outlet.connected(connection, address, port))
        except (OSError, IsoboxError):
            await connection.abort()
        except Exception as error:  # noqa: BLE001 - one connection, not the others
            _report("a caught connection was not served", error)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.aclose()
            self._unused.pop(connection, None)
            self._share.give()

    def _listen(self) -> None:
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def _rest(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_TURN):
            try:
                sock, _address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest()
                    self._loop.call_later(_PAUSE, self._listen)
                    return
                continue
            if not self._share.take():
                # What else has to wait does so in the kernel.
                self._next.append(sock)
                self._rest()
                return
            self._take(sock)

    def _take(self, sock: socket.socket) -> None:
        try:
            # It was dialled by any address, and is bound to that one.
            host, port = sock.getsockname()[:2]
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            sock.close()
            self._share.give()
            return
        self.serve(SocketConnection(sock), plain_address(host), port)

    def _freed(self) -> None:
        self._room.set()
        while self._next:
            if not self._share.take():
                return
            self._take(self._next.popleft())
        self._listen()

    def _cut(self) -> None:
        self._cutting = None
        while self._unused:
            oldest = next(iter(self._unused))
            due = oldest.since + self.grace
            if not oldest.used and due > self._loop.time():
                # Who has come just now may have been too busy to say something.
                self._cutting = self._loop.call_at(due, self._cut)
                return
            del self._unused[oldest]
            if not oldest.used:
                oldest.cut()
                return

    # Both are called by whoever shares the places, from threads of their own.

    def _tell_freed(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._freed)

    def _ask_to_cut(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._start_to_cut)

    def _start_to_cut(self) -> None:
        if self._cutting is None:
            self._cut()

    # Questions for names.

    def asked(self, query: bytes) -> bytes | None:
        """Answer a DNS message; None leaves it without an answer."""
        try:
            return self.outlet.asked(query)
        except Exception as error:  # noqa: BLE001 - one question, not the others
            _report("a question for a name was not answered", error)
            return None

    def _answer_datagrams(self, sock: socket.socket) -> None:
        for _ in range(_TURN):
            try:
                query, notes, flags, sender = sock.recvmsg(_LONGEST, _ROOM)
            except OSError:
                return
            if flags & socket.MSG_TRUNC:
                continue
            answer = self.asked(query)
            if answer is not None:
                _send_from(sock, answer, notes, sender)


#: What accept reports where the host has nothing left; else it is about one
#: connection, which is gone.
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


async def _converse(
    connection: Connection, asked: Callable[[bytes], bytes | None]
) -> None:
    """Answer DNS messages with lengths before them, as RFC 7766 has it."""
    held = bytearray()
    while True:
        async with deadline(_QUESTION):
            query = await _message(connection, held)
        answer = None if query is None else asked(query)
        if answer is None:
            return
        async with deadline(_QUESTION):
            await connection.send(_LENGTH.pack(len(answer)) + answer)


async def _message(connection: Connection, held: bytearray) -> bytes | None:
    """Return the next message, None at the end and for one that is too long."""
    while True:
        if len(held) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(held)
            if size > _LONGEST:
                return None
            if len(held) >= _LENGTH.size + size:
                query = bytes(held[_LENGTH.size : _LENGTH.size + size])
                del held[: _LENGTH.size + size]
                return query
        piece = await connection.receive()
        if not piece:
            return None
        held += piece


def _send_from(
    sock: socket.socket,
    answer: bytes,
    notes: list[tuple[int, int, bytes]],
    receiver: tuple[Any, ...],
) -> None:
    """Send from the address to which the question went."""
    try:
        sock.sendmsg([answer], [_returned(*note) for note in notes], 0, receiver)
    except OSError:
        return  # a datagram may be lost


def _returned(level: int, kind: int, data: bytes) -> tuple[int, int, bytes]:
    if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
        _, _, destination = _IPV4.unpack(data)
        return level, kind, _IPV4.pack(0, destination, bytes(4))
    destination, _ = _IPV6.unpack(data)
    return level, kind, _IPV6.pack(destination, 0)


@functools.lru_cache(1024)
def plain_address(text: str) -> str:
    """Return an address without a zone, as IPv4 where it is mapped."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _report(message: str, error: Exception) -> None:
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": message, "exception": error})
