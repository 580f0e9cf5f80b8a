"""A tool costs one round trip: one OPEN frame on the channel."""

from __future__ import annotations

import pytest

from isobox import BubblewrapWorkspace, LocalWorkspace
from isobox._guest import agent

pytestmark = pytest.mark.anyio

CALLS = {
    "Read": {"file_path": "f"},
    "Write": {"file_path": "new", "content": "x"},
    "Edit": {
        "file_path": "f",
        "edits": [
            {"old_string": "one", "new_string": "1"},
            {"old_string": "two", "new_string": "2"},
        ],
    },
    "Glob": {"pattern": "**/*.txt"},
    "Grep": {"pattern": "one", "context": 2},
    "ApplyPatch": {"patch": "--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n"},
}


@pytest.fixture(params=[LocalWorkspace, BubblewrapWorkspace])
async def workspace(request):
    async with request.param() as opened:
        await opened.write("f", "one\ntwo\n")
        await opened.write("g", "a\n")
        await opened.write("d/e.txt", "one\n")
        yield opened


@pytest.fixture
def opened(workspace, monkeypatch):
    """The operations that the host opens."""
    channel = workspace._sandbox.channel
    write, seen = channel.write, []

    def counting(kind, number, *parts):
        if kind == agent.OPEN:
            seen.append(number)
        write(kind, number, *parts)

    monkeypatch.setattr(channel, "write", counting)
    return seen


async def call(workspace, opened, name, **arguments):
    before = len(opened)
    tools = {tool.name: tool for tool in await workspace.list_tools()}
    # To list them is one: whether there are skills.
    assert len(opened) == before + 1
    del opened[before:]
    result = await tools[name](**arguments)
    assert not result.is_error, result.text


@pytest.mark.parametrize("name", CALLS)
async def test_a_tool_opens_one_operation(workspace, opened, name):
    await call(workspace, opened, name, **CALLS[name])
    assert len(opened) == 1


async def test_what_was_read_is_edited_and_replaced_in_one_each(workspace, opened):
    await call(workspace, opened, "Read", file_path="f")
    await call(workspace, opened, "Edit", **CALLS["Edit"])
    await call(workspace, opened, "Write", file_path="f", content="x")
    assert len(opened) == 3


async def test_a_command_in_a_shell_opens_nothing_once_it_runs(workspace, opened):
    await call(workspace, opened, "Bash", command="true")
    opened.clear()
    await call(workspace, opened, "Bash", command="true")
    assert opened == []
