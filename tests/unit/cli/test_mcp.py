"""`isobox mcp`, by real clients."""

from __future__ import annotations

import json
import os
import re
import subprocess

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from tests.unit.cli.command_line import ISOBOX

from isobox.testing import mcp_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(200)]

LOCAL = ("--backend", "local")


def isobox(*arguments, cwd=None):
    return subprocess.run(
        [*ISOBOX, *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def said(result):
    return "".join(block.text for block in result.content)


def over_stdio(*arguments):
    words = [*ISOBOX, "mcp", *LOCAL, *arguments]
    return StdioServerParameters(command=words[0], args=words[1:])


class Http:
    """`isobox mcp --http`, and where it serves."""

    def __init__(self, *arguments, token=None):
        self._arguments = arguments
        self._env = os.environ | ({"ISOBOX_MCP_TOKEN": token} if token else {})

    async def __aenter__(self):
        self._process = await anyio.open_process(
            [*ISOBOX, "mcp", *LOCAL, "--http", "0", *self._arguments], env=self._env
        )
        self.told = b""
        while b"/mcp\n" not in self.told or self._bare():
            self.told += await self._process.stderr.receive()
        self.url = re.search(r"http://\S+", self.told.decode()).group()
        return self

    def _bare(self):
        return "ISOBOX_MCP_TOKEN" not in self._env and b"Bearer" not in self.told

    @property
    def token(self):
        return re.search(r"Bearer (\S+)", self.told.decode()).group(1)

    async def __aexit__(self, *_):
        self._process.terminate()
        await self._process.aclose()


async def test_over_standard_input_and_output(tmp_path):
    async with Client(over_stdio("--workdir", str(tmp_path))) as client:
        result = await client.call_tool("Bash", {"command": "echo hi > file; pwd"})
        assert str(tmp_path) in said(result)
    assert (tmp_path / "file").read_text() == "hi\n"


async def test_it_asks_by_default_and_a_mute_client_gets_a_no(tmp_path):
    (tmp_path / "kept").mkdir()
    async with Client(over_stdio("--workdir", str(tmp_path))) as client:
        result = await client.call_tool("Bash", {"command": "rm -r kept"})
        assert result.is_error
        assert "cannot ask" in said(result)
    assert (tmp_path / "kept").is_dir()


async def test_read_only(tmp_path):
    options = ("--workdir", str(tmp_path), "--preset", "read_only")
    async with Client(over_stdio(*options)) as client:
        given = {"file_path": "a", "content": "b"}
        assert (await client.call_tool("Write", given)).is_error
    assert os.listdir(tmp_path) == []


async def test_servers_of_a_file_run_inside(tmp_path):
    (tmp_path / "servers.json").write_text(
        json.dumps({"mcpServers": {"one": {
            "command": "python3", "args": [mcp_server.__file__]}}})
    )  # fmt: skip
    options = ("--workdir", str(tmp_path), "--servers", str(tmp_path / "servers.json"))
    async with Client(over_stdio(*options)) as client:
        result = await client.call_tool("mcp__one__echo", {"text": "inside"})
        assert said(result) == "inside"


async def test_a_server_that_cannot_be_hides_no_other(tmp_path):
    good = {"command": "python3", "args": [mcp_server.__file__]}
    bad: list[object] = [{}, 5, {"command": 5}, {"url": "ftp://x"}]
    named = {f"bad{number}": each for number, each in enumerate(bad)}
    (tmp_path / "servers.json").write_text(
        json.dumps({"mcpServers": {**named, "one": good}})
    )
    options = ("--workdir", str(tmp_path), "--servers", str(tmp_path / "servers.json"))
    with open(tmp_path / "said", "w+", encoding="utf-8") as stderr:
        client = stdio_client(over_stdio(*options), errlog=stderr)
        async with Client(client) as served:
            result = await served.call_tool("mcp__one__echo", {"text": "inside"})
            assert said(result) == "inside"
        stderr.seek(0)
        complaints = stderr.read()
    for name in named:
        assert re.search(rf"servers\.json: .*{name}.*; it is left out", complaints)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mcpServers": []}'])
async def test_a_bad_file_is_told(tmp_path, text):
    (tmp_path / "servers.json").write_text(text)
    done = isobox("mcp", *LOCAL, "--servers", str(tmp_path / "servers.json"))
    assert done.returncode == 125
    assert "servers.json" in done.stderr


async def test_over_http_with_the_token_that_is_printed(tmp_path):
    async with Http("--workdir", str(tmp_path)) as served:
        bearing = {"Authorization": f"Bearer {served.token}"}
        async with httpx2.AsyncClient(headers=bearing) as http:
            transport = streamable_http_client(served.url, http_client=http)
            async with Client(transport) as client:
                result = await client.call_tool("Bash", {"command": "echo hi"})
                assert said(result).startswith("hi")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "Bearer wrong")],
        [("Authorization", "secret")],
        [("Authorization", "Bearer secret"), ("Authorization", "Bearer secret")],
    ],
)
async def test_nobody_without_the_token_is_let_in(tmp_path, headers):
    async with (
        Http("--workdir", str(tmp_path), token="secret") as served,
        httpx2.AsyncClient() as http,
    ):
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            answer = await http.request(method, served.url, headers=headers)
            assert answer.status_code == 401
        assert b"secret" not in served.told


async def test_a_page_of_a_browser_is_not_let_in(tmp_path):
    async with (
        Http("--workdir", str(tmp_path), token="secret") as served,
        httpx2.AsyncClient(headers={"Authorization": "Bearer secret"}) as http,
    ):
        for header in ({"Host": "evil.example.org"}, {"Origin": "http://evil.test"}):
            answer = await http.post(served.url, headers=header, json={})
            assert answer.status_code in (403, 421)


@pytest.mark.parametrize("address", ["x", "70000", "192.0.2.1:80", ":", "0.0.0.0:0"])
async def test_another_address_is_refused(tmp_path, address):
    done = isobox("mcp", *LOCAL, "--workdir", str(tmp_path), "--http", address)
    assert done.returncode == 125
    assert "isobox: " in done.stderr


async def test_a_snippet_is_printed():
    done = isobox("mcp", "config", "--client", "cursor", "--", "--workdir", "/x y")
    assert done.returncode == 0
    entry = json.loads(done.stdout.partition("\n")[2])["mcpServers"]["isobox"]
    assert entry["args"] == ["mcp", "--workdir", "/x y"]
    assert os.path.isabs(entry["command"])


async def test_a_desktop_program_is_told_where_it_is(tmp_path):
    for options in ((), ("--workdir", "."), ("--workdir=.",)):
        done = isobox(
            "mcp", "config", "--client", "claude-desktop", "--", *options, cwd=tmp_path
        )
        entry = json.loads(done.stdout.partition("\n")[2])["mcpServers"]["isobox"]
        assert entry["args"][-2:] == ["--workdir", str(tmp_path)]


async def test_a_misspelled_option_is_told():
    done = isobox("mcp", "config", "--client", "cursor", "--", "--wrkdir", ".")
    assert done.returncode == 2
    assert "--wrkdir" in done.stderr


async def test_an_unknown_client_is_told():
    done = isobox("mcp", "config", "--client", "emacs")
    assert done.returncode == 2
    assert "cursor" in done.stderr
