"""Where connections from inside arrive on the host, and who serves them."""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import socket
import struct
from typing import TYPE_CHECKING, Final

import anyio

from isobox._channel.background import Background
from isobox._channel.sockets import SocketConnection
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from isobox._core.results import Connection
    from isobox.abc import Outlet

#: The port of questions for names.
DNS: Final = 53

#: Connections of a sandbox that are served at once; more wait in the kernel. Each
#: needs two descriptors of the host at most, its own and one to the world.
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

    Attributes:
        outlet: The outlet.
    """

    def __init__(self, outlet: Outlet, *, most: int = MOST) -> None:
        self.outlet = outlet
        self._free = most
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
        for sock in held:
            self._loop.remove_reader(sock)
            sock.close()
        await self._background.aclose()

    # Connections.

    def serve(
        self,
        connection: Connection,
        address: str,
        port: int,
        done: Callable[[], None],
    ) -> None:
        """Serve a connection in a task of its own; calls `done` at its end."""
        self.start(functools.partial(self._serve, connection, address, port, done))

    async def _serve(
        self,
        connection: Connection,
        address: str,
        port: int,
        done: Callable[[], None],
    ) -> None:
        try:
            if port == DNS:
                await _converse(connection, self.asked)
            else:
                await self.outlet.connected(connection, address, port)
        except (OSError, IsoboxError):
            await connection.abort()
        except Exception as error:  # noqa: BLE001 - one connection, not the others
            _report("a caught connection was not served", error)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.aclose()
            done()

    def _listen(self) -> None:
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def _rest(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_TURN):
            if not self._free:
                # What has to wait does so in the kernel.
                self._rest()
                return
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
            self._take(sock)

    def _take(self, sock: socket.socket) -> None:
        try:
            # It was dialled by any address, and is bound to that one.
            host, port = sock.getsockname()[:2]
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            sock.close()
            return
        self._free -= 1
        self.serve(SocketConnection(sock), plain_address(host), port, self._vacate)

    def _vacate(self) -> None:
        self._free += 1
        if self._free == 1:
            self._listen()

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
        async with asyncio.timeout(_QUESTION):
            query = await _message(connection, held)
        answer = None if query is None else asked(query)
        if answer is None:
            return
        async with asyncio.timeout(_QUESTION):
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


def plain_address(text: str) -> str:
    """Return an address without a zone, as IPv4 where it is mapped."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _report(message: str, error: Exception) -> None:
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": message, "exception": error})
