"""A host that is killed in the midst of many calls."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isobox import BubblewrapWorkspace, McpServer
from isobox.testing import mcp_server
from isobox.testing.processes import runs_on_host

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(200)]

HOST = """
import asyncio, sys
from isobox import BubblewrapWorkspace, McpServer

async def main(directory, mark):
    async with BubblewrapWorkspace(directory) as ws:
        command = ("python3", "server.py")
        await ws.add_mcp(McpServer(name="kept", command=command, shared=True))
        mcp = ws.mcp("kept")
        await mcp.call("echo", {"text": "a"})
        calls = [mcp.call("sleep", {"seconds": 60}, timeout=100) for _ in range(100)]
        beside = ws.start(["sleep", mark])
        tell = lambda: print("busy", flush=True)
        asyncio.get_running_loop().call_later(0.5, tell)
        await asyncio.gather(beside, *calls)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_nothing_of_it_is_left_and_the_next_one_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "server.py").write_bytes(Path(mcp_server.__file__).read_bytes())
    mark = f"{secrets.randbelow(90_000) + 10_000}.{secrets.randbelow(10**9)}"
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, project, mark], stdout=subprocess.PIPE, text=True
    )
    try:
        assert host.stdout.readline() == "busy\n"
        assert runs_on_host("sleep", mark)
    finally:
        host.send_signal(signal.SIGKILL)
        host.wait()
        host.stdout.close()
    until = time.monotonic() + 20
    while runs_on_host("sleep", mark):
        assert time.monotonic() < until
        time.sleep(0.05)
    async with BubblewrapWorkspace(project) as ws:
        (status,) = await ws.list_mcps()
        assert status.server == McpServer(
            name="kept", command=("python3", "server.py"), shared=True
        )
        result = await ws.mcp("kept").call("echo", {"text": "again"})
        assert result.content[0].text == "again"
