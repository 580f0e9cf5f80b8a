"""Measure commands on gVisor's kernel and print the lines as JSON."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from measure import interleaved, medians, timed
from rivals import plain
from table import Line, faster

from isobox import GVisorWorkspace
from isobox._backends.gvisor import GVisorProvider
from isobox._backends.gvisor.provider import GVisorSandbox
from isobox.abc import SandboxSpec

TRUE = ["/bin/true"]


@contextlib.asynccontextmanager
async def exec_command() -> AsyncGenerator[list[str]]:
    """Have a container of the same kind; yields what runs a command in it."""
    sandbox = await GVisorProvider().create(SandboxSpec(id="bench"))
    try:
        yield _exec(sandbox)
    finally:
        await sandbox.aclose()


def _exec(sandbox: GVisorSandbox) -> list[str]:
    state = sandbox.plan.state
    (name,) = {path.name.partition("_")[0] for path in Path(state).glob("*.state")}
    flags = ["--rootless", "--network=none", f"--root={state}"]
    return [sandbox.plan.runsc.path, *flags, "exec", name]


async def exec_() -> list[Line]:
    """One command in a workspace that lives, against `runsc exec`."""
    async with GVisorWorkspace() as ws, exec_command() as command:
        took = medians(
            await interleaved(
                {
                    "isobox": timed(lambda: ws.run(TRUE, check=True)),
                    "runsc exec": timed(lambda: plain([*command, *TRUE])),
                },
                rounds=20,
                warmup=2,
                at_a_time=5,
            )
        )
    work = 'run(["/bin/true"]) in gVisor'
    return [faster(work, took["isobox"], "runsc exec", took["runsc exec"], 5)]


async def create() -> list[Line]:
    """A workspace and its first command, against `runsc do`."""

    async def ours() -> None:
        async with GVisorWorkspace() as ws:
            await ws.run(TRUE, check=True)

    with tempfile.TemporaryDirectory() as state:
        flags = ["--rootless", "--network=none", f"--root={state}"]
        rival = ["/usr/bin/runsc", *flags, "do", *TRUE]
        took = medians(
            await interleaved(
                {
                    "isobox": timed(ours),
                    "runsc do": timed(lambda: plain(rival)),
                },
                rounds=10,
                warmup=1,
            )
        )
    work = "create a gVisor workspace, one command, close"
    return [faster(work, took["isobox"], "runsc do", took["runsc do"], None)]


async def main() -> None:
    """Print every line."""
    for row in (exec_, create):
        for line in await row():
            print(line.to_json())


if __name__ == "__main__":
    asyncio.run(main())
