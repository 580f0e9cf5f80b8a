"""The official conformance suite, for what `isobox mcp` declares."""

from __future__ import annotations

import base64
import json
import subprocess
import threading

import anyio
import pytest
import uvicorn
from tests.mcp.conftest import NODE
from typing_extensions import override

from isobox._workspace.tools.result import DataBlock, TextBlock, ToolResult
from isobox._workspace.tools.tool import Tool
from isobox.mcp import server
from isobox.testing.fake import MemoryWorkspace
from isobox.testing.mcp_server import PNG

pytestmark = pytest.mark.timeout(400)

SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-error",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)


class Named(Tool):
    """A tool that the suite calls by its name."""

    read_only = True
    description = "For the suite."
    input_schema = strict_schema = property(lambda _: {"type": "object"})

    def __init__(self, name, *blocks, is_error=False):
        self.name = name
        self._result = ToolResult(blocks=blocks, is_error=is_error)

    @override
    async def __call__(self, /, **arguments):
        return self._result


class Furnished(MemoryWorkspace):
    """A workspace with the suite's tools beside its own."""

    @override
    async def _own_tools(self, session_id):
        image = DataBlock("image/png", base64.b64decode(PNG))
        simple = TextBlock("This is a simple text response for testing.")
        wrong = TextBlock("This tool intentionally returns an error for testing")
        session, tools = await super()._own_tools(session_id)
        return session, [
            *tools,
            Named("test_simple_text", simple),
            Named("test_image_content", image),
            Named("test_error_handling", wrong, is_error=True),
        ]


class Serving(threading.Thread):
    """Serves a workspace over HTTP, in a loop of its own."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ready = threading.Event()

    @override
    def run(self):
        anyio.run(self._serve)

    async def _serve(self):
        async with Furnished() as workspace:
            app = server(workspace).streamable_http_app()
            config = uvicorn.Config(app, port=0, log_level="error", lifespan="on")
            self.http = uvicorn.Server(config)
            async with anyio.create_task_group() as group:
                group.start_soon(self.http.serve)
                while not self.http.started:
                    await anyio.sleep(0.01)
                self.port = self.http.servers[0].sockets[0].getsockname()[1]
                self.ready.set()


@pytest.fixture(scope="module")
def url():
    serving = Serving()
    serving.start()
    assert serving.ready.wait(30)
    yield f"http://127.0.0.1:{serving.port}/mcp"
    serving.http.should_exit = True
    serving.join()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(packages, url, scenario, tmp_path):
    suite = packages / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    done = subprocess.run(
        [NODE, suite, "server", "--url", url, "--scenario", scenario, "-o", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    (found,) = tmp_path.rglob("checks.json")
    checks = json.loads(found.read_text())
    failed = [check for check in checks if check["status"] == "FAILURE"]
    assert (done.returncode, failed) == (0, []), done.stdout[-2000:]
    assert any(check["status"] == "SUCCESS" for check in checks)
