"""A port of the host's loopback, reachable from inside a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

import anyio
from typing_extensions import override

from isobox._channel.background import Background, collapsed
from isobox._channel.join import join
from isobox._channel.sockets import SocketConnection
from isobox._core.ops import Connect, Listen
from isobox.errors import IsoboxError, StorageError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from isobox._core.results import Connection, Listener, Ongoing
    from isobox._core.stack import Perform

_HOST = "127.0.0.1"
_BROKEN = (anyio.BrokenResourceError, IsoboxError, OSError)


class Exposed:
    """Carries connections from a port inside to a port of the host's loopback.

    Args:
        perform: The workspace's stack, which every connection passes.
        host_port: The host's port.
        port: The port inside; 0 lets the sandbox choose.
        failed: Told why a connection did not come to be.

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
    ) -> None:
        self.port = port
        self._failed = failed
        self._perform = perform
        self._host_port = host_port
        self._listener: Listener | None = None
        self._background = Background()

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
        await self._background.open()

        async def serve() -> None:
            with contextlib.suppress(IsoboxError):
                while True:
                    inside = await listener.accept()
                    self._background.start(partial(self._carry, inside))

        self._background.start(serve)

    async def aclose(self) -> None:
        """Stop to listen and end every connection; safe to call again."""
        await self._background.aclose()
        if self._listener is not None:
            await self._listener.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _carry(self, inside: Connection) -> None:
        op = Connect(host=_HOST, port=self._host_port, via="exposed", reach=_reach)
        async with inside:
            with contextlib.suppress(*_BROKEN), collapsed():
                outside = await self._reached(op)
                assert isinstance(outside, SocketConnection)  # noqa: S101 - by _reach
                async with outside:
                    await join(inside, outside)

    async def _reached(self, op: Connect) -> Ongoing:
        try:
            return await self._perform(op)
        except IsoboxError as error:
            self._failed(error)
            raise


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
