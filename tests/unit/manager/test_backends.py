"""The manager over real sandboxes."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from tests.engines import unavailable

from isobox import BubblewrapWorkspace, LocalWorkspace
from isobox._registry import provider
from isobox.manager import SqlStore, WorkspaceManager
from isobox.testing.processes import kill_tree

pytestmark = pytest.mark.anyio

ME = ("ann", "coder", "1")
KINDS = {"local": LocalWorkspace, "bubblewrap": BubblewrapWorkspace}


@pytest.fixture(params=sorted(KINDS))
async def kind(request):
    about = await provider(request.param).probe()
    if not about.ok:
        unavailable(request.param, about.reason)
    return KINDS[request.param]


@pytest.fixture
def base(tmp_path):
    return str(tmp_path / "workspaces")


async def test_files_stay_and_commands_run_in_their_place(kind, base):
    async with WorkspaceManager(kind, basedir=base) as manager:
        workspace = await manager.get_workspace(*ME)
        assert (await workspace.run("echo mine > file; pwd")).ok
        await manager.close_workspace(workspace.workspace_id)
        workspace = await manager.get_workspace(*ME)
        assert await workspace.read_text("file") == "mine\n"
        (row,) = await manager.list_workspaces()
    place = f"{base}/{row.place}"
    assert os.listdir(f"{place}/files") == ["file"]
    with open(f"{place}/owner.json") as file:
        assert json.load(file)["user"] == "ann"
    with open(f"{place}/audit.jsonl") as file:
        assert "echo mine" in file.read()


async def test_a_killed_sandbox_comes_back_with_its_files(kind, base):
    async with WorkspaceManager(kind, basedir=base) as manager:
        workspace = await manager.get_workspace(*ME)
        await workspace.write("file", "mine")
        await kill_tree(workspace._sandbox._child.pid)
        async with asyncio.timeout(30):
            while not workspace._is_lost():
                await asyncio.sleep(0.01)
        again = await manager.get_workspace(*ME)
        assert again is workspace
        assert await again.read_text("file") == "mine"
        assert manager.stats().counters["recovered"] == 1


async def test_two_managers_hand_one_over(kind, base):
    async with (
        WorkspaceManager(kind, basedir=base, handover_after=0.1) as one,
        WorkspaceManager(kind, basedir=base, handover_after=0.1) as other,
    ):
        first = await one.get_workspace(*ME)
        await first.write("file", "mine")
        second = await other.get_workspace(*ME)
        assert first._is_lost()
        assert await second.read_text("file") == "mine"


async def test_whatever_was_left_in_it_is_deleted(kind, base):
    deep = 'import os\nfor n in range(300): os.mkdir("x" * 200); os.chdir("x" * 200)'
    script = f"mkdir -p a/b; chmod 0 a/b; ln -s / l; mkfifo f; python3 -c '{deep}'"
    async with WorkspaceManager(kind, basedir=base) as manager:
        workspace = await manager.get_workspace(*ME)
        assert (await workspace.run(script)).ok
        await manager.delete_workspace(workspace.workspace_id, user_id="ann")
        assert not os.listdir(f"{base}/.trash")
        assert not await manager.list_workspaces()


async def test_one_made_ahead_is_given_and_refilled(kind, base):
    async with WorkspaceManager(kind, basedir=base, prewarm=1) as manager:
        async with asyncio.timeout(60):
            while not manager.stats().spares:
                await asyncio.sleep(0.01)
        workspace = await manager.get_workspace(*ME)
        assert workspace.workspace_id.startswith("spare-")
        assert (await workspace.run("true")).ok
        async with asyncio.timeout(60):
            while not manager.stats().spares:
                await asyncio.sleep(0.01)
    async with SqlStore(f"{base}/manager.db") as store:
        rows = await store.records(1e12)
        assert [row.workspace_id for row in rows] == [workspace.workspace_id]


async def test_an_mcp_server_or_a_shell_that_waits_is_no_use(kind, base):
    async with WorkspaceManager(kind, basedir=base) as manager:
        workspace = await manager.get_workspace(*ME)
        await workspace.run("cd /; true", session_id="one")
        assert not workspace._activity.in_use
        running = asyncio.ensure_future(
            workspace.run("touch began; sleep 1000", session_id="one")
        )
        async with asyncio.timeout(30):
            while not workspace._activity.in_use:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        assert not workspace._activity.in_use
