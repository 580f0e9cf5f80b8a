"""A port of the host's loopback, reachable from inside a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import anyio
from typing_extensions import override

from isobox._channel.background import collapsed
from isobox._channel.join import join
from isobox._channel.places import SHARED
from isobox._channel.sockets import SocketConnection
from isobox._channel.trap import Trap
from isobox._core.network import Outlet
from isobox._core.ops import Connect, Listen
from isobox._egress.pace import Pace
from isobox.errors import IsoboxError, StorageError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

    from isobox._channel.places import Places
    from isobox._core.results import Connection, Listener
    from isobox._core.stack import Perform

_HOST: Final = "127.0.0.1"
_BROKEN: Final = (anyio.BrokenResourceError, IsoboxError, OSError)

#: Connections of one port that are carried at once; more wait inside.
_MOST: Final = 256
#: Connections that are taken at once, and in each second after that: each is put on
#: record, and the log is not to be flooded.
_AT_ONCE: Final = 256
_PER_SECOND: Final = 200.0


class Exposed:
    """Carries connections from a port inside to a port of the host's loopback.

    Args:
        perform: The workspace's stack, which every connection passes.
        host_port: The host's port.
        port: The port inside; 0 lets the sandbox choose.
        failed: Told why a connection did not come to be.
        places: What it has places for connections of.

    Attributes:
        host: Where programs inside connect to: their loopback, 127.0.0.1.
        port: The port there, known once `open` has returned.
    """

    host = _HOST

    def __init__(
        self,
        perform: Perform,
        host_port: int,
        *,
        port: int,
        failed: Callable[[IsoboxError], None],
        places: Places = SHARED,
    ) -> None:
        self.port = port
        self._failed = failed
        self._perform = perform
        self._host_port = host_port
        self._places = places
        self._pace = Pace(at_once=_AT_ONCE, per_second=_PER_SECOND)
        self._listener: Listener | None = None
        self._trap: Trap | None = None

    @override
    def __repr__(self) -> str:
        return f"<Exposed {self.host}:{self.port} leads to port {self._host_port}>"

    async def open(self) -> None:
        """Begin to listen inside.

        Raises:
            UnsupportedError: The backend cannot.
            StorageError: The port is taken, or may not be had.
        """
        try:
            listener = await self._perform(Listen(port=self.port))
        except StorageError as error:
            raise StorageError(
                f"{error}; give inside=, such as 8080: ports below 1024 and those "
                "that the filter catches are taken inside",
                code=error.errno or 0,
            ) from None
        self._listener, self.port = listener, listener.port
        trap = self._trap = Trap(_Door(self._carry), most=_MOST, places=self._places)
        await trap.open()
        trap.start(partial(self._serve, listener, trap))

    async def aclose(self) -> None:
        """Stop to listen and end every connection; safe to call again."""
        if self._trap is not None:
            await self._trap.aclose()
        if self._listener is not None:
            await self._listener.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _serve(self, listener: Listener, trap: Trap) -> None:
        with contextlib.suppress(IsoboxError, OSError):  # the sandbox is gone
            while True:
                inside = await listener.accept()
                try:
                    await self._turn()
                    await trap.place()
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await inside.abort()
                    raise
                # By no port: that of DNS would be served as such.
                trap.serve(inside, _HOST, 0)

    async def _turn(self) -> None:
        """Wait until one more connection may be put on record."""
        due = self._pace.due
        self._pace.spend()
        if due:
            await anyio.sleep(due)

    async def _carry(self, connection: Connection) -> None:
        try:
            with contextlib.suppress(*_BROKEN), collapsed():
                async with await self._reached() as outside:
                    await join(connection, outside)
        except Exception as error:  # noqa: BLE001 - the others are served all the same
            self._failed(self._unforeseen(error))

    async def _reached(self) -> Connection:
        op = Connect(host=_HOST, port=self._host_port, via="exposed", reach=_reach)
        try:
            return cast("Connection", await self._perform(op))
        except IsoboxError as error:
            self._failed(error)
            raise
        except OSError as error:
            self._failed(self._unforeseen(error))
            raise

    def _unforeseen(self, error: Exception) -> UnreachableError:
        # SAFETY: whose error it is nobody knows, nor what it says; programs inside,
        # and the model, are told of its kind alone.
        return UnreachableError(
            f"a connection to port {self._host_port} of the host failed: "
            f"{type(error).__name__}"
        )


class _Door(Outlet):
    """Where connections come out that a port inside has taken."""

    def __init__(self, carry: Callable[[Connection], Awaitable[None]]) -> None:
        self._carry = carry

    @override
    async def connected(self, connection: Connection, address: str, port: int) -> None:
        await self._carry(connection)

    @override
    def asked(self, query: bytes) -> bytes | None:
        return None


async def _reach(op: Connect) -> SocketConnection:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (_HOST, op.port))
    except OSError as error:
        sock.close()
        words = os.strerror(error.errno) if error.errno else error
        raise UnreachableError(
            f"nothing listens at port {op.port} of the host: {words}"
        ) from None
    except BaseException:
        sock.close()
        raise
    return SocketConnection(sock)
