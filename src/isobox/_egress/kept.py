"""Connections to servers that wait, secured, for the sandbox's next request."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from isobox._channel.places import available
from isobox._egress.wire import Secured, Tally

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine
    from typing import Any

    from isobox._channel.sockets import SocketConnection
    from isobox._core.hosts import Address

#: Seconds that one waits: less than the five for which many servers keep one.
_WAIT: Final = 4.0
#: Seconds after which the server has to be found and to prove itself again.
_OLDEST: Final = 60.0
#: How many wait at once, of one sandbox.
_MOST: Final = 16
#: And of all: one for so many connections that the process has places for.
_SHARE: Final = 8


class Server(Secured):
    """TLS with a server, which may be kept when its client has gone.

    Args:
        tally: What counts its bytes, for the client that it is for.
        context: Verifies the server.
        host: Who it has to prove to be.
        sock: The connection below.
        address: Where it leads.
    """

    def __init__(
        self,
        tally: Tally,
        context: ssl.SSLContext,
        *,
        host: str,
        sock: SocketConnection,
        address: Address,
    ) -> None:
        super().__init__(tally, context, host=host)
        self._loop = asyncio.get_running_loop()
        self._since = self._heard = self._loop.time()
        self._fit = True
        self.tally = tally
        self.sock = sock
        self.address = address

    @override
    async def receive(self) -> bytes:
        data = await super().receive()
        self._heard = self._loop.time()
        return data

    def lend(self, tally: Tally) -> None:
        """Serve a client, whose bytes `tally` counts."""
        self._inner = self.tally = tally

    def rest(self) -> None:
        """Serve nobody; whose bytes were counted last goes on without it."""
        self.tally.let_go()
        self._inner = self.sock

    def waits_until(self) -> float:
        """Return when it has waited long enough, by the loop's clock."""
        return min(self._heard + _WAIT, self._since + _OLDEST)

    def may_be_asked(self) -> bool:
        """Whether it has not waited for long, and said nothing unasked.

        What it said would pass for the answer to the next request; and it may
        have gone.
        """
        young = self._loop.time() < self.waits_until()
        quiet = self.says_nothing() and self.sock.peek_nowait() is None
        self._fit = self._fit and young and quiet
        return self._fit


class _Room:
    """So many may wait, of all sandboxes together: each is a descriptor.

    It may be used from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0

    def take(self) -> bool:
        """Take a place; false if there is none."""
        with self._lock:
            if self._taken >= available() // _SHARE:
                return False
            self._taken += 1
            return True

    def give(self) -> None:
        """Give one back."""
        with self._lock:
            self._taken -= 1


_ROOM: Final = _Room()


class Kept:
    """The servers that wait, of one sandbox.

    Args:
        start: Starts a task.
    """

    def __init__(
        self, start: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    ) -> None:
        self._start = start
        self._waiting: dict[Server, tuple[str, int]] = {}
        self._timers: dict[Server, asyncio.TimerHandle] = {}
        self._closed = False

    async def put(self, place: tuple[str, int], server: Server) -> None:
        """Let one wait, for a moment, or close it."""
        server.rest()
        if self._closed or not server.may_be_asked() or not _ROOM.take():
            await server.aclose()
            return
        self._waiting[server] = place
        until = server.waits_until()
        loop = asyncio.get_running_loop()
        self._timers[server] = loop.call_at(until, self._dismiss, server)
        if len(self._waiting) > _MOST:
            self._dismiss(next(iter(self._waiting)))

    def take(self, place: tuple[str, int]) -> Server | None:
        """Return the one that came last, if it is still there."""
        for server in [s for s in reversed(self._waiting) if self._waiting[s] == place]:
            self._forget(server)
            if server.may_be_asked():
                return server
            self._start(server.sock.aclose)
        return None

    async def aclose(self) -> None:
        """Dismiss all, and take no more."""
        self._closed = True
        for server in list(self._waiting):
            self._forget(server)
            await server.sock.aclose()

    def _dismiss(self, server: Server) -> None:
        self._forget(server)
        self._start(server.sock.aclose)

    def _forget(self, server: Server) -> None:
        _ROOM.give()
        del self._waiting[server]
        self._timers.pop(server).cancel()
