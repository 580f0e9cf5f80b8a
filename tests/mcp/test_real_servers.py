"""Servers that others have written, inside a workspace."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest
from mcp_types import ElicitResult

from isobox import McpServer
from isobox.errors import McpError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]

BIN = Path(sys.prefix) / "bin"


def said(result):
    return "".join(each.text for each in result.content if each.type == "text")


def python(name, *arguments):
    module = f"mcp_server_{name}"
    return McpServer(
        name=name,
        command=(sys.executable, "-m", module, *arguments),
        start_timeout=90,
    )


async def test_git(workspace):
    async with workspace(mcps=[python("git")]) as ws:
        script = (
            "git init -q . && git config user.name A && git config user.email a@b.c"
            " && echo one > file && git add . && git commit -qm first"
            " && echo two > file"
        )
        await ws.run(script, check=True)
        git = ws.mcp("git")
        log = said(await git.call("git_log", {"repo_path": ws.root}))
        assert "first" in log
        status = said(await git.call("git_status", {"repo_path": ws.root}))
        assert "modified:   file" in status
        tools = {tool.name: tool for tool in await ws.list_tools()}
        diff = await tools["mcp__git__git_diff_unstaged"](repo_path=ws.root)
        assert "+two" in diff.text


async def test_time(workspace):
    async with workspace(mcps=[python("time", "--local-timezone=UTC")]) as ws:
        result = await ws.mcp("time").call("get_current_time", {"timezone": "UTC"})
        assert json.loads(said(result))["timezone"] == "UTC"


async def test_fetch_has_no_network_unless_it_is_given_one(workspace):
    async with workspace(mcps=[python("fetch")]) as ws:
        fetch = ws.mcp("fetch")
        assert [tool.name for tool in await fetch.tools()] == ["fetch"]
        if "isolated" in ws._sandbox.capabilities:
            result = await fetch.call("fetch", {"url": "http://192.0.2.1/"})
            assert result.is_error


async def test_filesystem(workspace, program):
    async with workspace() as ws:
        command = program("filesystem", ws.root)
        await ws.add_mcp(McpServer(name="files", command=command, start_timeout=90))
        files = ws.mcp("files")
        path = f"{ws.root}/note.txt"
        await files.call("write_file", {"path": path, "content": "hello"})
        assert await ws.read_text("note.txt") == "hello"
        result = await files.call("read_text_file", {"path": "/etc/passwd"})
        assert result.is_error


async def test_memory(workspace, program):
    async with workspace() as ws:
        server = McpServer(
            name="memory",
            command=program("memory"),
            env={"MEMORY_FILE_PATH": f"{ws.root}/memory.json"},
            start_timeout=90,
        )
        await ws.add_mcp(server)
        entity = {"name": "isobox", "entityType": "library", "observations": ["new"]}
        memory = ws.mcp("memory")
        await memory.call("create_entities", {"entities": [entity]})
        graph = said(await memory.call("read_graph"))
        assert "isobox" in graph
        assert "isobox" in await ws.read_text("memory.json")


async def test_everything(workspace, program):
    async with workspace() as ws:
        command = program("everything", "stdio")
        await ws.add_mcp(McpServer(name="all", command=command, start_timeout=90))
        everything = ws.mcp("all")
        assert "hi" in said(await everything.call("echo", {"message": "hi"}))
        assert await everything.prompts()
        resources = await everything.resources()
        assert (await everything.read(resources[0].uri)).contents
        with pytest.raises(McpError):
            await everything.read("demo://nothing/there")


#: Made with the official SDK: it tells of its changes, and asks the user.
OF_SDK = """
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("made")

class Name(BaseModel):
    name: str

@server.tool()
async def grow(context: Context) -> str:
    def grown() -> str:
        return "here"
    server.add_tool(grown)
    await context.session.send_tool_list_changed()
    return "grew"

@server.tool()
async def ask(context: Context) -> str:
    answer = await context.elicit("Who are you?", Name)
    return f"{answer.action} {answer.data.name}"

server.run()
"""

#: Hands all on to that one but the handshake, which it does not know.
WITHOUT_HANDSHAKE = """
import json, subprocess, sys, threading

server = subprocess.Popen([sys.executable, "made.py"], stdin=-1, stdout=-1)

def answers():
    for line in server.stdout:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

threading.Thread(target=answers, daemon=True).start()
for line in sys.stdin.buffer:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
        error = {"code": -32022, "message": "too old", "data": data}
        answer = {"jsonrpc": "2.0", "id": asked["id"], "error": error}
        print(json.dumps(answer), flush=True)
    else:
        server.stdin.write(line)
        server.stdin.flush()
"""


def made(program="made.py"):
    command = (sys.executable, program)
    return McpServer(name="made", command=command, start_timeout=90)


async def names(mcp):
    return {tool.name for tool in await mcp.tools()}


async def test_a_server_of_the_sdk_tells_of_its_changes(workspace):
    async with workspace(mcps=[made()]) as ws:
        await ws.write("made.py", OF_SDK)
        mcp = ws.mcp("made")
        assert await names(mcp) == {"grow", "ask"}
        assert said(await mcp.call("grow")) == "grew"
        with anyio.fail_after(30):
            while "grown" not in await names(mcp):
                await anyio.sleep(0.01)
        assert "mcp__made__grown" in {tool.name for tool in await ws.list_tools()}


async def test_a_server_of_the_sdk_asks_the_user_if_it_may(workspace):
    async def elicit(*_):
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with workspace(mcps=[made()], elicit=elicit) as ws:
        await ws.write("made.py", OF_SDK)
        assert said(await ws.mcp("made").call("ask")) == "accept Ada"
    async with workspace(mcps=[made()]) as ws:
        await ws.write("made.py", OF_SDK)
        with pytest.raises(McpError, match=r"(?i)elicitation not supported"):
            await ws.mcp("made").call("ask")


async def test_a_server_without_the_handshake_is_spoken_with(workspace):
    async with workspace(mcps=[made("modern.py")]) as ws:
        await ws.write("made.py", OF_SDK)
        await ws.write("modern.py", WITHOUT_HANDSHAKE)
        mcp = ws.mcp("made")
        assert await names(mcp) == {"grow", "ask"}
        assert said(await mcp.call("grow")) == "grew"
        (status,) = await ws.list_mcps()
        assert status.state == "running"
