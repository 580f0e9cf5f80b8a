"""Control groups: version 1 and `cgroup.kill` in the kernel, the rest on a fake.

The kernel's groups are made at the top of each hierarchy, never below the one
that the tests themselves run in.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from isobox._linux import cgroups
from isobox._linux.cgroups import (
    ControlGroup,
    ControlGroups,
    GroupLimits,
    NoControlGroup,
)
from isobox.errors import InvalidArgumentError

MiB = 1024 * 1024
UNIFIED = Path("/sys/fs/cgroup/unified")

needs_v1 = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/sys/fs/cgroup/pids/cgroup.procs"),
    reason="needs root and control groups of version 1",
)
needs_kill = pytest.mark.skipif(
    os.geteuid() != 0 or not (UNIFIED / "cgroup.controllers").exists(),
    reason="needs root and a unified hierarchy besides",
)


@pytest.fixture
def name():
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def v1(tmp_path):
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    top = "".join(line.rpartition(":")[0] + ":/\n" for line in lines)
    membership = tmp_path / "membership"
    membership.write_text(top)
    return ControlGroups(membership=str(membership))


@pytest.fixture
def make(v1, name):
    made = []

    def make(**limits) -> ControlGroup:
        group = v1.create(name, GroupLimits(**limits))
        assert isinstance(group, ControlGroup), group
        made.append(group)
        return group

    yield make
    for group in made:
        group.close()


class Member:
    """A Python process that runs `script` once it is in the group."""

    def __init__(self, group: ControlGroup, script: str) -> None:
        process: Any = subprocess.Popen(
            [sys.executable, "-c", f"import os, sys\nsys.stdin.readline()\n{script}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        group.add(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        self.process: Any = process

    def __enter__(self):
        return self.process

    def __exit__(self, *exception):
        self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def directories(name: str) -> list[Path]:
    return sorted(Path("/sys/fs/cgroup").glob(f"*/isobox-{name}"))


@needs_v1
def test_limits_reach_the_kernel(make, name):
    make(memory=64 * MiB, pids=17, cpus=0.5)
    found = {path.parent.name: path for path in directories(name)}
    assert {"memory", "pids", "cpu", "cpuacct"} == found.keys()
    assert int((found["memory"] / "memory.limit_in_bytes").read_text()) == 64 * MiB
    swap = found["memory"] / "memory.memsw.limit_in_bytes"
    assert not swap.exists() or int(swap.read_text()) == 64 * MiB
    assert int((found["pids"] / "pids.max").read_text()) == 17
    assert int((found["cpu"] / "cpu.cfs_quota_us").read_text()) == 50_000


@needs_v1
def test_usage_is_that_of_all_members(make):
    group = make(memory=256 * MiB)
    script = "os.fork(); data = bytearray(8 << 20); print(flush=True); sys.stdin.read()"
    with Member(group, script) as process:
        process.stdout.readline()
        process.stdout.readline()
        usage = group.usage()
    assert usage.pids == 2
    assert usage.memory >= 16 * MiB
    assert usage.cpu > 0


@needs_v1
def test_an_end_for_lack_of_memory_is_counted(make):
    group = make(memory=32 * MiB)
    assert group.oom_kills() == 0
    with Member(group, "bytearray(256 << 20)") as process:
        assert process.wait(30) == -signal.SIGKILL
    assert group.oom_kills() == 1


@needs_v1
def test_processes_are_limited(make):
    group = make(pids=5)
    script = """
try:
    while os.fork(): pass
    sys.stdin.read()
except BlockingIOError:
    print("enough", flush=True)
    sys.stdin.read()"""
    with Member(group, script) as process:
        assert process.stdout.readline() == b"enough\n"
        assert group.usage().pids == 5


@needs_v1
def test_refused_forks_are_counted(make):
    group = make(pids=3)
    assert group.refused_forks() == 0
    script = """
try:
    while os.fork(): pass
    sys.stdin.read()
except BlockingIOError:
    print("enough", flush=True)
    sys.stdin.read()"""
    with Member(group, script) as process:
        assert process.stdout.readline() == b"enough\n"
        assert group.refused_forks() >= 1


@needs_v1
def test_whoever_writes_to_the_entrances_is_in(make):
    group = make()
    entrances = group.entrances()
    script = "for fd in sys.argv[1:]: os.write(int(fd), b'0')\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", f"import os, sys\n{script}", *map(str, entrances)],
        stdin=subprocess.PIPE,
        pass_fds=entrances,
    ) as process:
        for fd in entrances:
            os.close(fd)
        group_of = Path(f"/proc/{process.pid}/cgroup")
        while group_of.read_text().count("isobox-") < 3:
            os.sched_yield()
        group.close()
        assert process.wait(10) == -signal.SIGKILL


@needs_v1
@pytest.mark.parametrize("limits", [{"pids": 64}, {}])
def test_kill_leaves_nobody(make, limits):
    group = make(**limits)
    script = """
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        print(flush=True)
        while True: __import__("signal").pause()
sys.stdin.read()"""
    with Member(group, script) as process:
        for _ in range(40):
            process.stdout.readline()
        assert group.usage().pids == 41
        group.kill()
        assert process.wait(10) == -signal.SIGKILL
        assert process.stdout.read() == b""


@needs_v1
def test_kill_outruns_a_fork_bomb(make, name):
    group = make(pids=100)
    script = """
print(flush=True)
while True:
    try: os.fork()
    except OSError: pass"""
    with Member(group, script) as process:
        process.stdout.readline()
        group.kill()
        assert (directories(name)[0] / "cgroup.procs").read_text() == ""


@needs_v1
def test_close_kills_and_removes(make, name):
    group = make()
    with Member(group, "sys.stdin.read()") as process:
        group.close()
        assert process.wait(10) == -signal.SIGKILL
    assert directories(name) == []
    group.close()


@needs_v1
def test_an_absent_process_is_an_error(make):
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        make().add(process.pid)


@needs_v1
def test_a_group_in_use_is_not_given_twice(v1, make, name):
    make()
    again = v1.create(name, GroupLimits())
    assert isinstance(again, NoControlGroup)
    assert "another process has this control group" in again.reason
    assert len(directories(name)) == 3


@needs_v1
def test_what_a_dead_host_left_is_swept(v1, make, name):
    make()
    left = Path(f"/sys/fs/cgroup/pids/isobox-{name}-dead")
    left.mkdir()
    swept = v1.sweep()
    assert str(left) in swept
    assert not left.exists()
    assert len(directories(name)) == 3


@needs_v1
def test_a_group_with_processes_is_not_swept(v1, name):
    left = Path(f"/sys/fs/cgroup/pids/isobox-{name}")
    left.mkdir()
    with subprocess.Popen(["sleep", "60"]) as process:
        (left / "cgroup.procs").write_text(str(process.pid))
        assert str(left) not in v1.sweep()
        taken = v1.create(name, GroupLimits())
        assert isinstance(taken, NoControlGroup)
        process.kill()
        process.wait()
    assert directories(name) == [left]
    group = v1.create(name, GroupLimits())
    assert isinstance(group, ControlGroup)
    group.close()
    assert directories(name) == []


@needs_v1
def test_an_ordinary_user_gets_the_reason(v1, name):
    os.seteuid(65534)
    try:
        refused = v1.create(name, GroupLimits())
    finally:
        os.seteuid(0)
    assert isinstance(refused, NoControlGroup)
    assert "Permission denied" in refused.reason
    assert directories(name) == []


@needs_v1
def test_a_limit_that_the_kernel_refuses_leaves_nothing(v1, name):
    refused = v1.create(name, GroupLimits(pids=-5))
    assert isinstance(refused, NoControlGroup)
    assert directories(name) == []


@pytest.mark.parametrize("bad", ["", "A", "../x", "a/b", "a\n", "-a", "x" * 201])
def test_an_id_that_could_be_a_path_is_refused(bad, tmp_path):
    with pytest.raises(InvalidArgumentError):
        ControlGroups(root=str(tmp_path)).create(bad, GroupLimits())


def test_a_missing_controller_is_the_reason(tmp_path):
    (tmp_path / "pids").mkdir()
    membership = tmp_path / "membership"
    membership.write_text("2:memory:/\n1:pids:/\n")
    host = ControlGroups(root=str(tmp_path), membership=str(membership))
    refused = host.create("a", GroupLimits(memory=1, pids=1, cpus=1))
    assert refused == NoControlGroup(
        "no control group controller for cpu and memory may be used here"
    )


def test_nothing_mounted_is_the_reason(tmp_path):
    membership = tmp_path / "membership"
    membership.write_text("")
    host = ControlGroups(root=str(tmp_path), membership=str(membership))
    refused = host.create("a", GroupLimits())
    assert refused == NoControlGroup("no control group controllers are mounted")


@needs_kill
def test_the_kernels_own_kill(tmp_path, name):
    membership = tmp_path / "membership"
    membership.write_text("0::/\n")
    host = ControlGroups(root=str(UNIFIED), membership=str(membership))
    group = host.create(name, GroupLimits())
    assert isinstance(group, ControlGroup)
    script = "os.fork(); os.setsid(); print(flush=True); sys.stdin.read()"
    with Member(group, script) as process:
        process.stdout.readline()
        process.stdout.readline()
        assert (group.usage().cpu or 0) > 0
        group.kill()
        assert process.wait(10) == -signal.SIGKILL
    group.close()
    assert directories(name) == []


FILES = {
    "cgroup.procs": "",
    "memory.max": "max\n",
    "memory.swap.max": "max\n",
    "memory.current": "4096\n",
    "memory.events": "low 0\noom 3\noom_kill 2\n",
    "pids.max": "max\n",
    "pids.current": "7\n",
    "cpu.max": "max 100000\n",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
    "cgroup.kill": "",
}


class FakeV2:
    """A unified hierarchy on an ordinary file system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.on: dict[str, set[str]] = {}
        self.busy: set[str] = set()
        self.has = {"memory", "pids", "cpu"}
        (root / "cgroup.controllers").touch()
        (root / "cgroup.procs").touch()
        self.membership = root / "membership"

    def groups(self, own: str) -> ControlGroups:
        made = self.root
        for name in own.strip("/").split("/"):
            made = made / name
            made.mkdir(exist_ok=True)
            (made / "cgroup.procs").touch()
        self.membership.write_text(f"0::{own}\n")
        return ControlGroups(root=str(self.root), membership=str(self.membership))

    def control(self, parent: str, mode: str):
        fake = self

        class Control(io.BytesIO):
            @override
            def write(self, data) -> int:
                name = bytes(data).decode().removeprefix("+")
                if parent in fake.busy or name not in fake.has:
                    raise OSError(16, "busy")
                fake.on.setdefault(parent, set()).add(name)
                return len(data)

        return Control(" ".join(fake.on.get(parent, ())).encode())


@pytest.fixture
def v2(tmp_path, monkeypatch):
    fake = FakeV2(tmp_path)
    mkdir = os.mkdir

    def mkdir_with_files(path, *mode):
        mkdir(path, *mode)
        if "isobox-" in str(path):
            for file, text in FILES.items():
                Path(path, file).write_text(text)

    rmdir = os.rmdir

    def rmdir_with_files(path):
        for file in FILES:
            Path(path, file).unlink()
        rmdir(path)

    monkeypatch.setattr(cgroups, "_control", fake.control)
    monkeypatch.setattr(os, "mkdir", mkdir_with_files)
    monkeypatch.setattr(os, "rmdir", rmdir_with_files)
    return fake


def test_v2_limits_and_usage(v2, tmp_path):
    group = v2.groups("/own").create("a", GroupLimits(memory=MiB, pids=9, cpus=1.5))
    assert isinstance(group, ControlGroup)
    made = tmp_path / "own/isobox-a"
    assert (made / "memory.max").read_bytes().startswith(b"1048576")
    assert (made / "memory.swap.max").read_bytes().startswith(b"0")
    assert (made / "pids.max").read_bytes().startswith(b"9")
    assert (made / "cpu.max").read_bytes().startswith(b"150000 100000")
    usage = group.usage()
    assert (usage.memory, usage.cpu, usage.pids) == (4096, 2.5, 7)
    assert group.oom_kills() == 2
    group.add(123)
    assert (made / "cgroup.procs").read_text() == "123"
    (made / "cgroup.procs").write_text("")
    group.close()
    assert (made.parent / "isobox-a").exists() is False


def test_v2_that_takes_no_processes_is_the_reason(v2, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    refused = v2.groups("/own").create("a", GroupLimits(pids=9))
    assert isinstance(refused, NoControlGroup)
    assert "no process may be moved here" in refused.reason


def test_v2_goes_one_up_where_its_own_group_has_processes(v2, tmp_path):
    v2.busy.add(str(tmp_path / "slice/scope"))
    group = v2.groups("/slice/scope").create("a", GroupLimits(pids=9))
    assert isinstance(group, ControlGroup)
    assert (tmp_path / "slice/isobox-a").is_dir()
    group.close()


def test_v2_never_goes_above_the_root(v2, tmp_path):
    v2.busy.add(str(tmp_path))
    refused = v2.groups("/").create("a", GroupLimits(pids=9))
    assert refused == NoControlGroup(
        "no control group controller for pids may be used here"
    )


def test_v2_says_which_controller_is_not_delegated(v2):
    v2.has = {"pids"}
    refused = v2.groups("/own").create("a", GroupLimits(pids=9, memory=MiB))
    assert isinstance(refused, NoControlGroup)
    assert "memory" in refused.reason


def test_v2_without_limits_needs_no_controller(v2):
    v2.has = set()
    group = v2.groups("/own").create("a", GroupLimits())
    assert isinstance(group, ControlGroup)
    usage = group.usage()
    assert (usage.memory, usage.cpu, usage.pids) == (None, 2.5, None)
    assert group.oom_kills() == 0
    group.close()


def test_a_mount_that_begins_at_the_own_group_is_used(v2, tmp_path):
    v2.membership.write_text("0::/docker/abc\n")
    host = ControlGroups(root=str(tmp_path), membership=str(v2.membership))
    group = host.create("a", GroupLimits(pids=1))
    assert isinstance(group, ControlGroup)
    assert (tmp_path / "isobox-a").is_dir()
    group.close()
