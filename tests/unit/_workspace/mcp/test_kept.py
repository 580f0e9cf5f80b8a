"""Declarations that outlive a workspace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isobox import LocalWorkspace, McpServer, McpWarning
from isobox._workspace.mcp.kept import Kept
from isobox.errors import InvalidArgumentError

pytestmark = pytest.mark.anyio

ONE = McpServer(name="one", command=("one",), env={"KEY": "value"})
TWO = McpServer(name="two", url="https://mcp.example.org/mcp")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def project(tmp_path):
    path = tmp_path / "project"
    path.mkdir()
    return path


def names(statuses):
    return [each.server.name for each in statuses]


async def test_the_next_workspace_has_them(project):
    async with LocalWorkspace(project) as ws:
        await ws.add_mcp(ONE)
        await ws.add_mcp(TWO, agent_id="a", session_id="s")
    assert list(project.iterdir()) == []
    async with LocalWorkspace(project) as ws:
        assert [each.server for each in await ws.list_mcps()] == [ONE]
        found = await ws.list_mcps(agent_id="a", session_id="s")
        assert names(found) == ["two", "one"]
        await ws.remove_mcp("one")
    async with LocalWorkspace(project) as ws:
        assert await ws.list_mcps() == []


async def test_a_temporary_workspace_keeps_none(tmp_path):
    async with LocalWorkspace() as ws:
        await ws.add_mcp(ONE)
    assert not (tmp_path / "state").exists()


async def test_those_that_are_given_come_first(project):
    async with LocalWorkspace(project) as ws:
        await ws.add_mcp(ONE)
    other = McpServer(name="one", command=("other",))
    async with LocalWorkspace(project, mcps=[other]) as ws:
        assert [each.server for each in await ws.list_mcps()] == [other]


async def test_one_bad_entry_breaks_no_other(project):
    kept = Kept(str(project))
    kept.add(ONE, (None, None))
    kept.add(TWO, (None, None))
    file = Path(kept._state.path)
    told = json.loads(file.read_text())
    told["servers"][0]["server"]["url"] = "file:///etc/passwd"
    told["servers"] += [None, {"name": 3}, {"name": "x", "server": []}]
    file.write_text(json.dumps(told))
    async with LocalWorkspace(project) as ws:
        with pytest.warns(McpWarning):
            assert names(await ws.list_mcps()) == ["two"]


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2, "servers": []}'])
async def test_a_bad_file_is_a_warning(project, text):
    kept = Kept(str(project))
    kept.add(ONE, (None, None))
    Path(kept._state.path).write_text(text)
    async with LocalWorkspace(project) as ws:
        with pytest.warns(McpWarning):
            assert await ws.list_mcps() == []


async def test_what_cannot_be_kept_is_not_declared(project, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(project))
    async with LocalWorkspace(project) as ws:
        with pytest.warns(McpWarning), pytest.raises(OSError, match="inside"):
            await ws.add_mcp(ONE)
        assert await ws.list_mcps() == []


@pytest.mark.parametrize("given", [[1], [ONE, ONE], {"a": ONE}, {"a": 1}])
def test_what_is_given_is_checked(given):
    with pytest.raises(InvalidArgumentError):
        LocalWorkspace(mcps=given)


async def test_a_whole_file_is_taken_but_for_what_it_disables():
    servers = {"a": {"command": "x"}, "b": {"command": "y", "disabled": True}}
    for given in (servers, {"mcpServers": servers}):
        async with LocalWorkspace(mcps=given) as ws:
            assert names(await ws.list_mcps()) == ["a"]


@pytest.mark.parametrize("most", [0, -1, True])
def test_how_many_is_checked(most):
    with pytest.raises(InvalidArgumentError, match="max_mcps"):
        LocalWorkspace(max_mcps=most)
