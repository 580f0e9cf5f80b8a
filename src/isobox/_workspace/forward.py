"""A port inside a sandbox, reachable on the host's loopback."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
from anyio.abc import SocketAttribute
from typing_extensions import override

from isobox._channel.background import Background, collapsed
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

    from anyio.abc import SocketStream

    from isobox._core.results import Connection

_PIECE = 65536
_BROKEN = (anyio.BrokenResourceError, IsoboxError, OSError)


class Forward:
    """Carries connections to a host port into the sandbox.

    Attributes:
        host: Always the loopback, 127.0.0.1.
        port: The host's port, known once `open` has returned.
    """

    host = "127.0.0.1"

    def __init__(
        self, dial: Callable[[], Awaitable[Connection]], *, port: int = 0
    ) -> None:
        self.port = port
        self._dial = dial
        self._background = Background()

    @override
    def __repr__(self) -> str:
        return f"<Forward {self.host}:{self.port}>"

    async def open(self) -> None:
        """Begin to listen.

        Raises:
            OSError: The port is taken.
        """
        listener = await anyio.create_tcp_listener(
            local_host=self.host, local_port=self.port
        )
        self.port = listener.extra(SocketAttribute.local_port)
        await self._background.open()

        async def serve() -> None:
            async with listener:
                await listener.serve(self._carry)

        self._background.start(serve)

    async def aclose(self) -> None:
        """Stop to listen and end every connection; safe to call again."""
        await self._background.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _carry(self, outside: SocketStream) -> None:
        # What fails on one side ends both: a client never waits for the lost.
        async with outside:
            with contextlib.suppress(*_BROKEN), collapsed():
                inside = await self._dial()
                async with inside, anyio.create_task_group() as group:
                    # Either side may end first; the other still has its say.
                    group.start_soon(_pump_in, outside, inside)
                    group.start_soon(_pump_out, inside, outside)


async def _pump_in(outside: SocketStream, inside: Connection) -> None:
    while True:
        try:
            data = await outside.receive(_PIECE)
        except anyio.EndOfStream:
            await inside.send_eof()
            return
        await inside.send(data)


async def _pump_out(inside: Connection, outside: SocketStream) -> None:
    async for data in inside:
        await outside.send(data)
    await outside.send_eof()
