"""A workspace over HTTP: what its clients' sessions hold, and for how long."""

from __future__ import annotations

import contextlib
import functools

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from isobox import LocalWorkspace, McpServer
from isobox.mcp import http, server
from isobox.testing import mcp_server

pytestmark = pytest.mark.anyio

BEARING = {"Authorization": "Bearer secret"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@contextlib.asynccontextmanager
async def serving(workspace):
    """Serve a workspace; yields the URL."""
    port = []
    opened = anyio.Event()

    def ready(number):
        port.append(number)
        opened.set()

    serve = functools.partial(
        http.serve, host="127.0.0.1", port=0, token="secret", ready=ready
    )
    async with anyio.create_task_group() as group:
        group.start_soon(serve, server(workspace))
        await opened.wait()
        yield f"http://127.0.0.1:{port[0]}{http.PATH}"
        group.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def connected(url):
    """Connect as a client that has a session."""
    async with httpx2.AsyncClient(headers=BEARING) as bearing:
        transport = streamable_http_client(url, http_client=bearing)
        async with Client(transport, mode="legacy") as client:
            yield client


async def words(client, command, **given):
    result = await client.call_tool("Bash", {"command": command, **given})
    return result.content[0].text


async def gone(workspace):
    """Wait until nothing of any client's session is left."""
    with anyio.fail_after(20):
        while workspace._sessions or workspace._shells or await workspace.processes():
            await anyio.sleep(0.02)


async def test_a_session_that_ends_takes_its_shell_along():
    async with LocalWorkspace() as workspace, serving(workspace) as url:
        async with connected(url) as client:
            await words(client, "x=1")
            assert (await words(client, "echo $x")).startswith("1")
            await words(client, "sleep 600", run_in_background=True)
            assert len(workspace._sessions) == len(workspace._shells) == 1
        await gone(workspace)
        async with connected(url) as client:
            assert (await words(client, "echo -$x-")).startswith("--")


async def test_a_session_that_ends_takes_its_servers_along():
    one = McpServer(name="one", command=("python3", mcp_server.__file__))
    two = McpServer(name="two", command=one.command, shared=True)
    async with (
        LocalWorkspace(mcps=[one, two]) as workspace,
        serving(workspace) as url,
    ):
        servers = workspace._mcps._servers()
        async with connected(url) as client:
            for name in ("one", "two"):
                given = {"text": name}
                result = await client.call_tool(f"mcp__{name}__echo", given)
                assert result.content[0].text == name
            assert len(servers._slots) == 2
        with anyio.fail_after(20):
            while len(servers._slots) > 1:
                await anyio.sleep(0.02)
        (left,) = servers._slots.values()
        assert left.live.server is two
        assert left.live.ended is None


async def test_what_another_session_runs_goes_on():
    async with (
        LocalWorkspace() as workspace,
        serving(workspace) as url,
        connected(url) as other,
    ):
        await words(other, "x=other")
        async with connected(url) as client:
            await words(client, "x=1")
        with anyio.fail_after(20):
            while len(workspace._sessions) > 1:
                await anyio.sleep(0.02)
        assert (await words(other, "echo $x")).startswith("other")


async def test_sessions_are_bounded(monkeypatch):
    monkeypatch.setattr(http, "_MOST_SESSIONS", 2)
    async with LocalWorkspace() as workspace, serving(workspace) as url:
        async with connected(url), connected(url):
            with pytest.raises(BaseExceptionGroup) as caught:
                async with connected(url):
                    raise AssertionError("a third session was let in")
            assert not caught.group_contains(AssertionError)
        async with connected(url) as client:
            assert (await words(client, "echo in")).startswith("in")


async def test_a_silent_session_ends(monkeypatch):
    monkeypatch.setattr(http, "_IDLE", 0.2)
    async with LocalWorkspace() as workspace, serving(workspace) as url:
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "silent", "version": "1"},
            },
        }
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "Bash", "arguments": {"command": "echo hi"}},
        }
        accept = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(headers={**BEARING, **accept}) as client:
            opened = await client.post(url, json=hello)
            session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await client.post(url, json=ready, headers=session)
            assert "hi" in (await client.post(url, json=call, headers=session)).text
            await gone(workspace)
            later = await client.post(url, json=call, headers=session)
            assert later.status_code == 404
