"""Print how fast MCP servers inside a workspace answer, against their rivals."""

import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import environment
from measure import duration, interleaved, medians, timed
from table import Line, at_most, faster, markdown

TRUE = ["/bin/true"]
#: What AgentScope's gateway needs inside, besides itself.
GATEWAY = ("agentscope==2.0.11", "fastapi", "uvicorn", "mcp", "uv")


def main() -> None:
    """Run it in the bench's own environment."""
    python = environment.prepare()
    if Path(sys.executable).resolve() != python.resolve() or "inner" not in sys.argv:
        program = [str(python), __file__, "inner"]
        sys.exit(subprocess.run(program, check=False).returncode)
    print(markdown(asyncio.run(_measured())))


async def _measured() -> list[Line]:
    return [*await _calls(), await _chatter(), await _without()]


async def _calls() -> list[Line]:
    """One call of a tool, in turns of ten."""
    async with contextlib.AsyncExitStack() as stack:
        contenders = {
            "isobox": await stack.enter_async_context(_isobox()),
            "plain": await stack.enter_async_context(_plain()),
            "agentscope": await stack.enter_async_context(_agentscope()),
        }
        took = medians(
            await interleaved(
                {name: timed(call) for name, call in contenders.items()},
                rounds=30,
                warmup=2,
                at_a_time=10,
            )
        )
    ours = took["isobox"]
    work = "call a tool of an MCP server in a bubblewrap workspace"
    plain = "the same server over plain stdio on the host"
    return [
        at_most(work, ours, plain, took["plain"], 1.5),
        faster(work, ours, "AgentScope's gateway", took["agentscope"], 10),
    ]


@contextlib.asynccontextmanager
async def _isobox() -> AsyncIterator[Callable[[], Awaitable[object]]]:
    from isobox import BubblewrapWorkspace, McpServer  # noqa: PLC0415

    server = McpServer(name="one", command=("/usr/bin/python3", "server.py"))
    async with BubblewrapWorkspace(mcps=[server]) as workspace:
        await workspace.write("server.py", _server().read_bytes())
        mcp = workspace.mcp("one")
        yield lambda: mcp.call("echo", {"text": "hi"})


@contextlib.asynccontextmanager
async def _plain() -> AsyncIterator[Callable[[], Awaitable[object]]]:
    from mcp import Client  # noqa: PLC0415
    from mcp.client.stdio import StdioServerParameters  # noqa: PLC0415

    server = StdioServerParameters(command="/usr/bin/python3", args=[str(_server())])
    async with Client(server, cache=None) as client:
        yield lambda: client.call_tool("echo", {"text": "hi"})


@contextlib.asynccontextmanager
async def _agentscope() -> AsyncIterator[Callable[[], Awaitable[object]]]:
    from agentscope.mcp import MCPClient, StdioMCPConfig  # noqa: PLC0415
    from agentscope.workspace import BubblewrapWorkspace  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="bench-agentscope-") as directory:
        work = Path(directory) / "work"
        furnish(work / ".agentscope")
        shutil.copy(_server(), work / "server.py")
        config = StdioMCPConfig(
            command="/usr/bin/python3", args=["/workspace/server.py"]
        )
        server = MCPClient(name="one", mcp_config=config, is_stateful=True)
        workspace = BubblewrapWorkspace(
            host_workdir=str(work), gateway_port=None, default_mcps=[server]
        )
        await workspace.initialize()
        try:
            (client,) = await workspace.list_mcps()
            tool = await client.get_tool("echo")
            yield lambda: tool(text="hi")
        finally:
            await workspace.close()


def furnish(home: Path) -> None:
    """Put there what AgentScope would otherwise download."""
    venv = home / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to("/usr/bin/python3")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    packages = venv / "lib/python3.11/site-packages"
    pip = [environment.PYTHON, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--target", packages, *GATEWAY], check=True)
    (home / "bin").mkdir()
    shutil.copy(packages / "bin/uv", home / "bin/uv")
    (home / "bin/rg").symlink_to("/usr/bin/rg")
    (home / "_mcp_gateway_app.py").touch()


async def _chatter() -> Line:
    """A command beside a server that sends 1 MB a second."""
    from isobox import BubblewrapWorkspace, McpServer  # noqa: PLC0415

    server = McpServer(name="one", command=("/usr/bin/python3", "server.py"))
    async with (
        BubblewrapWorkspace(mcps=[server]) as loud,
        BubblewrapWorkspace() as quiet,
    ):
        await loud.write("server.py", _server().read_bytes())
        await loud.mcp("one").call("chatter", {"bytes_per_second": 1_000_000})
        took = medians(
            await interleaved(
                {
                    "beside chatter": timed(lambda: loud.run(TRUE, check=True)),
                    "alone": timed(lambda: quiet.run(TRUE, check=True)),
                },
                rounds=60,
                warmup=5,
                at_a_time=5,
            )
        )
    late = took["beside chatter"] - took["alone"]
    return Line(
        "run beside a server that sends 1 MB/s",
        duration(took["beside chatter"]),
        f"alone: {duration(took['alone'])}",
        f"{late * 1e3:+.2f} ms",
        "≤ +5 ms",
        late <= 5e-3,
    )


async def _without() -> Line:
    """The first use of a workspace that has no server."""
    script = (
        "import asyncio, sys, time\n"
        "from isobox import BubblewrapWorkspace\n"
        "async def main():\n"
        "    async with BubblewrapWorkspace() as ws:\n"
        "        begun = time.perf_counter()\n"
        "        await ws.list_tools()\n"
        "        print(time.perf_counter() - begun, 'mcp' in sys.modules)\n"
        "asyncio.run(main())\n"
    )
    took: list[float] = []
    loaded = False
    for _ in range(10):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        seconds, was_loaded = done.stdout.split()
        took.append(float(seconds))
        loaded |= was_loaded == "True"
    return Line(
        "list the tools of a workspace without MCP servers",
        duration(statistics.median(took)),
        "the SDK is not loaded" if not loaded else "the SDK is loaded",
        "",
        "nothing extra",
        not loaded,
    )


def _server() -> Path:
    from isobox.testing import mcp_server  # noqa: PLC0415

    return Path(mcp_server.__file__)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
