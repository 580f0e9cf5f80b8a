"""How a workspace reaches its MCP servers."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Final

import anyio

from isobox._core.ops import Dial, Spawn
from isobox._workspace.mcp.lines import spoken
from isobox._workspace.mcp.web import requested
from isobox.errors import IsoboxError, McpError, PathMissingError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcp.client._transport import Transport, TransportStreams

    from isobox._core.results import ByteStream, Connection, Process
    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.mcp.live import Live
    from isobox._workspace.mcp.log import Log
    from isobox._workspace.mcp.web import Connect

#: Seconds between two tries to reach a port that is not open yet.
_AGAIN: Final = 0.05


class Ways:
    """Makes the way to a server that is to start.

    Args:
        workspace: Whose servers they are; every way is an operation of it.
    """

    def __init__(self, workspace: WorkspaceBase) -> None:
        self._workspace = workspace

    async def __call__(self, live: Live) -> Transport:
        """Return a transport for the official client.

        Raises:
            McpError: Its program does not start, or there is no way there.
            IsoboxError: The workspace does not let it.
        """
        server = live.server
        if server.remote:
            return self._outside(live)
        process = await self._process(live) if server.command else None
        if process is not None and server.url is None:
            return spoken(process, live.log, live.over)
        return _inside(live, process, self._dial)

    async def _process(self, live: Live) -> Process:
        server, workspace = live.server, self._workspace
        op = Spawn(
            argv=server.command,
            cwd=workspace._path(server.cwd or "."),
            env=dict(server.env),
            stdin=server.url is None,
            label=f"mcp:{server.name}",
            declared=True,
        )
        process = await workspace._do(op)
        if process.pid == 0:
            await process.aclose()
            raise McpError(
                f"MCP server {server.name} did not start: {server.command[0]!r} is not "
                "there inside, or cannot be executed; what is in no system directory "
                "or image has to be seen there, for bubblewrap by `mounts`"
            )
        return process

    async def _dial(self, host: str, port: int) -> Connection:
        op = Dial(host="::1" if host == "::1" else "127.0.0.1", port=port)
        return await self._workspace._do(op)

    def _outside(self, live: Live) -> Transport:
        gate = self._workspace._gate
        if gate is None:
            raise McpError(
                f"MCP server {live.server.name} is outside, and this workspace has no "
                f"network; name {live.server.host} in `network`"
            )

        async def connect(_host: str, _port: int) -> Connection:
            return await gate.dial()

        return requested(
            live.server, connect, context=_believing(gate.authority), proxy=gate.proxy
        )


@contextlib.asynccontextmanager
async def _inside(
    live: Live, process: Process | None, dial: Connect
) -> AsyncGenerator[TransportStreams]:
    """Speak with a port inside, and keep the process that opens it."""
    server = live.server
    async with anyio.create_task_group() as group:
        if process is not None:
            group.start_soon(_watch, process, live)
            group.start_soon(_drain, process.stdout, live.log)
            group.start_soon(_drain, process.stderr, live.log)
        try:
            await _open(live, dial)
            async with requested(server, dial, context=None, proxy=None) as streams:
                yield streams
        finally:
            group.cancel_scope.cancel()
            if process is not None:
                with anyio.CancelScope(shield=True), contextlib.suppress(IsoboxError):
                    await process.aclose()


async def _open(live: Live, dial: Connect) -> None:
    """Wait until its port is open; whoever waits for the start ends this."""
    while True:
        try:
            connection = await dial(live.server.host, live.server.port)
        except PathMissingError:
            if live.ended is not None:
                raise McpError(live.ended) from None
            await anyio.sleep(_AGAIN)
            continue
        await connection.aclose()
        return


async def _watch(process: Process, live: Live) -> None:
    with contextlib.suppress(IsoboxError):
        end = await process.wait()
        live.over(f"its process ended with exit code {end.exit_code}")


async def _drain(output: ByteStream, log: Log) -> None:
    with contextlib.suppress(IsoboxError):
        while piece := await output.receive():
            log.put(piece)


def _believing(authority: bytes | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authority is not None:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    return context
