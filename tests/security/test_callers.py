"""Rules on tools are about all that a tool does, and records say which it was."""

from __future__ import annotations

import asyncio

import pytest

from isobox import BubblewrapWorkspace, LocalWorkspace, MemorySink, Policy, Rule
from isobox.errors import PolicyDeniedError

pytestmark = pytest.mark.anyio

KINDS = {"local": LocalWorkspace, "bubblewrap": BubblewrapWorkspace}
PATCH = "*** Begin Patch\n*** Add File: patched\n+x\n*** End Patch"
CALLS = {
    "Bash": {"command": "echo x"},
    "Read": {"file_path": "a"},
    "Write": {"file_path": "b", "content": "x"},
    "Edit": {"file_path": "a", "edits": [{"old_string": "a", "new_string": "b"}]},
    "Glob": {"pattern": "*"},
    "Grep": {"pattern": "a"},
    "ApplyPatch": {"patch": PATCH},
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def without(*tools, **more):
    rule = Rule(verdict="deny", name="no such tool", tools=tools, **more)
    return Policy.allow_all().with_rules([rule])


async def tools_of(ws):
    await ws.write("a", b"a\n")
    return {tool.name: tool for tool in await ws.list_tools()}


@pytest.mark.parametrize("name", CALLS)
async def test_a_rule_on_a_tool_is_about_what_it_does(kind, name):
    sink = MemorySink()
    async with kind(policy=without(name), audit=sink) as ws:
        tools = await tools_of(ws)
        told = await tools[name](**CALLS[name])
        assert told.is_error
        assert "no such tool" in told.text
        # The others, and whoever uses the workspace itself, go on.
        for other in ("Read", "Glob"):
            if other != name:
                assert not (await tools[other](**CALLS[other])).is_error
        assert (await ws.run("echo x")).ok
    records = [each for each in sink.records if each["kind"] == "intent"]
    by = [by_of(each) for each in records]
    assert (by[0], by[-1]) == (None, None)
    assert name in by
    denied = [
        each["number"]
        for each in sink.records
        if each.get("error") == "PolicyDeniedError"
    ]
    assert {*denied} == {each["number"] for each in records if by_of(each) == name}


def by_of(record):
    return record["facts"].get("tool")


async def test_a_job_in_the_background_bears_the_name_too(kind):
    async with kind(policy=without("Bash", ops=("spawn",), programs=("git",))) as ws:
        tools = await tools_of(ws)
        told = await tools["Bash"](command="git log", run_in_background=True)
        assert "no such tool" in told.text
        assert (await ws.run("git --version || true")).ok


async def test_tools_that_run_at_once_keep_their_names_apart(kind):
    sink = MemorySink()
    async with kind(policy=without("Write"), audit=sink) as ws:
        tools = await tools_of(ws)
        calls = [tools[name](**CALLS[name]) for name in ("Read", "Write", "Grep")]
        read, write, grep = await asyncio.gather(*calls)
        assert (read.is_error, write.is_error, grep.is_error) == (False, True, False)
        await ws.write("c", b"x")
    intents = [each for each in sink.records if each["kind"] == "intent"]
    named = {(each["op"], by_of(each)) for each in intents}
    tools = {("read_lines", "Read"), ("search", "Grep"), ("write", "Write")}
    assert named - {("scan", None)} == {("write", None), *tools}


async def test_an_allowed_tool_allows_nothing_to_others(kind):
    rules = [
        Rule(verdict="allow", tools=("Read",)),
        Rule(verdict="allow", ops=("write",)),
    ]
    async with kind(policy=Policy.deny_all().with_rules(rules)) as ws:
        tools = await tools_of(ws)
        assert not (await tools["Read"](file_path="a")).is_error
        assert (await tools["Grep"](pattern="a")).is_error
        with pytest.raises(PolicyDeniedError):
            await ws.read_bytes("a")


class Full:
    """Takes records until the disk is full."""

    def __init__(self):
        self.records = []
        self.full = False

    def put(self, record):
        if self.full:
            raise OSError("the disk is full")
        self.records.append(record)


async def test_the_end_of_a_started_command_is_recorded_or_nothing_runs(kind, caplog):
    sink = Full()
    async with kind(audit=sink) as ws:
        process = await ws.start("read x; exit 3", stdin=True)
        sink.full = True
        await process.write_eof()
        while not caplog.records:
            await asyncio.sleep(0.01)
        assert "did not take the outcome" in caplog.text
        for _ in range(2):
            with pytest.raises(OSError, match="full"):
                await ws.write("b", b"x")
        sink.full = False
        assert not await ws.exists("b")
    intents = [each["number"] for each in sink.records if each["kind"] == "intent"]
    outcomes = [each["number"] for each in sink.records if each["kind"] == "outcome"]
    assert sorted(intents) == sorted(outcomes)
    assert sink.records[2]["end"]["exit_code"] == 3
