"""What gVisor holds, what is left of it, and what it refuses."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from isobox import GVisorWorkspace, Limits
from isobox._backends.bubblewrap import processes
from isobox._backends.gvisor import GVisorProvider, binary, provider
from isobox._core.protected import ABSENT
from isobox._workdir import sweep
from isobox.abc import File, SandboxSpec
from isobox.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    IsoboxError,
    SandboxLostError,
    UnsupportedError,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("runsc") is None, reason="needs runsc"),
]
by_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

HOST = """
import asyncio
from isobox import GVisorWorkspace
from isobox._workdir import sweep
sweep._base = lambda: {state!r}

async def main():
    workspace = GVisorWorkspace(workspace_id="gvisor-killed")
    await workspace.initialize()
    await workspace.run("setsid sleep 1000 >/dev/null 2>&1 &")
    process = await workspace.start(["sleep", "1000"])
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

#: Opens what the guest has open, as far as the kernel lets it.
TAKE = """
import os, socket, stat, sys
taken = []
for name in os.listdir("/proc/1/fd"):
    try:
        fd = os.open(f"/proc/1/fd/{name}", os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        continue
    if stat.S_ISSOCK(os.fstat(fd).st_mode):
        taken.append(name)
print(taken)
"""

GREEDY = "kept = bytearray(); import sys\nwhile True: kept += b'x' * (1 << 22)"

MANY = """
import os, time
made = 0
try:
    for made in range(100_000):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
except OSError:
    pass
print(made)
"""


@pytest.fixture
async def workspace():
    async with GVisorWorkspace() as opened:
        yield opened


@pytest.fixture
def public_tmp():
    """A directory that everybody may reach."""
    with tempfile.TemporaryDirectory(prefix="test-", dir="/var/tmp") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture
def place(monkeypatch):
    """A place of our own for temporary directories and for their records."""
    with tempfile.TemporaryDirectory(prefix="test-") as path:
        Path(path).chmod(0o711)
        (Path(path) / "tmp").mkdir(mode=0o711)
        monkeypatch.setenv("TMPDIR", f"{path}/tmp")
        monkeypatch.setattr(tempfile, "tempdir", f"{path}/tmp")
        monkeypatch.setattr(sweep, "_base", lambda: f"{path}/state")
        yield Path(path)


def runsc_of(workspace) -> list[int]:
    """The processes on the host of a workspace."""
    return [seen.pid for seen in processes.below(workspace._sandbox.child.pid)]


def groups(name: str) -> list[str]:
    return [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/isobox-{name}*")]


def gone(pids) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def called(pids, name: str) -> int:
    """Return the process that calls itself so."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids}
    return next(pid for pid, line in lines.items() if line.startswith(name.encode()))


async def until(condition) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.sleep(0.02)


# -- whose it is ---------------------------------------------------------------


@by_root
async def test_none_of_its_processes_is_roots(workspace):
    assert "gVisor" in workspace.isolation().system_calls.mechanism
    found = runsc_of(workspace)
    assert len(found) >= 3
    assert {os.stat(f"/proc/{pid}").st_uid for pid in found}.isdisjoint({0})


async def test_commands_are_an_ordinary_user_without_capabilities(workspace):
    result = await workspace.run("id -u; grep Cap /proc/self/status; cat /proc/version")
    first, *rest = result.stdout.splitlines()
    assert first == "1000"
    assert [int(line.split()[1], 16) for line in rest[:4]] == [0] * 4


@by_root
@pytest.mark.parametrize("owner", [0, 1234])
async def test_files_belong_to_the_owner_of_the_directory(public_tmp, owner):
    os.chown(public_tmp, owner, owner)
    async with GVisorWorkspace(public_tmp) as workspace:
        assert (await workspace.run("id -u; echo x > made; mkdir below")).ok
        await workspace.write("written", "text")
    for name in ("made", "below", "written"):
        found = (public_tmp / name).stat()
        assert (found.st_uid, found.st_gid) == (owner, owner)


@by_root
def test_an_ordinary_user_may_start_it(public_tmp):
    os.chown(public_tmp, 65534, 65534)
    (public_tmp / "repo").mkdir()
    os.chown(public_tmp / "repo", 65534, 65534)
    shutil.copytree(
        Path(provider.__file__).parents[2],
        public_tmp / "lib/isobox",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    script = (
        "from isobox.sync import GVisorWorkspace\n"
        f"with GVisorWorkspace({str(public_tmp / 'repo')!r}) as ws:\n"
        "    print(ws.run('id -u; echo x > made; touch .git/x').stdout)\n"
        "    print(ws.isolation().tenant.level)\n"
    )
    done = as_nobody(script, public_tmp)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1000", "partial"]
    assert (public_tmp / "repo/made").stat().st_uid == 65534
    assert os.listdir(public_tmp / "repo") == ["made"]


def as_nobody(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as user 65534, who sees the packages of these tests."""
    become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    found = {path for path in sys.path if path.endswith("site-packages")}
    copies = [str(folder / "lib")]
    for each in found:
        for name in ("anyio", "typing_extensions.py", "idna", "sniffio", "h11"):
            source = Path(each) / name
            if source.is_dir():
                shutil.copytree(source, folder / "lib" / name, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, folder / "lib" / name)
    return subprocess.run(
        [*become, "/usr/bin/python3", "-c", script],
        env={"PYTHONPATH": ":".join(copies), "TMPDIR": "/tmp", "PATH": os.defpath},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_no_set_id_file_is_made(public_tmp):
    async with GVisorWorkspace(public_tmp) as workspace:
        result = await workspace.run("cp /bin/true t && chmod 4755 t; chmod 2755 t")
        assert result.exit_code != 0
    assert not (public_tmp / "t").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)


async def test_a_directory_that_is_swapped_is_not_shown(public_tmp, monkeypatch):
    """Between the check and the mount, somebody turns the path elsewhere."""
    real, other = public_tmp / "real", public_tmp / "other"
    for each in (real, other):
        each.mkdir()
    (other / "secret").write_text("secret")
    start = provider.GuestChild.start

    async def swapped(*arguments, **options):
        real.rename(public_tmp / "moved")
        real.symlink_to(other)
        return await start(*arguments, **options)

    monkeypatch.setattr(provider.GuestChild, "start", swapped)
    with contextlib.suppress(BackendUnavailableError):
        async with GVisorWorkspace(real, protect=False) as workspace:
            assert not await workspace.exists("secret")
            await workspace.write("made", "text")
    assert os.listdir(other) == ["secret"]


# -- the channel ---------------------------------------------------------------


async def test_the_channel_cannot_be_taken(workspace):
    result = await workspace.run(["python3", "-c", TAKE])
    assert (result.stdout, result.exit_code) == ("[]\n", 0), result.stderr


@pytest.mark.parametrize("how", ["kill -9 1", "kill -STOP 1", "kill -9 -1"])
async def test_the_guest_cannot_be_ended_or_stopped(workspace, how):
    await workspace.run(how)
    assert (await workspace.run(["echo", "on"])).stdout == "on\n"


STARVE = """
import os, resource
for call in (
    lambda: resource.prlimit(1, resource.RLIMIT_AS, (1, 1)),
    lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)),
    lambda: os.sched_setaffinity(1, {0}),
    lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
):
    try:
        call()
    except PermissionError:
        print("refused")
"""


async def test_the_guest_is_neither_starved_nor_disarmed(workspace):
    shown = await workspace.run(["python3", "-c", STARVE])
    assert (shown.stdout, shown.stderr) == ("refused\n" * 4, "")
    assert (await workspace.run(["echo", "on"])).stdout == "on\n"


# -- what is left --------------------------------------------------------------


async def test_a_closed_workspace_leaves_nothing(place):
    workspace = GVisorWorkspace(workspace_id="gvisor-closed")
    async with workspace:
        await workspace.run("setsid sleep 1000 >/dev/null 2>&1 &")
        found = runsc_of(workspace)
    await until(lambda: gone(found))
    assert os.listdir(place / "tmp") == []
    assert groups("gvisor-closed") == []


async def test_a_killed_host_leaves_nothing(place):
    script = HOST.format(state=str(place / "state"))
    host = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    assert host.stdout is not None
    assert host.stdout.readline() == "ready\n"
    found = [seen.pid for seen in processes.below(host.pid)[1:]]
    assert len(found) >= 3
    host.kill()
    host.communicate()
    await until(lambda: gone(found))
    sweep.sweep()
    assert os.listdir(place / "tmp") == []
    assert groups("gvisor-killed") == []


@pytest.mark.parametrize("part", ["/usr/bin/runsc", "runsc-sandbox", "runsc-gofer"])
async def test_a_part_that_is_killed_is_a_lost_sandbox(workspace, part):
    os.kill(called(runsc_of(workspace), part), 9)
    with anyio.fail_after(20), pytest.raises(SandboxLostError):
        await workspace.run("sleep 10")


async def test_starts_that_are_cancelled_leave_nothing(place):
    for delay in (0.02, 0.1, 0.2, 0.35):
        workspace = GVisorWorkspace(workspace_id="gvisor-cancelled")
        with anyio.move_on_after(delay):
            await workspace.initialize()
        await workspace.close()
    assert os.listdir(place / "tmp") == []
    assert groups("gvisor-cancelled") == []


# -- protected names -----------------------------------------------------------


async def test_protected_names_stay(public_tmp):
    (public_tmp / ".git").mkdir()
    (public_tmp / ".git/config").write_text("kept")
    (public_tmp / "deep/.vscode").mkdir(parents=True)
    async with GVisorWorkspace(public_tmp) as workspace:
        for command in (
            "echo x > .git/config",
            "mv .git away",
            "mv deep away",
            "touch deep/.vscode/tasks.json",
            "touch .mcp.json/x",
            "rm -r .git",
            "ln -sf /tmp .envrc/x",
        ):
            assert not (await workspace.run(command)).ok, command
        assert (await workspace.run("touch deep/free")).ok
    assert (public_tmp / ".git/config").read_text() == "kept"
    assert ABSENT.isdisjoint(set(os.listdir(public_tmp)) - {".git"})


async def test_a_mount_that_the_host_takes_away_ends_the_sandbox(public_tmp):
    (public_tmp / ".git").mkdir()
    async with GVisorWorkspace(public_tmp) as workspace:
        process = await workspace.start("while :; do sleep 0.1; done")
        (public_tmp / ".git").rename(public_tmp / "gone")
        (public_tmp / ".git").mkdir()
        with anyio.fail_after(10), pytest.raises(SandboxLostError, match="replaced"):
            await process.wait()
    assert os.listdir(public_tmp / ".git") == []


# -- what is seen --------------------------------------------------------------


async def test_files_stand_where_they_are_named(public_tmp):
    places = ("/etc/made", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")
    files = tuple(File(path=path, data=path.encode()) for path in places)
    spec = SandboxSpec(id="files", files=files)

    class Workspace(GVisorWorkspace):
        def _spec(self):
            return spec

    async with Workspace() as workspace:
        for path in places:
            assert await workspace.read_text(path) == path
            assert not (await workspace.run(f"echo x >> {path}")).ok


async def test_mounts_are_read_only(public_tmp):
    (public_tmp / "file").write_text("kept")
    (public_tmp / "file").chmod(0o666)
    async with GVisorWorkspace(mounts=[(str(public_tmp), "/data")]) as workspace:
        assert (await workspace.run("cat /data/file; echo x > /data/file")).stdout
    assert (public_tmp / "file").read_text() == "kept"


async def test_a_directory_is_shown_read_only(public_tmp):
    class Workspace(GVisorWorkspace):
        def _spec(self):
            return replace(super()._spec(), read_only=True)

    (public_tmp / "file").write_text("kept")
    (public_tmp / "file").chmod(0o666)
    async with Workspace(public_tmp) as workspace:
        assert not (await workspace.run("echo x > file; touch made")).ok
        with pytest.raises(IsoboxError):
            await workspace.write("made", "text")
        assert "read_only" in workspace._sandbox.capabilities
    assert os.listdir(public_tmp) == ["file"]
    assert (public_tmp / "file").read_text() == "kept"


async def test_terminals_are_measured(workspace):
    """Those of an old gVisor are refused: they neither hang up nor interrupt."""
    if "tty" in workspace._sandbox.capabilities:
        async with await workspace.start("echo hi", tty=True) as process:
            assert await process.stdout.read() == b"hi\r\n"
        return
    with pytest.raises(UnsupportedError, match="terminals"):
        await workspace.start("true", tty=True)


async def test_a_root_directory_is_seen_and_kept(python_tree):
    async with GVisorWorkspace(rootfs=python_tree) as workspace:
        result = await workspace.run("cat /etc/debian_version; touch /x")
        told = (Path(python_tree) / "etc/debian_version").read_text()
        assert result.stdout.startswith(told)
        await workspace.write("file", "text")
        assert (await workspace.run("cat /workspace/file")).stdout == "text"
    assert not (Path(python_tree) / "x").exists()


async def test_a_root_directory_without_python_says_what_to_do(busybox_tree):
    with pytest.raises((BackendUnavailableError, InvalidArgumentError)) as caught:
        await GVisorWorkspace(rootfs=busybox_tree).initialize()
    assert "rootfs" in str(caught.value)


async def test_links_of_a_root_directory_write_nothing_on_the_host(public_tmp):
    root, target = public_tmp / "root", public_tmp / "target"
    target.write_text("kept")
    (root / "etc").mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/python3").symlink_to("/nowhere")
    for name in ("passwd", "hosts", "resolv.conf"):
        (root / "etc" / name).symlink_to(target)
    (root / "var").symlink_to(public_tmp)
    with pytest.raises((BackendUnavailableError, InvalidArgumentError)):
        await GVisorWorkspace(rootfs=root).initialize()
    assert target.read_text() == "kept"
    assert sorted(os.listdir(public_tmp)) == ["root", "target"]


# -- limits --------------------------------------------------------------------


async def test_too_much_memory_ends_the_sandbox_and_says_so():
    async with GVisorWorkspace(limits=Limits(memory=128 << 20)) as workspace:
        usage = await workspace.usage()
        assert usage.memory is not None
        assert usage.memory < 256 << 20
        with pytest.raises(SandboxLostError, match=r"limits\.memory"):
            await workspace.run(["python3", "-c", GREEDY], timeout=60)


async def test_processes_are_bounded():
    async with GVisorWorkspace(limits=Limits(processes=32)) as workspace:
        with pytest.raises(SandboxLostError, match=r"limits\.processes"):
            await workspace.run(["python3", "-c", MANY], timeout=60)
    assert groups(workspace.workspace_id) == []


async def test_what_cannot_be_done_is_refused(public_tmp, monkeypatch):
    with pytest.raises(UnsupportedError, match=r"limits\.disk"):
        await GVisorWorkspace(limits=Limits(disk=1 << 20)).initialize()
    copy = SandboxSpec(id="copy", workdir=str(public_tmp), mode="copy")
    with pytest.raises(UnsupportedError, match="BubblewrapWorkspace"):
        await GVisorProvider().create(copy)
    with pytest.raises(InvalidArgumentError, match="systrap"):
        GVisorWorkspace(platform="xen")
    monkeypatch.setattr(binary, "_candidates", list)
    with pytest.raises(BackendUnavailableError, match="not installed"):
        await GVisorWorkspace().initialize()


async def test_a_platform_that_is_not_there_is_said():
    known = binary.find()
    lacking = [each for each in binary.PLATFORMS if each not in known.platforms]
    for platform in lacking:
        with pytest.raises(BackendUnavailableError, match=platform):
            await GVisorWorkspace(platform=platform).initialize()
    assert known.platform(None) in ("systrap", "ptrace")


async def test_a_program_that_is_no_runsc_is_said(public_tmp, monkeypatch):
    fake = public_tmp / "runsc"
    fake.write_text("#!/bin/sh\necho something else\n")
    fake.chmod(0o755)
    monkeypatch.setattr(binary, "_candidates", lambda: [str(fake)])
    with pytest.raises(BackendUnavailableError, match="no runsc that isobox knows"):
        await GVisorWorkspace().initialize()
    availability = await GVisorProvider().probe()
    assert not availability.ok
    fake.chmod(0o4755)
    with pytest.raises(BackendUnavailableError, match="set-uid"):
        await GVisorWorkspace().initialize()
