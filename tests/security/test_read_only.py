"""Where nothing may be written, neither an operation nor a command writes."""

from __future__ import annotations

import pytest

from isobox import BubblewrapWorkspace, LocalWorkspace, MemorySink, Policy
from isobox.errors import PolicyDeniedError
from isobox.testing.fake import MemoryWorkspace

pytestmark = pytest.mark.anyio

PATCH = "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-old\n+new\n"
WRITES = {
    "write": lambda ws: ws.write("new", b"x"),
    "edit": lambda ws: ws.edit("file", "old", "new"),
    "patch": lambda ws: ws.apply_patch(
        "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-old\n+new\n"
    ),
    "remove": lambda ws: ws.remove("file"),
    "push": lambda ws: ws.upload(__file__, "new"),
}
TOOLS = {
    "Write": {"file_path": "new", "content": "x"},
    "Edit": {
        "file_path": "file",
        "edits": [{"old_string": "old", "new_string": "new"}],
    },
    "apply_patch": {
        "patch": PATCH,
    },
}
COMMANDS = (
    "echo x > new",
    "echo x >> file",
    "rm file",
    "mv file other",
    "chmod 777 file",
    "ln file hard",
    "ln -s file link",
    "mkdir folder",
    "truncate -s 0 file",
    "touch .",
    'python3 -c \'open("file", "r+")\'',
    "mount -o remount,rw /workspace",
)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_text("old\n")
    return tmp_path / "work"


KINDS = {
    "bubblewrap": BubblewrapWorkspace,
    "copy": lambda files, **options: BubblewrapWorkspace(files, mode="copy", **options),
    "local": LocalWorkspace,
    "memory": lambda files, **options: MemoryWorkspace(**options),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("write", WRITES)
async def test_writing_operations_never_reach_the_sandbox(files, kind, write):
    sink = MemorySink()
    policy = Policy.preset("read_only")
    async with KINDS[kind](files, policy=policy, audit=sink) as workspace:
        with pytest.raises(PolicyDeniedError, match="read-only") as caught:
            await WRITES[write](workspace)
        assert caught.value.rule == "read_only"
    outcomes = [r for r in sink.records if r["kind"] == "outcome" and not r["ok"]]
    assert [r["error"] for r in outcomes] == ["PolicyDeniedError"]
    assert (files / "file").read_text() == "old\n"


@pytest.mark.parametrize("kind", ["bubblewrap", "copy", "local"])
@pytest.mark.parametrize("name", TOOLS)
async def test_writing_tools_say_that_they_may_not(files, kind, name):
    async with KINDS[kind](files, policy=Policy.preset("read_only")) as workspace:
        tools = {tool.name.lower(): tool for tool in await workspace.list_tools()}
        tool = tools.get(name.lower()) or tools[name.replace("_", "").lower()]
        result = await tool(**TOOLS[name])
    assert result.is_error
    assert "read-only" in result.text
    assert (files / "file").read_text() == "old\n"


@pytest.mark.parametrize("kind", ["bubblewrap", "copy"])
async def test_the_sandbox_refuses_as_well(files, kind):
    async with KINDS[kind](files, policy=Policy.preset("read_only")) as workspace:
        assert "read_only" in workspace._live().capabilities
        for command in COMMANDS:
            result = await workspace.run(command)
            assert result.exit_code != 0, command
        assert (await workspace.run("cat file; echo x > /tmp/x")).stdout == "old\n"
    assert sorted(path.name for path in files.iterdir()) == ["file"]
    assert (files / "file").read_text() == "old\n"


@pytest.mark.parametrize("kind", ["local", "memory"])
async def test_where_no_sandbox_can_refuse_nothing_runs(files, kind):
    async with KINDS[kind](files, policy=Policy.preset("read_only")) as workspace:
        with pytest.raises(PolicyDeniedError, match="could still write"):
            await workspace.run("true")
        with pytest.raises(PolicyDeniedError, match="could still write"):
            await workspace.shell().run("true")


async def test_without_the_policy_it_can_be_written(files):
    async with BubblewrapWorkspace(files) as workspace:
        assert "read_only" not in workspace._live().capabilities
        await workspace.run("echo new > file", check=True)
    assert (files / "file").read_text() == "new\n"
