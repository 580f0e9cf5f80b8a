"""Ports that the guest opens inside, and what is led to the host by them."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import os
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._channel.body import Dialled, opening
from isobox._channel.stream import GuestRefusal
from isobox._channel.trap import DNS
from isobox._core.results import Listener
from isobox._guest import agent
from isobox.errors import (
    BackendUnavailableError,
    IsoboxError,
    ProtocolError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._channel.channel import Channel
    from isobox._channel.stream import Fields, Stream
    from isobox._channel.trap import Trap
    from isobox.abc import Capture

#: Every address of 127.0.0.0/8 is local, and nobody uses so high ones.
NAMES: Final = "127.64.0.0/10"

#: Connections of a sandbox that are served at once; more wait in the kernel. What
#: a hostile guest can make the host keep is a window for each: 128 MiB.
MOST: Final = 512

_LOOPBACK: Final = "127.0.0.1"
_ONE: Final = bytes((agent.BODY, 0, 0, 0, 1))
_HEADER: Final = struct.Struct(">HH")


class Accepted(Dialled):
    """A connection that the guest accepted.

    Attributes:
        address: The IP address inside that was dialled, as the guest says.
        port: The port, likewise.
    """

    def __init__(self, stream: Stream, address: str, port: int) -> None:
        super().__init__(stream, op="listen", path=f"{address}:{port}")
        self.address = address
        self.port = port


class GuestListener(Listener):
    """A port that the guest listens on.

    So many connections may wait for `accept`; more do so in the kernel inside.
    """

    def __init__(self, stream: Stream, asked: int) -> None:
        super().__init__()
        self.port = 0
        self._asked = asked
        self._stream = stream
        self._due = agent.WAITING
        self._waiting: deque[Accepted] = deque()
        self._changed = asyncio.Event()
        stream.channel.listeners[stream.number] = self._arrived
        stream.on_event = self._told
        stream.on_answer(lambda _, __: self._changed.set())

    def _told(self, fields: Fields) -> None:
        port = fields.get("port")
        # SAFETY: whatever else it says is out of place, and so is saying it twice.
        if type(port) is not int or not 0 < port < 65536 or self.port:
            raise ProtocolError("the guest listens on no port")
        if self._asked not in (0, port):
            raise ProtocolError("the guest listens on another port")
        self.port = port
        self._changed.set()

    def _arrived(self, stream: Stream, fields: Fields) -> None:
        # SAFETY: what nobody takes is bounded by what was granted.
        if not self._due or not self.port:
            raise ProtocolError("the guest accepted more than it was granted")
        self._due -= 1
        stream.inbox(agent.BODY, window=agent.ACCEPTED_WINDOW)
        self._waiting.append(Accepted(stream, *_dialled(fields)))
        self._changed.set()

    async def bound(self) -> None:
        """Wait until the port is open.

        Raises:
            GuestRefusal: It cannot be.
        """
        while not self.port:
            await self._change()

    async def _change(self) -> None:
        self._stream.raise_failure()
        if self._stream.answered:
            raise BrokenPipeError("the port is closed")
        self._changed.clear()
        await self._changed.wait()

    @override
    async def accept(self) -> Accepted:
        while not self._waiting:
            await self._change()
        self._due += 1
        if not self._stream.answered:
            self._stream.channel.write(agent.CREDIT, self._stream.number, _ONE)
        return self._waiting.popleft()

    @override
    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._stream.cancel()
            self.forget()
            while self._waiting:
                await self._waiting.popleft().abort()
        self._ended({})

    def forget(self) -> None:
        """Take no more connections: until it had answered, some could come."""
        self._stream.channel.listeners.pop(self._stream.number, None)


def _dialled(fields: Fields) -> tuple[str, int]:
    address, port = fields.get("address"), fields.get("port")
    # SAFETY: it may claim any address, as a program inside may dial any; but it
    # must be one.
    if not isinstance(address, str) or len(address) > 45:
        raise ProtocolError("the guest accepted at no address")
    if type(port) is not int or not 0 < port < 65536:
        raise ProtocolError("the guest accepted at no port")
    try:
        return str(ipaddress.IPv4Address(address)), port
    except ValueError as error:
        raise ProtocolError("the guest accepted at no address") from error


async def listen(
    channel: Channel, *, port: int, host: str = _LOOPBACK
) -> GuestListener:
    """Open a port inside.

    Raises:
        StorageError: It is taken, or may not be had.
    """
    stream = channel.open("listen", host=host, port=port)
    listener = GuestListener(stream, port)
    try:
        async with opening(stream, op="listen", path=f"{host}:{port}"):
            await _bound(listener, port)
    except BaseException:
        listener.forget()
        raise
    return listener


async def _bound(listener: GuestListener, port: int) -> None:
    try:
        await listener.bound()
    except GuestRefusal as refusal:
        if not refusal.number:
            raise
        reason = os.strerror(refusal.number)
        raise StorageError(
            f"port {port} cannot be opened inside: {reason}",
            code=refusal.number,
            op="listen",
        ) from None


# -- what is caught ------------------------------------------------------------------


async def lead(channel: Channel, trap: Trap, capture: Capture) -> str:
    """Lead connections to the loopback inside to `trap`.

    Ports that the guest may not have are not led: below 1024 that is where the
    sandbox's kernel keeps them for root.

    Returns:
        The network of which every address is caught on these ports.

    Raises:
        BackendUnavailableError: The filter's own port cannot be opened.
    """
    trap.keep_to(MOST)
    hosts = dict.fromkeys(capture.ports, "0.0.0.0")  # noqa: S104 - inside
    hosts[DNS] = _LOOPBACK
    hosts.setdefault(capture.proxy_port, _LOOPBACK)
    for port, host in hosts.items():
        try:
            listener = await listen(channel, port=port, host=host)
        except StorageError as error:
            if port == capture.proxy_port:
                raise BackendUnavailableError(error.message) from error
            continue
        trap.start(functools.partial(_serve, listener, trap))
    await _lead_questions(channel, trap)
    return NAMES


async def _serve(listener: GuestListener, trap: Trap) -> None:
    try:
        while True:
            connection = await listener.accept()
            await trap.place()
            trap.serve(connection, connection.address, connection.port)
    except (IsoboxError, OSError):
        return  # the sandbox is gone
    finally:
        await listener.aclose()


async def _lead_questions(channel: Channel, trap: Trap) -> None:
    stream = channel.open("datagrams", host=_LOOPBACK, port=DNS)
    stream.inbox(agent.BODY)
    bound = asyncio.Event()
    stream.on_event = lambda _: bound.set()
    stream.on_answer(lambda _, __: bound.set())
    async with opening(stream, op="listen", path=f"port {DNS}"):
        await bound.wait()
    stream.on_event = None
    if not stream.answered:
        trap.start(functools.partial(_answer, stream, trap))


async def _answer(stream: Stream, trap: Trap) -> None:
    """Answer datagrams: of each the sender's number, its length and its bytes."""
    held = bytearray()
    try:
        while piece := await stream.receive(agent.BODY):
            held += piece
            for sender, query in _datagrams(held):
                answer = trap.asked(query)
                if answer is not None and len(answer) <= agent.LONGEST_DATAGRAM:
                    header = _HEADER.pack(sender, len(answer))
                    await stream.send(agent.BODY, header + answer)
    except ProtocolError as error:
        stream.channel.fail(error)
    except IsoboxError:
        return  # the sandbox is gone


def _datagrams(held: bytearray) -> Iterator[tuple[int, bytes]]:
    while len(held) >= _HEADER.size:
        sender, size = _HEADER.unpack_from(held)
        # SAFETY: the length is the guest's word; refuse before waiting for it.
        if size > agent.LONGEST_DATAGRAM:
            raise ProtocolError("the guest sent too long a datagram")
        end = _HEADER.size + size
        if len(held) < end:
            return
        query = bytes(held[_HEADER.size : end])
        del held[:end]
        yield sender, query
