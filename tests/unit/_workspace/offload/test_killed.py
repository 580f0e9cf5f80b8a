"""Contexts that many append to, and that writers leave who are killed."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from isobox import BubblewrapWorkspace, LocalWorkspace
from isobox.testing.processes import kill_tree

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys
from isobox import LocalWorkspace

async def main():
    async with LocalWorkspace(sys.argv[1]) as workspace:
        print("ready", flush=True)
        number = 0
        while True:
            messages = [{"n": number + n, "x": "x" * 150_000} for n in range(4)]
            await workspace.offload_context("s", messages)
            number += 4

asyncio.run(main())
"""


@pytest.fixture
def anyio_backend():
    return "asyncio"


def context(place):
    return Path(place, "sessions", "s", "context.jsonl")


def whole_lines(place):
    """Return what a reader sees that passes over half a line at the end."""
    data = context(place).read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


async def test_a_killed_host_leaves_whole_lines(tmp_path):
    moments = random.Random(7)
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        )
        with writer:
            writer.stdout.readline()
            time.sleep(moments.uniform(0.05, 0.5))
            writer.send_signal(signal.SIGKILL)
        found = [line["n"] for line in whole_lines(tmp_path)] if (
            context(tmp_path).exists()
        ) else []  # fmt: skip
        begins = [at for at, number in enumerate(found) if number == 0] + [len(found)]
        for begin, end in itertools.pairwise(begins):
            assert found[begin:end] == list(range(end - begin))
    async with LocalWorkspace(tmp_path) as workspace:
        await workspace.offload_context("s", [{"n": -1}])
    lines = context(tmp_path).read_bytes().splitlines()
    assert json.loads(lines[-1]) == {"n": -1}
    assert all(json.loads(line) for line in lines)


async def test_a_killed_guest_leaves_whole_lines(tmp_path):
    os.chmod(tmp_path, 0o777)
    moments = random.Random(8)
    for number in range(4):
        async with BubblewrapWorkspace(tmp_path) as workspace:

            async def write(workspace=workspace, number=number):
                try:
                    while True:
                        batch = [{"n": number, "x": "x" * 200_000}] * 3
                        await workspace.offload_context("s", batch)
                except ConnectionError:
                    return

            async with anyio.create_task_group() as group:
                group.start_soon(write)
                await anyio.sleep(moments.uniform(0.05, 0.3))
                await kill_tree(workspace._sandbox._child.pid)
    async with BubblewrapWorkspace(tmp_path) as workspace:
        await workspace.offload_context("s", [{"n": -1}])
    lines = context(tmp_path).read_bytes().splitlines()
    assert json.loads(lines[-1]) == {"n": -1}
    assert all(json.loads(line) for line in lines)


async def test_two_hosts_append_to_one_context(tmp_path):
    async def write(workspace, name):
        for number in range(60):
            await workspace.offload_context("s", [{"w": name, "n": number}] * 2)

    async with (
        LocalWorkspace(tmp_path) as one,
        LocalWorkspace(tmp_path) as other,
        anyio.create_task_group() as group,
    ):
        for name, workspace in (("a", one), ("b", other), ("c", one)):
            group.start_soon(write, workspace, name)
    lines = whole_lines(tmp_path)
    for name in "abc":
        found = [line["n"] for line in lines if line["w"] == name]
        assert found == [number for number in range(60) for _ in range(2)]
