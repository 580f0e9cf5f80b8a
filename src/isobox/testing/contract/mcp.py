"""MCP servers inside the sandbox, and what speaks with them."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types
import pytest

from isobox import DataBlock, McpServer, MemorySink, Policy, Rule
from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    LimitError,
    McpError,
    McpTimedOutError,
    PolicyDeniedError,
    SandboxLostError,
    WorkspaceClosedError,
)
from isobox.testing import mcp_server
from isobox.testing.contract._base import SLACK, SOON, Contract, Kill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isobox import WorkspaceBase
    from isobox.testing.contract._base import Factory

_python = pytest.mark.requires("python3")
_SOURCE = Path(mcp_server.__file__).read_bytes()
_COMMAND = ("python3", "mcp_server.py")


def _server(
    name: str = "one",
    *,
    command: tuple[str, ...] = _COMMAND,
    **options: Any,  # noqa: ANN401 - those of McpServer
) -> McpServer:
    return McpServer(name=name, command=command, **options)


def _said(result: mcp_types.CallToolResult) -> str:
    blocks = result.content
    return "".join(
        each.text for each in blocks if isinstance(each, mcp_types.TextContent)
    )


def _contents(result: mcp_types.ReadResourceResult) -> dict[str, Any]:
    return result.contents[0].model_dump(include={"text", "blob"})


@_python
class McpContract(Contract):
    """Servers start when needed, are spoken with, die, and come back."""

    @pytest.fixture
    async def served(self, fresh_workspace: Factory) -> AsyncIterator[Factory]:
        """Makes a workspace that has the server's program in it."""
        async with AsyncExitStack():

            async def make(**options: Any) -> WorkspaceBase:  # noqa: ANN401 - each has its own
                workspace = await fresh_workspace(**options)
                await workspace.write("mcp_server.py", _SOURCE)
                return workspace

            yield make

    # Starting.

    async def test_nothing_starts_before_it_is_needed(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        assert [each.state for each in await workspace.list_mcps()] == ["idle"]
        await workspace.run("true")
        assert [each.state for each in await workspace.list_mcps()] == ["idle"]

    async def test_its_tools_are_among_the_workspaces(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        tools = {tool.name: tool for tool in await workspace.list_tools()}
        echo = tools["mcp__one__echo"]
        assert echo.input_schema["properties"] == {"text": {"type": "string"}}
        assert (await echo(text="hi")).text == "hi"
        assert "Bash" in tools

    async def test_a_hint_of_its_own_widens_nothing(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        tools = {tool.name: tool for tool in await workspace.list_tools()}
        assert not tools["mcp__one__echo"].read_only

    async def test_an_argument_may_have_any_name(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        tools = {tool.name: tool for tool in await workspace.list_tools()}
        assert (await tools["mcp__one__self"](self="me")).text == "me"

    async def test_a_bad_one_hides_no_other(self, served: Factory) -> None:
        absent = McpServer(name="absent", command=("no-such-program",))
        silent = McpServer(name="silent", command=("sleep", "60"), start_timeout=0.5)
        ended = McpServer(name="ended", command=("true",))
        workspace = await served(mcps=[absent, silent, ended, _server()])
        names = [tool.name for tool in await workspace.list_tools()]
        assert "mcp__one__echo" in names
        assert not any("absent" in name or "silent" in name for name in names)
        states = {each.server.name: each for each in await workspace.list_mcps()}
        assert states["one"].state == "running"
        for name, why in (
            ("absent", "no-such-program"),
            ("silent", "0.5 s"),
            ("ended", "standard output"),
        ):
            assert states[name].state == "failed"
            assert why in (states[name].problem or "")

    async def test_a_server_that_starts_slowly_is_waited_for(
        self, served: Factory
    ) -> None:
        slow = _server(env={"SLOW_START": "1"}, start_timeout=SOON)
        workspace = await served(mcps=[slow])
        assert _said(await workspace.mcp("one").call("echo", {"text": "a"})) == "a"

    async def test_it_has_its_own_variables_and_directory(
        self, served: Factory
    ) -> None:
        workspace = await served()
        await workspace.run(["mkdir", "below"])
        await workspace.run(["cp", "mcp_server.py", "below"])
        await workspace.add_mcp(_server(env={"GREETING": "hello"}, cwd="below"))
        answer = await workspace.mcp("one").call("environment", {"name": "GREETING"})
        assert _said(answer) == "hello"
        assert "GREETING" not in (await workspace.run("env")).stdout

    async def test_one_that_is_unknown_says_which_there_are(
        self, served: Factory
    ) -> None:
        workspace = await served(mcps=[_server()])
        with pytest.raises(InvalidArgumentError, match="one"):
            workspace.mcp("two")

    # Speaking.

    async def test_resources_and_prompts(self, served: Factory) -> None:
        mcp = (await served(mcps=[_server()])).mcp("one")
        assert [each.uri for each in await mcp.resources()] == ["note://one"]
        assert await mcp.templates() == []
        assert _contents(await mcp.read("note://one")) == {"text": "first"}
        assert _contents(await mcp.read("note://raw")) == {"blob": "AAEC"}
        assert [each.name for each in await mcp.prompts()] == ["greet"]
        prompt = await mcp.prompt("greet", {"who": "you"})
        assert prompt.messages[0].content == mcp_types.TextContent(text="hello you")

    async def test_an_error_of_a_tool_is_an_answer(self, served: Factory) -> None:
        mcp = (await served(mcps=[_server()])).mcp("one")
        assert (await mcp.call("refuse")).is_error
        with pytest.raises(McpError, match="cannot do that"):
            await mcp.call("unknown_error")
        assert _said(await mcp.call("echo", {"text": "still there"})) == "still there"

    async def test_progress_is_told_to_a_plain_function(self, served: Factory) -> None:
        told: list[float] = []
        mcp = (await served(mcps=[_server()])).mcp("one")
        await mcp.call("progress", progress=lambda done, _, __: told.append(done))
        assert told == sorted(told)
        assert told

    @pytest.mark.parametrize("timeout", [0, -1, "x", True])
    async def test_no_call_takes_no_time(
        self, served: Factory, timeout: object
    ) -> None:
        given: Any = timeout
        mcp = (await served(mcps=[_server()])).mcp("one")
        with pytest.raises(InvalidArgumentError, match="timeout"):
            await mcp.call("echo", {"text": "x"}, timeout=given)

    async def test_arguments_are_by_name(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        given: Any = "text"
        with pytest.raises(InvalidArgumentError, match="by name"):
            await workspace.mcp("one").call("echo", given)
        with pytest.raises(InvalidArgumentError, match="no McpServer"):
            await workspace.add_mcp(given)

    async def test_progress_is_told(self, served: Factory) -> None:
        mcp = (await served(mcps=[_server()])).mcp("one")
        told: list[float] = []

        async def note(
            progress: float,
            total: float | None,  # noqa: ARG001 - the SDK's names
            message: str | None,  # noqa: ARG001
        ) -> None:
            told.append(progress)

        await mcp.call("progress", progress=note)
        with anyio.fail_after(SOON):
            while len(told) < 3:
                await anyio.sleep(0.01)
        assert told == [1, 2, 3]

    async def test_what_it_logs_is_kept(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        await workspace.mcp("one").call("log")
        with anyio.fail_after(SOON):
            while "something to note" not in (await workspace.list_mcps())[0].log:
                await anyio.sleep(0.01)

    async def test_a_new_tool_is_found(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        mcp = workspace.mcp("one")
        assert "added" not in [tool.name for tool in await mcp.tools()]
        await mcp.call("add_tool")
        with anyio.fail_after(SOON):
            while "added" not in [tool.name for tool in await mcp.tools()]:
                await anyio.sleep(0.01)
        names = [tool.name for tool in await workspace.list_tools()]
        assert "mcp__one__added" in names

    async def test_an_image_is_shown(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        tools = {tool.name: tool for tool in await workspace.list_tools()}
        (block,) = (await tools["mcp__one__image"]()).blocks
        assert isinstance(block, DataBlock)
        assert block.media_type == "image/png"

    async def test_a_long_answer_is_kept_in_a_file(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        tools = {tool.name: tool for tool in await workspace.list_tools()}
        result = await tools["mcp__one__large"](bytes=50 << 20)
        assert len(result.text) < 40_000
        path = result.text.split("all of it is in ")[1].split("]")[0]
        assert (await workspace.stat(path)).size == 50 << 20

    async def test_what_is_no_message_does_no_harm(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        answer = await workspace.mcp("one").call("garbage")
        assert _said(answer) == "after garbage"
        assert "this is no message" in (await workspace.list_mcps())[0].log

    async def test_a_flood_of_errors_does_no_harm(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        answer = await workspace.mcp("one").call("flood", {"bytes": 20_000_000})
        assert _said(answer) == "flooded"
        assert len((await workspace.list_mcps())[0].log) <= 65536

    async def test_over_http_on_a_port_inside(self, served: Factory) -> None:
        if "dial" not in self.capabilities:
            pytest.skip("the backend has no dial")
        port = 20000 + time.monotonic_ns() % 20000
        web = _server(
            command=(*_COMMAND, str(port)), url=f"http://127.0.0.1:{port}/mcp"
        )
        workspace = await served(mcps=[web])
        mcp = workspace.mcp("one")
        assert _said(await mcp.call("echo", {"text": "by port"})) == "by port"
        with pytest.raises(McpError):
            await mcp.call("die")
        assert _said(await mcp.call("echo", {"text": "again"})) == "again"

    async def test_one_outside_needs_a_network(self, served: Factory) -> None:
        outside = McpServer(name="out", url="https://mcp.example.org/mcp")
        workspace = await served(mcps=[outside])
        with pytest.raises(McpError, match=r"mcp\.example\.org"):
            await workspace.mcp("out").tools()

    # What a server asks.

    @pytest.mark.parametrize("question", ["elicit", "sample"])
    async def test_questions_are_refused(self, served: Factory, question: str) -> None:
        mcp = (await served(mcps=[_server()])).mcp("one")
        assert "-326" in _said(await mcp.call(question))

    async def test_questions_are_answered_where_that_is_wanted(
        self, served: Factory
    ) -> None:
        async def elicit(*_: object) -> object:
            return mcp_types.ElicitResult(action="accept", content={})

        mcp = (await served(mcps=[_server()], elicit=elicit)).mcp("one")
        assert "accept" in _said(await mcp.call("elicit"))

    # Whose it is.

    async def test_each_session_has_its_own(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        pids = [
            _said(await workspace.mcp("one", session_id=name).call("pid"))
            for name in ("a", "b", "a")
        ]
        assert pids[0] == pids[2] != pids[1]

    async def test_one_that_is_shared_serves_all(self, served: Factory) -> None:
        workspace = await served(mcps=[_server(shared=True)])
        pids = {
            _said(await workspace.mcp("one", session_id=name).call("pid"))
            for name in ("a", "b")
        }
        assert len(pids) == 1

    async def test_one_for_a_session_is_nobody_elses(self, served: Factory) -> None:
        workspace = await served()
        await workspace.add_mcp(_server(), session_id="a")
        await workspace.add_mcp(_server("two"), agent_id="x")
        workspace.mcp("one", session_id="a")
        workspace.mcp("two", agent_id="x", session_id="b")
        for name, agent, session in (("one", None, "b"), ("two", None, "a")):
            with pytest.raises(InvalidArgumentError):
                workspace.mcp(name, agent_id=agent, session_id=session)

    async def test_the_one_used_least_recently_makes_room(
        self, served: Factory
    ) -> None:
        workspace = await served(mcps=[_server()], max_mcps=2)
        for name in ("a", "b", "a", "c"):
            await workspace.mcp("one", session_id=name).call("pid")
        states = {
            name: (await workspace.list_mcps(session_id=name))[0].state
            for name in ("a", "b", "c")
        }
        assert states == {"a": "running", "b": "idle", "c": "running"}

    async def test_one_in_use_makes_no_room(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()], max_mcps=1)
        async with anyio.create_task_group() as group:
            group.start_soon(workspace.mcp("one").call, "sleep", {"seconds": 60})
            await self._asleep(workspace)
            with pytest.raises(LimitError):
                await workspace.mcp("one", session_id="other").call("pid")
            group.cancel_scope.cancel()

    async def test_one_that_is_removed_is_gone(self, served: Factory) -> None:
        workspace = await served()
        await workspace.add_mcp(_server())
        with pytest.raises(InvalidArgumentError, match="already"):
            await workspace.add_mcp(_server())
        mcp = workspace.mcp("one")
        await mcp.call("pid")
        await workspace.remove_mcp("one")
        with pytest.raises(InvalidArgumentError):
            await mcp.call("pid")
        with pytest.raises(InvalidArgumentError):
            await workspace.remove_mcp("one")
        assert await workspace.list_mcps() == []

    # Ends.

    async def test_a_late_answer_is_not_waited_for(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        mcp = workspace.mcp("one")
        await mcp.tools()
        began = time.monotonic()
        with pytest.raises(McpTimedOutError, match="within"):
            await mcp.call("sleep", {"seconds": 60}, timeout=0.3)
        assert time.monotonic() - began < 0.3 + SLACK
        await self._until_logged(workspace, "cancelled")
        assert _said(await mcp.call("echo", {"text": "there"})) == "there"

    async def test_a_call_can_be_cancelled(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        mcp = workspace.mcp("one")
        async with anyio.create_task_group() as group:
            group.start_soon(mcp.call, "sleep", {"seconds": 60})
            await self._asleep(workspace)
            group.cancel_scope.cancel()
        await self._until_logged(workspace, "cancelled")
        assert _said(await mcp.call("echo", {"text": "there"})) == "there"

    async def test_one_that_dies_comes_back(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        mcp = workspace.mcp("one")
        first = _said(await mcp.call("pid"))
        with pytest.raises(McpError, match="last words"):
            await mcp.call("die")
        assert (await workspace.list_mcps())[0].state == "failed"
        assert _said(await mcp.call("pid")) != first
        assert (await workspace.list_mcps())[0].state == "running"

    async def test_every_call_of_one_that_dies_ends(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        mcp = workspace.mcp("one")
        await mcp.tools()
        ends: list[object] = []

        async def call(seconds: float) -> None:
            try:
                ends.append(await mcp.call("sleep", {"seconds": seconds}))
            except McpError as error:
                ends.append(error)

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                for _ in range(100):
                    group.start_soon(call, 60)
                await self._asleep(workspace)
                with pytest.raises(McpError):
                    await mcp.call("die")
        assert len(ends) == 100
        assert all(isinstance(end, McpError) for end in ends)

    async def test_a_lost_sandbox_is_told(
        self, served: Factory, kill_sandbox: Kill
    ) -> None:
        workspace = await served(mcps=[_server()])
        mcp = workspace.mcp("one")
        await mcp.tools()
        ends: list[object] = []

        async def call() -> None:
            try:
                ends.append(await mcp.call("sleep", {"seconds": 60}))
            except IsoboxError as error:
                ends.append(error)

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                for _ in range(100):
                    group.start_soon(call)
                await self._asleep(workspace)
                await kill_sandbox(workspace)
        assert len(ends) == 100
        with pytest.raises(SandboxLostError):
            await mcp.call("pid")

    async def test_none_outlives_its_workspace(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        await workspace.mcp("one").call("pid")
        await workspace.close()
        with pytest.raises(WorkspaceClosedError):
            await workspace.mcp("one").call("pid")

    async def test_after_a_reset_it_is_started_anew(self, served: Factory) -> None:
        workspace = await served(mcps=[_server()])
        await workspace.mcp("one").call("pid")
        await workspace.reset()
        await workspace.write("mcp_server.py", _SOURCE)
        assert not (await workspace.mcp("one").call("pid")).is_error

    # The one funnel.

    async def test_each_call_is_recorded(self, served: Factory) -> None:
        sink = MemorySink()
        workspace = await served(mcps=[_server()], audit=sink)
        await workspace.mcp("one").call("echo", {"text": "hi"})
        asked = [
            record["facts"]
            for record in sink.records
            if record["kind"] == "intent" and record["op"] == "call_tool"
        ]
        assert asked == [
            {
                "server": "one",
                "kind": "tool",
                "tool": "echo",
                "arguments": '{"text": "hi"}',
                "remote": False,
            }
        ]

    async def test_a_policy_decides(self, served: Factory) -> None:
        rule = Rule(verdict="deny", tools=("mcp__one__e*",))
        policy = Policy.allow_all().with_rules([rule])
        workspace = await served(mcps=[_server()], policy=policy)
        mcp = workspace.mcp("one")
        assert _said(await mcp.call("pid"))
        with pytest.raises(PolicyDeniedError):
            await mcp.call("echo", {"text": "hi"})
        tools = {tool.name: tool for tool in await workspace.list_tools()}
        assert (await tools["mcp__one__echo"](text="hi")).is_error

    async def test_a_person_is_asked(self, served: Factory) -> None:
        asked: list[Any] = []

        async def approve(question: Any) -> bool:  # noqa: ANN401 - a Question
            asked.append(question)
            return False

        rule = Rule(verdict="ask", ops=("tool",))
        policy = Policy.allow_all().with_rules([rule])
        workspace = await served(mcps=[_server()], policy=policy, approve=approve)
        with pytest.raises(PolicyDeniedError):
            await workspace.mcp("one").call("echo", {"text": "hi"})
        assert '"text": "hi"' in asked[0].preview

    # Helpers of these tests.

    async def _asleep(self, workspace: WorkspaceBase) -> None:
        await self._until_logged(workspace, "asleep")

    async def _until_logged(self, workspace: WorkspaceBase, words: str) -> None:
        with anyio.fail_after(SOON):
            while words not in (await workspace.list_mcps())[0].log:
                await anyio.sleep(0.01)
