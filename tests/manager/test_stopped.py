"""A process that was stopped for longer than it lives, and goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from isobox import LocalWorkspace
from isobox.manager import WorkspaceManager

pytestmark = pytest.mark.anyio

ME = ("ann", "coder", "1")

#: It writes as fast as it can with one handle, until that is refused.
WRITER = """
import asyncio, sys
from isobox import LocalWorkspace
from isobox.errors import IsoboxError
from isobox.manager import WorkspaceManager

async def main(base, store):
    manager = WorkspaceManager(
        LocalWorkspace, basedir=base, store=store or None, heartbeat=0.2,
        holder_timeout=3.0, audit=False,
    )
    async with manager, manager.lease("ann", "coder", "1") as workspace:
        print("ready", flush=True)
        number = 0
        try:
            while True:
                number += 1
                await workspace.write("whose", f"the stopped one's {number}")
        except IsoboxError as error:
            print(type(error).__name__, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.asynccontextmanager
async def writer(base, store):
    argv = [sys.executable, "-c", WRITER, str(base), store or ""]
    process = await anyio.open_process(argv, stderr=None)
    lines = BufferedByteReceiveStream(process.stdout)
    try:
        yield process, lines
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.wait()
            await process.aclose()


async def line(lines):
    return await lines.receive_until(b"\n", 1000)


async def stopped(process, path):
    """Stop a process, but not while it writes to a file: all would wait for it then."""
    with contextlib.closing(sqlite3.connect(path or ":memory:", timeout=30)) as own:
        own.isolation_level = None
        own.execute("BEGIN IMMEDIATE")
        os.kill(process.pid, signal.SIGSTOP)
        while not is_stopped(process.pid):
            await anyio.sleep(0.001)
        own.execute("ROLLBACK")


def is_stopped(pid):
    # Behind its name, which may hold anything, in parentheses.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def no_write_after_a_stop(base, store):
    async with writer(base, store) as (process, lines):
        with anyio.fail_after(60):
            assert await line(lines) == b"ready"
            await stopped(process, None if store else f"{base}/manager.db")
            async with WorkspaceManager(
                LocalWorkspace, basedir=base, store=store, audit=False
            ) as manager:
                workspace = await manager.get_workspace(*ME)
                await workspace.write("whose", "the next one's")
                os.kill(process.pid, signal.SIGCONT)
                assert await line(lines) == b"WorkspaceClosedError"
                await process.wait()
                assert await workspace.read_text("whose") == "the next one's"


async def test_it_writes_nothing_more_by_a_file(tmp_path):
    await no_write_after_a_stop(tmp_path / "base", None)


async def test_it_writes_nothing_more_by_a_server(postgres, tmp_path):
    await no_write_after_a_stop(tmp_path / "base", postgres.place())
