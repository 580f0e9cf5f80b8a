"""Connections that a program inside holds, and what is left of them."""

from __future__ import annotations

import contextlib

import anyio
import pytest
from tests.shelled import ShelledWorkspace

from isobox._core.ops import Dial, Spawn

pytestmark = pytest.mark.anyio
_LISTENS = "until grep -q ': [0-9A-F]*:1E61 ' /proc/net/tcp*; do sleep 0.05; done"
_LEFT = "cat /proc/[0-9]*/cmdline | tr '\\000' ' ' | grep -c '[n]c 127'"


@pytest.fixture
def anyio_backend():
    return "asyncio"


@contextlib.asynccontextmanager
async def serving(script):
    """Have a workspace in which a script serves port 7777."""
    async with ShelledWorkspace() as workspace:
        with anyio.fail_after(60):
            # One that has no input ends the connection at once.
            asked = Spawn(script=script, cwd="/workspace", stdin=True)
            server = await workspace._sandbox.spawn(asked)
            await workspace.run(_LISTENS)
            yield workspace, server
            await server.aclose()


async def _dialled(workspace):
    return await workspace._sandbox.dial(Dial(host="127.0.0.1", port=7777))


@pytest.mark.parametrize("close", ["aclose", "abort"])
async def test_nothing_is_left_of_one_that_was_closed(close):
    async with serving("nc -ll -p 7777 -e sleep 77") as (workspace, _):
        for _ in range(2):
            connection = await _dialled(workspace)
            await connection.send(b"x")
            await getattr(connection, close)()
            await connection.aclose()
        assert (await workspace.run(_LEFT)).stdout == "0\n"


async def test_what_was_sent_before_it_was_closed_arrives():
    data = bytes(range(256)) * 4096
    async with serving("nc -l -p 7777 >got") as (workspace, server):
        connection = await _dialled(workspace)
        await connection.send(data)
        await connection.aclose()
        await server.wait()
        assert await workspace.read_bytes("got") == data
        assert (await workspace.run(_LEFT)).stdout == "0\n"


async def test_who_is_dialled_may_speak_first():
    async with serving("nc -ll -p 7777 -e printf +hello") as (workspace, _):
        connection = await _dialled(workspace)
        assert await connection.read() == b"+hello"
        await connection.aclose()
