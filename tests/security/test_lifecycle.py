"""Whoever is killed, nothing survives; whatever is done, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

import anyio
import pytest

from isobox import BubblewrapWorkspace
from isobox._backends.bubblewrap import processes
from isobox._workdir import sweep
from isobox.errors import BackendUnavailableError, SandboxLostError, StorageError

pytestmark = pytest.mark.anyio

PATIENCE = 20

HOST = """
import asyncio, sys
from isobox import BubblewrapWorkspace

async def one(number):
    workspace = BubblewrapWorkspace(workspace_id=f"{sys.argv[1]}-{number}")
    await workspace.initialize()
    await workspace.write("file", "content")
    await workspace.snapshot()
    await workspace.run("setsid sleep 1000 >/dev/null 2>&1 &")
    process = await workspace.start(["sh", "-c", "trap '' TERM; sleep 1000; true"])
    return workspace, process

async def main():
    held = await asyncio.gather(*(one(number) for number in range(int(sys.argv[2]))))
    print("ready", flush=True)
    await asyncio.Event().wait()
"""
FOREVER = "asyncio.run(main())"
IN_A_THREAD = """
import os, threading

loop = asyncio.new_event_loop()

def brief():
    try:
        loop.run_until_complete(main())
    except RuntimeError:
        os.write(1, b"over\\n")

threading.Thread(target=brief).start()
sys.stdin.readline()
loop.call_soon_threadsafe(loop.stop)
sys.stdin.readline()
os._exit(0)
"""


@pytest.fixture
def scratch(monkeypatch):
    """A place of our own for temporary directories and for their records."""
    with tempfile.TemporaryDirectory(prefix="test-") as path:
        Path(path).chmod(0o711)
        (Path(path) / "tmp").mkdir(mode=0o711)
        (Path(path) / "run").mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{path}/run")
        monkeypatch.setenv("TMPDIR", f"{path}/tmp")
        monkeypatch.setattr(tempfile, "tempdir", f"{path}/tmp")
        monkeypatch.setattr(sweep, "_base", lambda: f"{path}/state")
        yield Path(path)


@pytest.fixture
def host(scratch):
    """Start a host with some workspaces in a process of its own."""
    running = []

    def start(name: str, count: int, end: str = FOREVER) -> Any:
        redirect = (
            "from isobox._workdir import sweep\n"
            f"sweep._base = lambda: {str(scratch / 'state')!r}\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", redirect + HOST + end, name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


class Watched:
    """Processes that are to end."""

    def __init__(self, pids) -> None:
        self._stack = contextlib.ExitStack()
        self._fds: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(pid)
                self._stack.callback(os.close, fd)
                self._fds[pid] = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return len(self._fds)

    def left(self) -> list[int]:
        """Wait for all of them; return those that do not end."""
        end = time.monotonic() + PATIENCE
        return [pid for pid, fd in self._fds.items() if not _ends(fd, end)]


def _ends(fd: int, end: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, end - time.monotonic()) * 1000))


def descendants(pid: int) -> list[int]:
    return [seen.pid for seen in processes.below(pid)[1:]]


def groups(name: str) -> list[str]:
    return [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/isobox-{name}*")]


def directories(scratch: Path) -> list[str]:
    return os.listdir(scratch / "tmp")


def records(scratch: Path) -> list[str]:
    folder = scratch / "state/directories"
    return os.listdir(folder) if folder.exists() else []


def swept(scratch: Path, name: str) -> bool:
    sweep.sweep()
    return not (groups(name) or directories(scratch) or records(scratch))


def mounts() -> int:
    return len(Path("/proc/self/mountinfo").read_text().splitlines())


def descriptors() -> Counter[str]:
    found: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[os.readlink(f"/proc/self/fd/{fd}").partition(":[")[0]] += 1
    return found


# What is killed.


@pytest.mark.timeout(300)
async def test_nothing_survives_the_host(host, scratch):
    for round_ in range(20):
        name = f"killed{os.getpid()}-{round_}"
        process = host(name, 5)
        with Watched(descendants(process.pid)) as watched:
            assert len(watched) >= 25
            process.kill()
            assert watched.left() == []
        process.communicate()
        assert len(directories(scratch)) == 10
        end = time.monotonic() + PATIENCE
        while not swept(scratch, name):
            assert time.monotonic() < end
            await anyio.sleep(0.01)


async def test_nothing_survives_the_thread_that_started_it(host):
    process = host("thread", 2, IN_A_THREAD)
    with Watched(descendants(process.pid)) as watched:
        assert len(watched) >= 10
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "over\n"
        assert watched.left() == []
        assert process.poll() is None


@pytest.mark.parametrize("which", [0, 1], ids=["bwrap", "guest"])
async def test_nothing_survives_one_of_its_own(scratch, which):
    before = descriptors()
    workspace = BubblewrapWorkspace(workspace_id="doomed")
    await workspace.initialize()
    await workspace.run("setsid sleep 1000 >/dev/null 2>&1 &")
    sandbox: Any = workspace._sandbox
    child = sandbox._child.pid
    doomed = [child, *descendants(child)]
    with Watched(doomed) as watched:
        os.kill(doomed[which], signal.SIGKILL)
        with pytest.raises(SandboxLostError):
            await workspace.run("sleep 1000")
        await workspace.close()
        assert watched.left() == []
    assert groups("doomed") == []
    assert directories(scratch) == []
    assert records(scratch) == []
    assert not descriptors() - before


async def test_a_start_that_is_killed_leaves_nothing(scratch):
    await sweep.once()
    before = descriptors()
    for delay in range(0, 60, 3):
        workspace = BubblewrapWorkspace(workspace_id="unborn")
        start = asyncio.create_task(workspace.initialize())
        while not start.done() and not (ours := descendants(os.getpid())):
            await anyio.sleep(0)
        await anyio.sleep(delay / 1000)
        ours = descendants(os.getpid())
        with Watched(ours) as watched:
            if ours:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(ours[0], signal.SIGKILL)
            with contextlib.suppress(BackendUnavailableError):
                await start
            await workspace.close()
            assert watched.left() == []
        assert groups("unborn") == []
        assert directories(scratch) == []
    assert not descriptors() - before


async def test_a_start_that_is_cancelled_leaves_nothing(scratch):
    await sweep.once()
    before = descriptors()
    for delay in range(0, 60, 6):
        workspace = BubblewrapWorkspace(workspace_id="unwanted")
        with anyio.move_on_after(delay / 1000):
            await workspace.initialize()
        await workspace.close()
        assert descendants(os.getpid()) == []
        assert groups("unwanted") == []
        assert directories(scratch) == []
    assert not descriptors() - before


@pytest.mark.timeout(400)
async def test_a_thousand_sandboxes_leave_nothing(scratch):
    await sweep.once()
    async with BubblewrapWorkspace(workspace_id="cycle-first") as workspace:
        await workspace.run("true")
    mounted, before = mounts(), descriptors()
    numbers = iter(range(1000))

    async def work():
        for number in numbers:
            name = f"cycle-{number}"
            async with BubblewrapWorkspace(workspace_id=name) as workspace:
                result = await workspace.run(["echo", name])
                assert result.stdout == f"{name}\n"

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(work)
    assert mounts() == mounted
    assert not descriptors() - before
    assert descendants(os.getpid()) == []
    assert groups("cycle-") == []
    assert directories(scratch) == []
    assert records(scratch) == []


# What a dead host left.


def abandoned(scratch: Path, content: object) -> Path:
    folder = scratch / "state/directories"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.parent.chmod(0o700)
    record = folder / os.urandom(4).hex()
    record.write_text(content if isinstance(content, str) else json.dumps(content))
    return record


def identity(path: Path) -> list[int]:
    found = path.lstat()
    return [found.st_dev, found.st_ino]


def test_a_directory_that_is_held_stays(scratch):
    with contextlib.ExitStack() as held:
        path = sweep.temporary(held)
        sweep.sweep()
        assert Path(path).is_dir()
        assert len(records(scratch)) == 1
    assert not Path(path).exists()
    assert records(scratch) == []


def test_a_directory_of_a_dead_host_goes(scratch):
    left = scratch / "tmp/isobox-left"
    (left / "deep/er").mkdir(parents=True)
    (left / "deep/file").touch()
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (left / "link").symlink_to(outside)
    abandoned(scratch, [str(left), identity(left)])
    sweep.sweep()
    assert not left.exists()
    assert (outside / "file").exists()
    assert records(scratch) == []


@pytest.mark.parametrize("name", ["isobox-mine", "mine"])
def test_what_is_not_recorded_stays(scratch, name):
    mine = scratch / "tmp" / name
    mine.mkdir()
    sweep.sweep()
    assert mine.is_dir()


def test_what_took_the_place_of_a_directory_stays(scratch):
    mine = scratch / "tmp/isobox-mine"
    mine.mkdir()
    (mine / "file").touch()
    device, inode = identity(mine)
    abandoned(scratch, [str(mine), [device, inode + 1]])
    sweep.sweep()
    assert (mine / "file").exists()
    assert records(scratch) == []


def test_what_is_not_named_as_ours_stays(scratch):
    mine = scratch / "tmp/mine"
    mine.mkdir()
    abandoned(scratch, [str(mine), identity(mine)])
    sweep.sweep()
    assert mine.is_dir()


def test_a_link_in_the_place_of_a_directory_is_not_followed(scratch):
    mine = scratch / "tmp/mine"
    mine.mkdir()
    (mine / "file").touch()
    link = scratch / "tmp/isobox-link"
    link.symlink_to(mine)
    abandoned(scratch, [str(link), identity(mine)])
    sweep.sweep()
    assert (mine / "file").exists()


def test_a_host_that_died_in_between_left_an_empty_directory(scratch):
    left = scratch / "tmp/isobox-left"
    left.mkdir()
    abandoned(scratch, [str(left), None])
    sweep.sweep()
    assert not left.exists()
    assert records(scratch) == []


@pytest.mark.parametrize("content", ["", "[", "[]", "3", '["a"]', '["a", 3, 4]'])
def test_a_record_that_says_nothing_goes(scratch, content):
    abandoned(scratch, content)
    sweep.sweep()
    assert records(scratch) == []


def test_records_that_others_can_enter_are_refused(scratch):
    (scratch / "state").mkdir(mode=0o755)
    with contextlib.ExitStack() as held, pytest.raises(StorageError):
        sweep.temporary(held)
    assert directories(scratch) == []


def test_a_sweep_of_nothing_is_cheap(scratch):
    sweep.sweep()
    took = []
    for _ in range(20):
        began = time.perf_counter()
        sweep.sweep()
        took.append(time.perf_counter() - began)
    assert min(took) < 0.002
