"""The multiplexer: many streams over one socket to one guest."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from isobox._channel import frames
from isobox._channel.deadline import deadline
from isobox._channel.stream import Stream
from isobox._guest import agent
from isobox.errors import InvalidArgumentError, ProtocolError, SandboxLostError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from isobox._channel.stream import Fields

#: Seconds of silence, while answers are due, after which the guest is asked
#: whether it lives, and after which it counts as dead.
_QUIET, _DEAD = 10.0, 30.0
#: Seconds that a daemon has to end what only this host holds.
_PARTING = 5.0


class SilentError(SandboxLostError):
    """The guest did not say hello in time; it may be slow, or something else."""


class Channel(asyncio.Protocol):
    """The host's end of the channel.

    A frame that the protocol forbids, or silence while answers are due, ends
    the channel: every stream fails with the same SandboxLostError.

    Attributes:
        hello: What the guest said of itself.
        failure: Why the channel has ended, once it has.
        backend: Name of the backend, for errors.
        listeners: What takes a connection that the guest accepted, by the number
            of the operation that listens.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.hello: Fields = {}
        self.failure: SandboxLostError | None = None
        self.backend: str | None = None
        self.on_lost: Callable[[], None] | None = None
        self.listeners: dict[int, Callable[[Stream, Fields], None]] = {}
        self._parser = frames.Parser()
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._closed: asyncio.Future[None] = self.loop.create_future()
        self._writable: asyncio.Future[None] | None = None
        self._heard = self.loop.time()
        self._pings: deque[asyncio.Future[bool] | None] = deque()
        self._pulse: asyncio.TimerHandle | None = None

    @classmethod
    async def over(cls, sock: socket.socket) -> Channel:
        """Return a channel over a connected socket, which it then owns."""
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(cls, sock=sock)
        return channel

    async def greet(self, config: Fields, *, timeout: float) -> None:
        """Configure the guest and wait for its hello.

        Raises:
            InvalidArgumentError: It is too large for a message.
            SandboxLostError: It ended, or did not answer within `timeout`.
            ProtocolError: It speaks another version.
        """
        self.write(agent.CONFIG, 0, _message(config))
        try:
            async with deadline(timeout):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.fail(SilentError("the guest did not start in time"))
        self.check()
        if self.hello.get("version") != agent.VERSION:
            self.fail(ProtocolError("the guest speaks another version"))
            self.check()

    # asyncio's side.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=2 * agent.PIECE)
        self._beat()

    @override
    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        try:
            for kind, number, payload in self._parser.feed(data):
                self._arrived(kind, number, payload)
        except ProtocolError as error:
            self.fail(error)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(SandboxLostError("the sandbox ended"))
        if not self._closed.done():
            self._closed.set_result(None)

    @override
    def pause_writing(self) -> None:
        self._writable = self.loop.create_future()

    @override
    def resume_writing(self) -> None:
        waiter, self._writable = self._writable, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What arrives.

    def _arrived(self, kind: int, number: int, payload: bytes) -> None:
        if self.failure is not None:
            return
        if kind == agent.HELLO:
            self._greeted(payload)
        elif kind == agent.ACCEPT:
            self._accepted(number, payload)
        elif kind == agent.PONG:
            self._ponged()
        elif stream := self._streams.get(number):
            stream.arrived(kind, payload)
        else:
            raise ProtocolError("the guest sent a frame for no operation")

    def _greeted(self, payload: bytes) -> None:
        if self._ready.done():
            raise ProtocolError("the guest said hello again")
        self.hello = frames.fields(payload)
        self._ready.set_result(None)

    def _ponged(self) -> None:
        # SAFETY: one that nobody asked for keeps the host busy for nothing.
        if not self._pings:
            raise ProtocolError("the guest answered what was not asked")
        _settle(self._pings.popleft(), answered=True)

    def _accepted(self, number: int, payload: bytes) -> None:
        fields = frames.fields(payload)
        listener = fields.get("listener")
        # SAFETY: True is 1 to a dict, as 1.0 is; what cannot be a key would raise.
        take = self.listeners.get(listener) if type(listener) is int else None
        if take is None or number in self._streams:
            raise ProtocolError("the guest opened a stream unasked")
        if number < agent.ACCEPTED:
            raise ProtocolError("the guest opened a stream of the host's")
        stream = self._streams[number] = Stream(self, number)
        take(stream, fields)

    # What is sent.

    def open(self, op: str, **fields: object) -> Stream:
        """Begin an operation.

        Raises:
            InvalidArgumentError: It is too large for a message, or holds a number
                that is.
            SandboxLostError: The sandbox is gone.
        """
        self.check()
        payload = _message({"op": op, **fields})
        self._last = self._last % (agent.ACCEPTED - 1) + 1
        stream = self._streams[self._last] = Stream(self, self._last)
        self.write(agent.OPEN, stream.number, payload)
        return stream

    def write(self, kind: int, number: int, *parts: bytes) -> None:
        """Send one frame, or queue it behind others."""
        if self._transport is not None and self.failure is None:
            self._transport.write(frames.frame(kind, number, *parts))

    @property
    def is_full(self) -> bool:
        """Whether much is queued, for which `drain` would wait."""
        return self._writable is not None

    async def drain(self) -> None:
        """Wait until little is queued."""
        if self._writable is not None and self.failure is None:
            await asyncio.shield(self._writable)

    async def ping(self) -> bool:
        """Ask the guest for a sign of life; False once the channel has ended."""
        if self.failure is not None:
            return False
        answered: asyncio.Future[bool] = self.loop.create_future()
        self._pings.append(answered)
        self.write(agent.PING, 0)
        return await answered

    def forget(self, stream: Stream) -> None:
        """A stream has been answered."""
        self._streams.pop(stream.number, None)

    # The end.

    def check(self) -> None:
        """Raise why the channel has ended, if it has.

        Raises:
            SandboxLostError: The sandbox is gone.
        """
        if self.failure is not None:
            raise self._why(self.failure)

    def fail(self, error: SandboxLostError) -> None:
        """End the channel; the first reason counts."""
        if self.failure is None:
            self._end(error)
            self._abort()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: SandboxLostError) -> None:
        """Tell everybody that there is no channel any more."""
        self.failure = error
        if self._pulse is not None:
            self._pulse.cancel()
        self.resume_writing()
        if not self._ready.done():
            self._ready.set_result(None)
        if self.on_lost is not None:
            self.on_lost()
        for stream in list(self._streams.values()):
            stream.lost(self._why(error))
        while self._pings:
            _settle(self._pings.popleft(), answered=False)

    def _why(self, failure: SandboxLostError) -> SandboxLostError:
        # A fresh one: each raise of one object would grow its traceback.
        return type(failure)(failure.message, backend=failure.backend or self.backend)

    @property
    def silence(self) -> float:
        """Seconds without a word of the guest while answers are due."""
        return self.loop.time() - self._heard if self._streams else 0.0

    async def aclose(self, *, detach: bool = False) -> None:
        """Hang up; the guest then ends with all that is below it.

        A daemon lives on: of its commands those end that no other host holds.

        Args:
            detach: Leave these running, where the guest is a daemon.
        """
        if self.failure is None and self.hello.get("daemon") is not None:
            await self._part(detach=detach)
        self.fail(SandboxLostError("the workspace was closed"))
        await asyncio.shield(self._closed)

    async def _part(self, *, detach: bool) -> None:
        self.write(agent.BYE, 0, agent.encode({"detach": detach}))
        self._end(SandboxLostError("the workspace was closed"))
        await asyncio.wait([self._closed], timeout=_PARTING)
        self._abort()

    def _beat(self) -> None:
        silence = self.loop.time() - self._heard
        if not self._streams:
            self._heard = self.loop.time()
        elif silence > _DEAD:
            self.fail(SandboxLostError("the guest does not answer"))
            return
        elif silence > _QUIET:
            self._pings.append(None)
            self.write(agent.PING, 0)
        self._pulse = self.loop.call_later(_QUIET / 2, self._beat)


def _settle(ping: asyncio.Future[bool] | None, *, answered: bool) -> None:
    # Who asked may have gone meanwhile, and its answer come all the same.
    if ping is not None and not ping.done():
        ping.set_result(answered)


def _message(fields: Fields) -> bytes:
    """Return what a frame carries.

    Raises:
        InvalidArgumentError: The guest would not take it, and end.
    """
    try:
        payload = agent.encode(fields)
    except (struct.error, UnicodeEncodeError) as error:
        raise InvalidArgumentError(
            f"an argument cannot be sent to the sandbox: {error}"
        ) from None
    if len(payload) > agent.LARGEST:
        raise InvalidArgumentError(
            f"its arguments have {len(payload)} bytes together, and a message to the "
            f"sandbox takes {agent.LARGEST}; write what is large to a file"
        )
    return payload
