"""A workspace as an MCP server, with the official client."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from isobox import McpServer, MemorySink, Policy, Rule
from isobox._approval.question import Question
from isobox.mcp import Questions, server
from isobox.mcp.questions import answer_of, text
from isobox.testing import mcp_server
from isobox.testing.fake import MemoryWorkspace

pytestmark = pytest.mark.anyio

ERAS = ("legacy", "auto")
ASKING = Policy.allow_all().with_rules([Rule(verdict="ask", ops=("write",))])


class Served:
    """A client of a workspace in memory, and what it was asked."""

    def __init__(self, era, answer=None, **options):
        self.asked = []
        self.questions = Questions(one_client=True)
        self._era = era
        self._answer = answer
        self._options = options

    async def __aenter__(self):
        self.workspace = MemoryWorkspace(
            approve=self.questions.approve, **self._options
        )
        await self.workspace.initialize()
        made = server(
            self.workspace, questions=self.questions, instructions="read this"
        )
        elicit = None if self._answer is None else self._elicit
        self.client = Client(made, mode=self._era, elicitation_callback=elicit)
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self.client.__aexit__(*error)
        await self.questions.aclose()
        await self.workspace.close()

    async def _elicit(self, _context, params):
        self.asked.append(params.message)
        return types.ElicitResult(**self._answer)

    async def write(self, name="file"):
        given = {"file_path": name, "content": "text"}
        return await self.client.call_tool("Write", given)


def said(result):
    return "".join(block.text for block in result.content)


@pytest.mark.parametrize("era", ERAS)
async def test_its_tools_are_listed_and_work(era):
    async with Served(era) as served:
        names = [tool.name for tool in (await served.client.list_tools()).tools]
        assert names[:6] == ["Bash", "Read", "Write", "Edit", "Glob", "Grep"]
        assert not (await served.write()).is_error
        result = await served.client.call_tool("Read", {"file_path": "file"})
        assert "text" in said(result)
        assert served.client.instructions == "read this"


@pytest.mark.parametrize("era", ERAS)
async def test_a_mistake_is_told_in_the_result(era):
    async with Served(era) as served:
        result = await served.client.call_tool("Read", {"path": "file"})
        assert result.is_error
        assert "file_path" in said(result)


@pytest.mark.parametrize("era", ERAS)
async def test_an_unknown_tool_is_an_error(era):
    async with Served(era) as served:
        with pytest.raises(MCPError, match="no tool"):
            await served.client.call_tool("Nothing", {})


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("answer", "written"),
    [
        ({"action": "accept", "content": {"decision": "allow once"}}, True),
        ({"action": "accept", "content": {"decision": "deny"}}, False),
        ({"action": "accept", "content": {"decision": "yes"}}, False),
        ({"action": "accept", "content": {}}, False),
        ({"action": "accept"}, False),
        ({"action": "decline"}, False),
        ({"action": "cancel"}, False),
    ],
)
async def test_the_user_is_asked(era, answer, written):
    async with Served(era, answer, policy=ASKING) as served:
        result = await served.write()
        assert (not result.is_error) == written
        assert await served.workspace.exists("file") == written
        assert len(served.asked) == 1
        assert "write" in served.asked[0]


@pytest.mark.parametrize("era", ERAS)
async def test_words_reach_the_model(era):
    content = {"decision": "deny", "message": "use another name"}
    answer = {"action": "accept", "content": content}
    async with Served(era, answer, policy=ASKING) as served:
        assert "use another name" in said(await served.write())


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_holds_for_the_session(era):
    content = {"decision": "allow for this session"}
    answer = {"action": "accept", "content": content}
    async with Served(era, answer, policy=ASKING) as served:
        for _ in range(3):
            assert not (await served.write()).is_error
        assert len(served.asked) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_several_questions_of_one_call(era):
    answer = {"action": "accept", "content": {"decision": "allow once"}}
    async with Served(era, answer, policy=ASKING) as served:
        added = "*** Add File: a\n+1\n*** Add File: b\n+2\n"
        patch = f"*** Begin Patch\n{added}*** End Patch\n"
        result = await served.client.call_tool("ApplyPatch", {"patch": patch})
        assert not result.is_error, said(result)
        assert await served.workspace.exists("b")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_ask_gets_a_no(era):
    async with Served(era, policy=ASKING) as served:
        result = await served.write()
        assert result.is_error
        assert "cannot ask" in said(result)
        assert not await served.workspace.exists("file")


async def test_calls_at_once_are_asked_each_for_itself():
    answer = {"action": "accept", "content": {"decision": "allow once"}}
    async with Served("auto", answer, policy=ASKING) as served:
        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(served.write, f"file{number}")
        assert len(served.asked) == 10
        for number in range(10):
            assert any(f"file{number}" in asked for asked in served.asked)


async def test_an_answer_to_one_call_is_none_to_another():
    async with Served("auto", {"action": "decline"}, policy=ASKING) as served:
        session = served.client.session
        first = await session.call_tool(
            "Write", {"file_path": "a", "content": "1"}, allow_input_required=True
        )
        assert isinstance(first, types.InputRequiredResult)
        yes = types.ElicitResult(action="accept", content={"decision": "allow once"})
        for name, state in (("b", first.request_state), ("a", "made-up")):
            with pytest.raises(MCPError, match="no call waits"):
                await session.call_tool(
                    "Write",
                    {"file_path": name, "content": "1"},
                    input_responses={"approval": yes},
                    request_state=state,
                )
        assert not await served.workspace.exists("b")
        done = await session.call_tool(
            "Write",
            {"file_path": "a", "content": "1"},
            input_responses={"approval": yes},
            request_state=first.request_state,
        )
        assert not done.is_error
        with pytest.raises(MCPError, match="no call waits"):
            await session.call_tool(
                "Write",
                {"file_path": "a", "content": "1"},
                input_responses={"approval": yes},
                request_state=first.request_state,
            )


async def test_clients_that_never_come_back_pile_up_nowhere():
    async with Served("auto", {"action": "decline"}, policy=ASKING) as served:
        for number in range(70):
            await served.client.session.call_tool(
                "Write",
                {"file_path": f"f{number}", "content": "1"},
                allow_input_required=True,
            )
        assert len(served.questions._waiting) <= 64


async def test_every_call_is_recorded():
    sink = MemorySink()
    async with Served("auto", audit=sink) as served:
        await served.write()
    ops = [record["op"] for record in sink.records if record["kind"] == "intent"]
    assert "write" in ops


async def test_servers_inside_are_served_too(tmp_path):
    from isobox import LocalWorkspace  # noqa: PLC0415

    inside = McpServer(name="one", command=("python3", "mcp_server.py"))
    async with LocalWorkspace(tmp_path, mcps=[inside]) as workspace:
        await workspace.write("mcp_server.py", Path(mcp_server.__file__).read_bytes())
        async with Client(server(workspace)) as client:
            result = await client.call_tool("mcp__one__echo", {"text": "through"})
            assert said(result) == "through"


def test_a_question_steers_no_terminal():
    question = Question(
        "write", {"path": "\x1b]0;x\x07\u202e"}, "rule\x1b[2J", "why\r", 60.0
    )
    shown = text(question)
    assert all(each.isprintable() or each == "\n" for each in shown)


def test_a_message_is_cut():
    content = {"decision": "deny", "message": "x" * 10_000}
    answer = answer_of(types.ElicitResult(action="accept", content=content))
    assert len(answer.message) == 4000
    assert json.dumps(answer.message)
