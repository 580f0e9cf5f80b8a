"""Connections to servers that wait, secured, for the sandbox's next request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

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
#: How many wait at once.
_MOST: Final = 16


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
        self._tally = tally
        self._since = asyncio.get_running_loop().time()
        self.sock = sock
        self.address = address

    def lend(self, tally: Tally) -> None:
        """Serve a client, whose bytes `tally` counts."""
        self._inner = self._tally = tally

    def take_back(self) -> bool:
        """Serve nobody; returns whether it may serve another one."""
        young = asyncio.get_running_loop().time() < self._since + _OLDEST
        if not young or not self.is_quiet():
            return False
        self._tally.detach()
        return True

    def is_quiet(self) -> bool:
        """Whether the server has said nothing that nobody has asked for.

        What it said would pass for the answer to the next request; and it may
        have gone.
        """
        return self.has_read_all() and self.sock.peek_nowait() is None


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
        if self._closed or not server.take_back():
            await server.aclose()
            return
        loop = asyncio.get_running_loop()
        self._waiting[server] = place
        self._timers[server] = loop.call_later(_WAIT, self._dismiss, server)
        if len(self._waiting) > _MOST:
            self._dismiss(next(iter(self._waiting)))

    def take(self, place: tuple[str, int]) -> Server | None:
        """Return the one that came last, if it is still there."""
        for server in [s for s in reversed(self._waiting) if self._waiting[s] == place]:
            self._forget(server)
            if server.is_quiet():
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
        del self._waiting[server]
        self._timers.pop(server).cancel()
