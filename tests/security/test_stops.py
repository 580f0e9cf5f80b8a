"""A command that stops all that it can, all the time: every call ends."""

from __future__ import annotations

import contextlib
import shutil

import anyio
import pytest

from isobox import BubblewrapWorkspace, GVisorWorkspace
from isobox.errors import SandboxLostError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

STOPS = """
import os, signal
os.write(1, b"go\\n")
while True:
    try:
        os.kill(-1, signal.SIGSTOP)
    except OSError:
        pass
"""
KINDS = [
    BubblewrapWorkspace,
    pytest.param(
        GVisorWorkspace,
        marks=pytest.mark.skipif(shutil.which("runsc") is None, reason="needs runsc"),
    ),
]
CALLS = {
    "snapshot": lambda workspace, _: workspace.snapshot(),
    "download": lambda workspace, place: workspace.download(".", place / "down"),
    "upload": lambda workspace, place: workspace.upload(place / "up", "up"),
    "fork": lambda workspace, _: forked(workspace),
    "glob": lambda workspace, _: workspace.glob("**/*"),
    "grep": lambda workspace, _: workspace.grep("signal"),
}


async def forked(workspace):
    async with await workspace.fork():
        pass


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_ends_whatever_is_stopped(kind, call, tmp_path):
    (tmp_path / "up").mkdir()
    (tmp_path / "up/f").write_text("x")
    async with kind() as workspace:
        await workspace.write("stops.py", STOPS)
        stopper = await workspace.start(["python3", "-u", "stops.py"])
        assert await stopper.stdout.receive() == b"go\n"
        # Where so little is left for the worker, it is given up, and that is said.
        with anyio.fail_after(60), contextlib.suppress(SandboxLostError):
            await CALLS[call](workspace, tmp_path)


async def test_restore_ends_whatever_is_stopped():
    async with BubblewrapWorkspace() as workspace:
        await workspace.write("stops.py", STOPS)
        ref = await workspace.snapshot()
        stopper = await workspace.start(["python3", "-u", "stops.py"])
        assert await stopper.stdout.receive() == b"go\n"
        with anyio.fail_after(60), contextlib.suppress(SandboxLostError):
            await workspace.restore(ref)
