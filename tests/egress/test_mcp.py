"""MCP servers elsewhere: through the filter, with their credentials held outside."""

from __future__ import annotations

import pytest

from isobox import McpServer, MemorySink, Secret
from isobox.errors import McpError

pytestmark = pytest.mark.anyio

HOST = "mcp.example.org"
VALUE = "S3NTINEL-of-the-mcp-server"


def server(url=f"https://{HOST}/mcp", **options):
    return McpServer(name="out", url=url, **options)


@pytest.fixture
def secret(monkeypatch):
    monkeypatch.setenv("REAL_TOKEN", VALUE)
    header = "Authorization: Bearer {}"
    return Secret("TOKEN", source="env:REAL_TOKEN", hosts=[HOST], header=header)


def said(result):
    return "".join(block.text for block in result.content)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_one_that_the_rules_allow_is_reached(internet, make, scheme):
    declared = server(f"{scheme}://{HOST}/mcp", headers={"X-Tenant": "a"})
    async with make([HOST], mcps=[declared]) as workspace:
        result = await workspace.mcp("out").call("echo", {"text": "there and back"})
        assert said(result) == "there and back"
        tools = {tool.name: tool for tool in await workspace.list_tools()}
        assert (await tools["mcp__out__echo"](text="again")).text == "again"
    assert {request.host for request in internet.requests} == {HOST}
    assert all(r.header("x-tenant") == ["a"] for r in internet.requests)


async def test_its_credentials_are_attached_outside(internet, make, secret):
    sink = MemorySink()
    options = {"mcps": [server()], "secrets": [secret], "audit": sink}
    async with make([HOST], **options) as workspace:
        await workspace.mcp("out").call("echo", {"text": "a"})
        found = await workspace.run("env; cat /proc/[0-9]*/environ")
        assert VALUE not in found.stdout
    sent = [request.header("authorization") for request in internet.requests]
    assert sent
    assert all(each == [f"Bearer {VALUE}"] for each in sent)
    assert VALUE not in repr(sink.records)


async def test_what_it_answers_is_masked(internet, make, secret):
    options = {"mcps": [server()], "secrets": [secret]}
    async with make([HOST], **options) as workspace:
        tools = {tool.name: tool for tool in await workspace.list_tools()}
        result = await tools["mcp__out__echo"](text=VALUE)
        assert VALUE not in result.text


@pytest.mark.parametrize("network", [["www.example.org"], [f"!{HOST}", "*"]])
async def test_one_that_they_do_not_allow_is_not(internet, make, network):
    sink = MemorySink()
    async with make(network, mcps=[server()], audit=sink) as workspace:
        with pytest.raises(McpError, match="403"):
            await workspace.mcp("out").tools()
    assert internet.requests == []
    connects = [r for r in sink.records if r.get("op") == "connect"]
    assert connects


async def test_the_hosts_own_ports_are_not_reached(internet, make):
    for url in ("http://127.0.0.2:80/mcp", "http://169.254.169.254/mcp"):
        async with make("open", mcps=[server(url)]) as workspace:
            with pytest.raises(McpError):
                await workspace.mcp("out").tools()
    assert internet.requests == []


async def test_a_wrong_certificate_is_not_believed(internet, make):
    declared = server("https://wrong.example.org/mcp")
    async with make(["wrong.example.org"], mcps=[declared]) as workspace:
        with pytest.raises(McpError):
            await workspace.mcp("out").tools()
    assert internet.requests == []


async def test_each_connection_and_each_call_is_recorded(internet, make):
    sink = MemorySink()
    async with make([HOST], mcps=[server()], audit=sink) as workspace:
        await workspace.mcp("out").call("echo", {"text": "a"})
    ops = [r["op"] for r in sink.records if r["kind"] == "intent"]
    assert "call_tool" in ops
    assert "connect" in ops
