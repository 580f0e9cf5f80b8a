"""Serving a workspace over MCP, from the command line."""

from __future__ import annotations

import json
import os
import secrets
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from isobox._workspace.mcp.mcps import declared
from isobox.cli import run
from isobox.cli.status import complain
from isobox.errors import BackendMissingError, InvalidArgumentError

if TYPE_CHECKING:
    from mcp.server import Server

_TOKEN = "ISOBOX_MCP_TOKEN"  # noqa: S105 - its name
_LARGEST = 1 << 20


async def serve(request: run.Request, *, servers: str | None, http: str | None) -> int:
    """Serve the workspace that a request asks for, until nobody is served.

    Raises:
        IsoboxError: isobox itself failed.
        OSError: The port is taken.
    """
    address = None if http is None else _address(http)
    inside = {} if servers is None else _servers(servers)
    try:
        # The SDK is large, and no other command needs it.
        from isobox.mcp.questions import Questions  # noqa: PLC0415
        from isobox.mcp.serving import server  # noqa: PLC0415
    except ImportError as error:
        raise BackendMissingError(
            "`isobox mcp` needs an extra: pip install 'isobox[mcp]'"
        ) from error
    questions = Questions(one_client=address is None)
    opened = await run.opened(request, approve=questions.approve, mcps=inside)
    async with opened as workspace:
        made = server(
            workspace,
            questions=questions,
            instructions=await workspace.get_instructions(),
            version=version("isobox"),
            report=complain,
        )
        try:
            if address is None:
                await _over_stdio(made)
            else:
                await _over_http(made, *address)
        finally:
            await questions.aclose()
    return 0


async def _over_stdio(made: Server[Any]) -> None:
    from mcp.server.stdio import stdio_server  # noqa: PLC0415

    async with stdio_server() as (reading, writing):
        await made.run(reading, writing, made.create_initialization_options())


async def _over_http(made: Server[Any], host: str, port: int) -> None:
    from isobox.mcp import http  # noqa: PLC0415

    given = os.environ.get(_TOKEN)
    token = given or secrets.token_urlsafe(32)

    def ready(number: int) -> None:
        complain(f"serving http://{http.in_url(host)}:{number}{http.PATH}")
        if not given:
            complain(f"Authorization: Bearer {token}")

    await http.serve(made, host=host, port=port, token=token, ready=ready)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise InvalidArgumentError(f"--http {text}: write it as PORT or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def _servers(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
        found = cast("object", json.loads(data[:_LARGEST]))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"--servers {path}: {error}") from None
    told = cast("dict[str, object]", found if isinstance(found, dict) else {})
    servers = told.get("mcpServers", told.get("servers"))
    if len(data) > _LARGEST or not isinstance(servers, dict):
        raise InvalidArgumentError(
            f'--servers {path}: it is no JSON of {{"mcpServers": {{...}}}}'
        )
    return _usable(path, cast("dict[str, object]", servers))


def _usable(path: str, servers: dict[str, object]) -> dict[str, object]:
    """Return the servers that can be started; the others are complained of."""
    found: dict[str, object] = {}
    for name, given in servers.items():
        try:
            found.update({each.name: each for each in declared({name: given})})
        except InvalidArgumentError as error:
            complain(f"--servers {path}: {error.message}; it is left out")
    return found
