"""Hosts and engines that end at any moment: nothing is lost, nothing is left."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time

import anyio
import anyio.to_thread
import pytest

from isobox import DockerWorkspace
from isobox._backends.docker import sweep
from isobox.errors import IsoboxError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

KILLED = 10
AT_ONCE = 50
#: Seconds in which a call has an end, whatever happened.
DEADLINE = 45

HOST = """
import asyncio, sys
from isobox import DockerWorkspace

image, engine, identity, workdir, number = sys.argv[1:]

async def write(workspace):
    for turn in range(100_000):
        name = f"w-{number}-{turn}"
        await workspace.write(name, name.encode() * 1000)
        print(name, flush=True)

async def run(workspace):
    while True:
        await workspace.run("echo $$; head -c 100000 /dev/zero", check=True)

async def main():
    options = {"workspace_id": identity} if identity else {"linger": 1}
    print("begins", flush=True)
    workspace = DockerWorkspace(workdir or None, image=image, engine=engine, **options)
    await workspace.initialize()
    await workspace.start(["sleep", "1000"])
    await asyncio.gather(write(workspace), run(workspace), run(workspace))

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def nothing_is_left(engine):
    yield
    containers = ours(engine)
    volumes = engine.call("volume", "ls", "--quiet").stdout.split()
    for container in containers:
        engine.call("rm", "--force", container)
    for volume in volumes:
        engine.call("volume", "rm", volume)
    assert (containers, volumes) == ([], [])


@pytest.fixture
def moments(request):
    return random.Random(request.node.name)


@pytest.fixture
def directory(tmp_path):
    """A directory of another user than root, on a path that all may walk."""
    place = tmp_path / "work"
    place.mkdir()
    os.chown(place, 4321, 4322)
    return place


def ours(engine, *options):
    label = ("--filter", "label=isobox.workspace")
    return engine.call("ps", "--all", "--quiet", *label, *options).stdout.split()


def killed_host(moments, *arguments):
    """Kill a host at some moment; returns the files that it had written."""
    lines = moments.choice([1, 1, 2, 5, 40])
    pause = moments.uniform(0, 0.4)
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, *map(str, arguments)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert host.stdout is not None
    with host:
        told = [host.stdout.readline() for _ in range(lines)]
        time.sleep(pause)
        host.send_signal(signal.SIGKILL)
        told += host.stdout.readlines()
    assert host.returncode == -signal.SIGKILL
    assert told[0] == b"begins\n"
    return [line.decode().strip() for line in told[1:] if line.endswith(b"\n")]


def content(name):
    return name.encode() * 1000


# -- the host ----------------------------------------------------------------------


async def test_no_file_is_lost_of_a_host_that_is_killed(
    engine, python_image, directory, moments
):
    def another():
        return DockerWorkspace(
            directory, image=python_image, engine=engine.url, workspace_id="chaos"
        )

    written: list[str] = []
    for number in range(KILLED):
        arguments = (python_image, engine.url, "chaos", directory, number)
        written += await anyio.to_thread.run_sync(killed_host, moments, *arguments)
        with anyio.fail_after(DEADLINE):
            workspace = another()
            await workspace.initialize()
            for name in moments.sample(written, min(len(written), 20)):
                assert await workspace.read_bytes(name) == content(name)
            result = await workspace.run(["echo", "next"], timeout=5)
            assert result.stdout == "next\n"
            await workspace.detach()
        assert len(ours(engine)) == 1
    assert written
    for name in written:
        assert (directory / name).read_bytes() == content(name)
    # What was never said to be written is there as a whole or not at all.
    for path in directory.iterdir():
        assert path.read_bytes() == content(path.name)
    with anyio.fail_after(DEADLINE):
        async with another():
            pass


async def test_nothing_is_left_of_hosts_that_are_killed(
    engine, python_image, moments, monkeypatch
):
    async with anyio.create_task_group() as group:
        places = anyio.CapacityLimiter(3)
        for number in range(KILLED):
            arguments = (python_image, engine.url, "", "", number)
            group.start_soon(killed, moments, arguments, places)
    with anyio.fail_after(DEADLINE):
        while ours(engine, "--filter", "status=running"):
            await anyio.sleep(0.1)
    # As if the moment had passed in which other hosts may be about to start them.
    monkeypatch.setattr(sweep, "_STALE", 0.0)
    with anyio.fail_after(DEADLINE):
        async with DockerWorkspace(image=python_image, engine=engine.url):
            assert len(ours(engine)) == 1


async def killed(moments, arguments, places):
    await anyio.to_thread.run_sync(killed_host, moments, *arguments, limiter=places)


# -- the engine --------------------------------------------------------------------


class Busy:
    """Writes and commands, without a pause, until told to stop."""

    def __init__(self, workspace: DockerWorkspace) -> None:
        self.workspace = workspace
        self.written: list[str] = []
        self.errors: list[IsoboxError] = []
        self.stopped = False

    async def go_on(self, number: int) -> None:
        for turn in itertools.count():
            if self.stopped:
                return
            try:
                await self._turn(f"w-{number}-{turn}")
            except IsoboxError as error:
                self.errors.append(error)
                await anyio.sleep(0.05)

    async def _turn(self, name: str) -> None:
        with anyio.fail_after(DEADLINE):
            result = await self.workspace.run(["echo", name], timeout=10)
        assert result.stdout == f"{name}\n"
        with anyio.fail_after(DEADLINE):
            await self.workspace.write(name, content(name))
        self.written.append(name)

    async def until_written(self, count: int) -> None:
        while len(self.written) < count:
            await anyio.sleep(0.1)


async def test_an_engine_that_comes_back_during_calls_is_used_again(
    engine, python_image, directory
):
    options = {"image": python_image, "engine": engine.url}
    async with (
        DockerWorkspace(directory, workspace_id="mounted", **options) as mounted,
        DockerWorkspace(workspace_id="volume", **options) as volume,
    ):
        busy = [Busy(mounted), Busy(volume)]
        async with anyio.create_task_group() as group:
            for number in range(AT_ONCE):
                group.start_soon(busy[number % 2].go_on, number)
            with anyio.fail_after(DEADLINE):
                for each in busy:
                    await each.until_written(1)
            await anyio.to_thread.run_sync(engine.end, signal.SIGKILL)
            engine.start()
            assert await anyio.to_thread.run_sync(engine.answers)
            with anyio.fail_after(DEADLINE):
                for each in busy:
                    await each.until_written(len(each.written) + AT_ONCE)
            for each in busy:
                each.stopped = True
        for each in busy:
            # Calls in flight were lost, and said so.
            assert each.errors
            for name in each.written:
                assert await each.workspace.read_bytes(name) == content(name)
    # What a guest was about to write when it was killed has no such name.
    for path in directory.glob("w-*"):
        assert path.read_bytes() == content(path.name)
