"""Limits of a sandbox as a whole: what they hold, what is said, who is spared.

Each is tried with a control group, and with the watcher that stands in for one.
Groups are made at the top of each hierarchy, never below the one that the tests
themselves run in.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.descriptors import none_left_open
from typing_extensions import override

from isobox import BubblewrapWorkspace, Limits
from isobox._backends.bubblewrap import control, processes
from isobox._linux import space
from isobox._linux.cgroups import ControlGroups, GroupLimits, NoControlGroup
from isobox.errors import LimitError

pytestmark = pytest.mark.anyio

MiB = 1024 * 1024
CGROUPS = Path("/sys/fs/cgroup")

HOG = """
import time
held = []
while True:
    held.append(bytearray(2 << 20))
    time.sleep(0.01)
"""
BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
FILLER = "exec dd if=/dev/zero of=big bs=1M status=none"


class Refusing(ControlGroups):
    @override
    def create(self, workspace_id, limits):
        return NoControlGroup("none wanted")


def _top(tmp_path) -> ControlGroups:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    membership = tmp_path / "membership"
    membership.write_text("".join(f"{line.rpartition(':')[0]}:/\n" for line in lines))
    return ControlGroups(membership=str(membership))


@pytest.fixture
def grouped(tmp_path_factory, monkeypatch):
    groups = _top(tmp_path_factory.mktemp("groups"))
    probe = groups.create("probe", GroupLimits(memory=MiB, pids=1, cpus=1))
    if isinstance(probe, NoControlGroup):
        pytest.skip(f"no control group: {probe.reason}")
    probe.close()
    monkeypatch.setattr(control, "GROUPS", groups)


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(control, "GROUPS", Refusing())


@pytest.fixture(params=["grouped", "watched"])
def held(request):
    request.getfixturevalue(request.param)
    return request.param


async def neighbour_answers(during: asyncio.Task[Any]) -> list[float]:
    """Run something next door until the task ends; return how long each took."""
    took: list[float] = []
    async with BubblewrapWorkspace() as neighbour:
        while not during.done() or not took:
            began = time.monotonic()
            assert (await neighbour.run(["true"])).ok
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.01)
    return took


def on_host(workspace: Any) -> int:
    pid: int = workspace._sandbox._child.pid
    return pid


async def test_a_memory_hog_is_ended_and_the_rest_goes_on(held):
    async with BubblewrapWorkspace(limits=Limits(memory=128 * MiB)) as workspace:
        hog = asyncio.create_task(workspace.run(["python3", "-c", HOG], timeout=60))
        took = await neighbour_answers(hog)
        result = await hog
        assert result.signal == "SIGKILL"
        assert result.oom_killed
        assert result.limit == "memory"
        assert not result.timed_out
        assert (await workspace.run("echo alive")).stdout == "alive\n"
    assert sorted(took)[len(took) // 2] < 1


async def test_a_hog_below_a_shell_is_named_all_the_same(held):
    async with BubblewrapWorkspace(limits=Limits(memory=128 * MiB)) as workspace:
        await workspace.write("hog.py", HOG)
        result = await workspace.run("python3 hog.py; exit 3", timeout=60)
        assert (result.exit_code, result.limit) == (3, "memory")
        assert not result.oom_killed


async def test_what_a_command_survived_is_not_held_against_the_next(held):
    async with BubblewrapWorkspace(limits=Limits(memory=128 * MiB)) as workspace:
        await workspace.write("hog.py", HOG)
        result = await workspace.run("python3 hog.py || true", timeout=60)
        assert (result.exit_code, result.limit) == (0, None)
        result = await workspace.run("kill -9 $$")
        assert (result.signal, result.limit, result.oom_killed) == (
            "SIGKILL",
            None,
            False,
        )


@pytest.mark.usefixtures("grouped")
async def test_full_private_places_do_not_take_the_memory():
    async with BubblewrapWorkspace(limits=Limits(memory=128 * MiB)) as workspace:
        result = await workspace.run(
            "for place in /tmp /var/tmp ~; do cat /dev/zero >$place/zeros; done"
        )
        assert "No space left" in result.stderr
        assert result.limit is None
        assert (await workspace.run("echo alive")).stdout == "alive\n"


async def test_a_fork_bomb_is_bounded_and_ended(held):
    async with BubblewrapWorkspace(limits=Limits(processes=50)) as workspace:
        bomb = asyncio.create_task(workspace.run(["python3", "-c", BOMB], timeout=3))
        most = 0
        while not bomb.done():
            most = max(most, len(processes.below(on_host(workspace))))
            await asyncio.sleep(0.05)
        result = await bomb
        assert result.timed_out
        # Ours are the guest, its keepers and what starts it.
        assert 30 <= most <= 60
        assert result.limit == ("processes" if held == "grouped" else None)
        assert (await workspace.run("echo alive")).stdout == "alive\n"


async def test_a_fork_bomb_leaves_the_neighbour_responsive(held):
    async with BubblewrapWorkspace(limits=Limits(processes=200)) as workspace:
        bomb = asyncio.create_task(workspace.run(["python3", "-c", BOMB], timeout=3))
        took = await neighbour_answers(bomb)
        assert (await bomb).timed_out
    assert sorted(took)[len(took) // 2] < 1


async def test_a_disk_filler_is_ended_until_there_is_room(held, tmp_path):
    limits = Limits(disk=64 * MiB)
    async with BubblewrapWorkspace(tmp_path, limits=limits) as workspace:
        filler = asyncio.create_task(workspace.run(FILLER, timeout=60))
        took = await neighbour_answers(filler)
        result = await filler
        assert (result.signal, result.limit) == ("SIGKILL", "disk")
        assert not result.oom_killed
        with pytest.raises(LimitError, match=r"limits\.disk"):
            await workspace.run("true")
        with pytest.raises(LimitError):
            await workspace.write("more", b"x")
        await workspace.remove("big")
        assert (await workspace.run("echo alive")).stdout == "alive\n"
    assert sorted(took)[len(took) // 2] < 1


@pytest.mark.usefixtures("watched")
async def test_a_file_without_a_name_takes_space_too(tmp_path):
    script = """
import os
fd = os.open("secret", os.O_RDWR | os.O_CREAT)
os.unlink("secret")
while True:
    os.write(fd, bytes(1 << 20))
"""
    limits = Limits(disk=64 * MiB)
    async with BubblewrapWorkspace(tmp_path, limits=limits) as workspace:
        result = await workspace.run(["python3", "-c", script], timeout=60)
        assert (result.signal, result.limit) == ("SIGKILL", "disk")
        assert (await workspace.run("echo alive")).stdout == "alive\n"


@pytest.mark.usefixtures("watched")
async def test_a_process_without_its_first_thread_is_watched_too():
    script = f"""
import ctypes, threading
threading.Thread(target=exec, args=({HOG!r}, {{}})).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    async with BubblewrapWorkspace(limits=Limits(memory=128 * MiB)) as workspace:
        result = await workspace.run(["python3", "-c", script], timeout=60)
        assert (result.signal, result.limit) == ("SIGKILL", "memory")


@pytest.mark.usefixtures("grouped")
async def test_processors_are_shared_out():
    async with BubblewrapWorkspace(limits=Limits(cpus=0.5)) as workspace:
        before = (await workspace.usage()).cpu
        spin = "import time; end = time.time() + 2\nwhile time.time() < end: pass"
        both = [workspace.run(["python3", "-c", spin]) for _ in range(2)]
        began = time.monotonic()
        await asyncio.gather(*both)
        wall = time.monotonic() - began
        after = (await workspace.usage()).cpu
    assert before is not None
    assert after is not None
    assert after - before <= 0.5 * wall + 0.3


async def test_a_file_that_is_too_large_is_named(held):
    async with BubblewrapWorkspace(limits=Limits(file_size=MiB)) as workspace:
        result = await workspace.run("dd if=/dev/zero of=big bs=2M count=1")
        assert result.limit == "file_size"


async def test_processor_seconds_are_named(held):
    async with BubblewrapWorkspace() as workspace:
        spin = ["python3", "-c", "while True: pass"]
        result = await workspace.run(spin, limits={"cpu": 1}, timeout=60)
        assert result.limit == "cpu"
        assert not result.oom_killed
        assert not result.timed_out


async def test_usage_says_what_is_used(held):
    script = """
import sys
data = bytearray(48 << 20)
open("/tmp/large", "wb").write(bytes(8 << 20))
open("large", "wb").write(bytes(16 << 20))
sum(range(10_000_000))
print("ready", flush=True)
sys.stdin.read()
"""
    async with BubblewrapWorkspace(limits=Limits(memory=512 * MiB)) as workspace:
        before: Any = await workspace.usage()
        process = await workspace.start(["python3", "-c", script], stdin=True)
        async with process:
            assert await process.stdout.receive() == b"ready\n"
            during: Any = await workspace.usage()
    assert during.processes == before.processes + 1
    assert during.memory - before.memory >= 48 * MiB
    assert during.cpu - before.cpu >= 0.1
    assert 24 * MiB <= during.disk - before.disk <= 25 * MiB


@pytest.mark.usefixtures("grouped")
async def test_nothing_of_a_sandbox_runs_outside_its_group():
    async with BubblewrapWorkspace() as workspace:
        await workspace.run("true")
        for seen in processes.below(on_host(workspace)):
            groups = Path(f"/proc/{seen.pid}/cgroup").read_text()
            assert groups.count("isobox-") == 3


@pytest.mark.usefixtures("grouped")
async def test_no_entrance_of_a_group_is_open_inside():
    async with BubblewrapWorkspace() as workspace:
        for seen in processes.below(on_host(workspace)):
            for fd in Path(f"/proc/{seen.pid}/fd").iterdir():
                assert "cgroup" not in os.readlink(fd)


@pytest.mark.usefixtures("grouped")
async def test_a_group_that_holds_both_is_strong():
    limits = Limits(memory=256 * MiB, cpus=1.5)
    async with BubblewrapWorkspace(limits=limits) as workspace:
        barrier = workspace.isolation()["resources"]
    assert barrier.level == "strong"
    for said in ("1.5 CPUs", "256 MiB of memory", "1024 processes"):
        assert said in barrier.mechanism


@pytest.mark.usefixtures("watched")
async def test_a_watcher_is_not_called_strong():
    limits = Limits(memory=256 * MiB, cpus=1.5, disk=64 * MiB)
    async with BubblewrapWorkspace(limits=limits) as workspace:
        barrier = workspace.isolation()["resources"]
    assert barrier.level == "partial"
    for said in (
        "no control group (none wanted)",
        "memory above 256 MiB",
        "a directory above 64 MiB",
        "no bound on processors",
    ):
        assert said in barrier.mechanism


async def test_tenants_are_as_apart_as_they_are():
    async with BubblewrapWorkspace() as workspace:
        level = workspace.isolation()["tenant"].level
    assert level == ("strong" if os.geteuid() == 0 else "partial")


@pytest.mark.usefixtures("grouped")
async def test_limits_that_hold_less_are_taken_one_by_one(monkeypatch, tmp_path):
    class Delegated(ControlGroups):
        @override
        def create(self, workspace_id, limits):
            if limits.cpus is not None:
                return NoControlGroup("no cpu here")
            return _top(tmp_path).create(workspace_id, limits)

    monkeypatch.setattr(control, "GROUPS", Delegated())
    async with BubblewrapWorkspace(
        limits=Limits(memory=256 * MiB, cpus=1)
    ) as workspace:
        barrier = workspace.isolation()["resources"]
    assert barrier.level == "strong"
    assert "no bound on processors" in barrier.mechanism


# The measures, alone.


@pytest.fixture
def root(tmp_path):
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_space_counts_a_file_with_two_names_once(tmp_path, root):
    (tmp_path / "a").write_bytes(bytes(MiB))
    os.link(tmp_path / "a", tmp_path / "b")
    assert MiB <= space.used(root) < MiB + 65536


def test_space_counts_blocks_and_not_lengths(tmp_path, root):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert space.used(root) < MiB


def test_space_follows_no_link(tmp_path, root):
    (tmp_path / "link").symlink_to("/usr")
    assert space.used(root) < MiB


def test_space_goes_deeper_than_a_path_is_long(tmp_path, root):
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(100):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    with open(os.open("deep", os.O_WRONLY | os.O_CREAT, dir_fd=here), "wb") as file:
        file.write(bytes(MiB))
    os.close(here)
    with none_left_open():
        assert space.used(root) >= MiB


def test_space_can_be_stopped(tmp_path, root):
    (tmp_path / "a").write_bytes(bytes(MiB))
    assert space.used(root, going=lambda: False) == 0


def test_a_number_that_is_another_process_is_not_killed():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as child:
        (seen,) = processes.below(child.pid)
        before = processes.Seen(seen.pid, seen.parent, seen.born - 1, 0.0, 0)
        processes.kill(before)
        assert child.poll() is None
        processes.kill(seen)
        assert child.wait(10) == -9
