"""What a container holds, and how a workspace comes back to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from isobox import DockerWorkspace, Limits, MemorySink, sync
from isobox._backends.docker import life
from isobox._backends.docker.engine import Engine
from isobox._core.spec import File
from isobox.errors import (
    BackendUnavailableError,
    ConflictError,
    InvalidArgumentError,
    IsoboxError,
    SandboxLostError,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio

MiB = 1 << 20
SOON = 30


@pytest.fixture
def made(engine, python_image):
    """Makes workspaces, and sees that nothing is left of them."""

    def make(workdir=None, **options):
        options = {"image": python_image, "engine": engine.url, **options}
        return DockerWorkspace(workdir, **options)

    yield make
    left = engine.call("ps", "-aq", "--filter", "label=isobox.workspace").stdout
    volumes = engine.call("volume", "ls", "-q").stdout
    for container in left.split():
        engine.call("rm", "--force", container)
    for volume in volumes.split():
        engine.call("volume", "rm", volume)
    assert (left, volumes) == ("", "")


@pytest.fixture
def identity(request):
    return f"engine-{abs(hash(request.node.name)) % 10**9}"


@pytest.fixture
def directory(tmp_path):
    """A directory of another user than root, on a path that all may walk."""
    place = tmp_path / "work"
    place.mkdir()
    os.chown(place, 4321, 4322)
    return place


def described(engine, workspace):
    container = workspace._sandbox.container
    return json.loads(engine.call("inspect", container).stdout)[0]


async def called(engine, *arguments):
    return await anyio.to_thread.run_sync(lambda: engine.call(*arguments))


# -- what holds ------------------------------------------------------------------


async def test_the_engine_says_what_holds(engine, made):
    limits = Limits(memory=256 * MiB, processes=64, cpus=0.5)
    async with made(limits=limits) as workspace:
        found = described(engine, workspace)
    host = found["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["Privileged"] is False
    assert host["ReadonlyRootfs"] is True
    assert host["NetworkMode"] == "none"
    assert host["IpcMode"] == "private"
    assert (host["PidMode"], host["UTSMode"]) == ("", "")
    assert host["Memory"] == host["MemorySwap"] == 256 * MiB
    assert host["NanoCpus"] == 5 * 10**8
    assert host["PidsLimit"] == 80
    assert host["RestartPolicy"]["Name"] == "no"
    places = {"/tmp", "/var/tmp", "/run", "/home/agent", "/dev/shm"}
    assert set(host["Tmpfs"]) == places
    assert found["Config"]["User"] == "1000:1000"
    assert not host["Devices"]
    assert [mount["Target"] for mount in host["Mounts"]] == ["/workspace"]


TRIES = {
    "the root": "touch /etc/x",
    "a program": "cp /bin/true /usr/bin/x",
    "a mount": "mount -t tmpfs none /mnt",
    "a namespace with a mount": "unshare -rm true",
    "a device": "mknod /tmp/d b 8 0",
    "another user": "setpriv --reuid 0 true",
    "the kernel's settings": "echo 1 > /proc/sys/kernel/panic",
    "a host's file": "cat /host/etc/shadow /proc/1/root/../etc/shadow",
    "the engine": "test -S /var/run/docker.sock",
    "the control groups": "mkdir /sys/fs/cgroup/x /sys/fs/cgroup/memory/x",
    "a host name": "hostname other",
}


async def test_tries_from_inside_fail(made):
    async with made() as workspace:
        for what, script in TRIES.items():
            result = await workspace.run(script)
            assert not result.ok, what
        status = (await workspace.run(["cat", "/proc/self/status"])).stdout
        devices = (await workspace.run(["ls", "/sys/class/net"])).stdout.split()
    assert "CapBnd:\t0000000000000000" in status
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    assert devices == ["lo"]


async def test_the_host_is_not_in_the_environment(made, monkeypatch):
    monkeypatch.setenv("ISOBOX_TEST_SECRET", "of the host")
    async with made(env={"MINE": "1"}) as workspace:
        seen = (await workspace.run(["env"])).stdout
    assert "of the host" not in seen
    assert "MINE=1" in seen
    assert "HOME=/home/agent" in seen


async def test_the_key_is_nowhere_inside(engine, made):
    async with made() as workspace:
        labels = described(engine, workspace)["Config"]["Labels"]
        key = labels["isobox.key"]
        script = (
            f"grep -rsl {key[:40]} /proc/[0-9]*/cmdline /proc/[0-9]*/environ"
            " /workspace /tmp /run /home /etc"
        )
        found = (await workspace.run(script)).stdout
    # The search itself names it.
    assert all("/cmdline" in line for line in found.splitlines())


async def test_private_places_have_their_size(made):
    async with made(limits=Limits(tmp=4 * MiB)) as workspace:
        for place in ("/tmp", "/home/agent"):
            script = f"dd if=/dev/zero of={place}/f bs=1M count=8"
            result = await workspace.run(script)
            assert "No space left" in result.stderr


# -- what is mounted ---------------------------------------------------------------


async def test_files_keep_the_owner_of_the_directory(made, directory):
    async with made(directory) as workspace:
        await workspace.write("by-isobox", b"x")
        await workspace.run("echo x > by-command; mkdir sub; touch sub/f", check=True)
    for name in ("by-isobox", "by-command", "sub", "sub/f"):
        found = (directory / name).stat()
        assert (found.st_uid, found.st_gid) == (4321, 4322), name


async def test_a_directory_outlives_its_container(made, directory):
    (directory / "before").write_text("kept")
    async with made(directory) as workspace:
        assert await workspace.read_text("before") == "kept"
        await workspace.write("made", "here")
    assert (directory / "made").read_text() == "here"


async def test_a_directory_of_root_needs_a_user(made, tmp_path):
    with pytest.raises(InvalidArgumentError, match="belongs to root"):
        async with made(tmp_path):
            pass
    async with made(tmp_path, user=0) as workspace:
        await workspace.write("f", b"x")
        assert (await workspace.run(["id", "-u"])).stdout == "0\n"
        assert workspace.isolation().user_identity.level == "partial"
    assert (tmp_path / "f").stat().st_uid == 0


@pytest.mark.parametrize("user", ["agent", "-1", "1:", ":1", "1:2:3", "٣", str(2**32)])
def test_a_user_is_a_number(made, user):
    with pytest.raises(InvalidArgumentError, match="UID"):
        made(user=user)


async def test_what_is_mounted_cannot_be_written(made, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "f").write_text("seen")
    os.chmod(tmp_path / "data", 0o777)
    async with made(mounts=[(str(tmp_path / "data"), "/data")]) as workspace:
        assert (await workspace.run(["cat", "/data/f"])).stdout == "seen"
        assert not (await workspace.run(["touch", "/data/g"])).ok


async def test_a_way_to_the_engine_is_not_mounted(engine, made, directory, monkeypatch):
    with pytest.raises(InvalidArgumentError, match="socket"):
        async with made(mounts=[(str(engine.socket), "/s")]):
            pass
    with pytest.raises(InvalidArgumentError, match="engine's socket"):
        async with made(mounts=[(str(engine.base), "/s")]):
            pass
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(directory)
        listener.bind("s")
        with pytest.raises(InvalidArgumentError, match="sockets and devices"):
            async with made(mounts=[(f"{directory}/s", "/s")]):
                pass


@pytest.mark.parametrize("target", ["/", "/workspace/x", "/proc", "/dev/x", "/sys"])
async def test_what_the_container_needs_is_not_covered(made, directory, target):
    with pytest.raises(InvalidArgumentError, match="cannot be covered"):
        async with made(mounts=[(str(directory), target)]):
            pass


# -- limits ------------------------------------------------------------------------


async def test_a_command_that_takes_all_memory_says_so(made):
    script = "import sys; x = bytearray(512 << 20); print(len(x))"
    async with made(limits=Limits(memory=128 * MiB)) as workspace:
        result = await workspace.run(["python3", "-c", script])
        assert (result.exit_code, result.limit) == (137, "memory")
        assert result.oom_killed
        assert (await workspace.run(["echo", "alive"])).stdout == "alive\n"


async def test_processes_are_bounded(made):
    script = "for i in $(seq 60); do sleep 30 & done; wait"
    async with made(limits=Limits(processes=16)) as workspace:
        result = await workspace.run(script, timeout=10)
        assert result.limit == "processes"
        assert (await workspace.run(["echo", "alive"])).stdout == "alive\n"


async def test_use_is_told(made):
    async with made() as workspace:
        used = await workspace.usage()
    assert used.memory is not None
    assert used.memory > MiB
    assert used.cpu is not None
    assert used.cpu > 0
    assert used.processes is not None
    assert used.processes >= 1


async def test_a_limit_that_cannot_be_held_is_an_error(made):
    with pytest.raises(UnsupportedError, match=r"limits\.disk"):
        async with made(limits=Limits(disk=MiB)):
            pass


# -- what is told ------------------------------------------------------------------


async def test_who_wants_no_python_takes_it_from_nobody_else(engine, made):
    async with made(python="none") as workspace:
        assert described(engine, workspace)["Config"]["Labels"]["isobox.kind"] == "none"
    async with made() as workspace:
        labels = described(engine, workspace)["Config"]["Labels"]
        assert labels["isobox.kind"] == "image"


async def test_an_image_that_is_not_there_is_told(made):
    with pytest.raises(BackendUnavailableError, match="no image 'nobody/has-it'"):
        async with made(image="nobody/has-it"):
            pass


async def test_an_engine_that_is_not_there_is_told(made, tmp_path):
    with pytest.raises(BackendUnavailableError, match="is not reached"):
        async with made(engine=f"unix://{tmp_path}/none"):
            pass


async def test_a_runtime_that_is_not_there_is_told(made):
    with pytest.raises(BackendUnavailableError, match="runtime"):
        async with made(runtime="kata-of-nobody"):
            pass


async def test_a_foreign_container_of_that_name_is_left_alone(engine, made, identity):
    name = f"isobox-{identity}"
    engine.call("create", "--name", name, "isobox-test-python", "true")
    try:
        with pytest.raises(InvalidArgumentError, match="not isobox's"):
            async with made(workspace_id=identity):
                pass
        assert engine.call("inspect", name).returncode == 0
    finally:
        engine.call("rm", name)


# -- coming back -------------------------------------------------------------------


async def test_a_foreign_volume_of_that_name_is_left_alone(engine, made, identity):
    name = f"isobox-{identity}"
    engine.call("volume", "create", name)
    with pytest.raises(InvalidArgumentError, match="not isobox's"):
        await made(workspace_id=identity).initialize()
    assert engine.call("volume", "ls", "-q").stdout == f"{name}\n"
    engine.call("volume", "rm", name)


async def test_another_finds_what_was_left(made, identity):
    first = made(workspace_id=identity)
    await first.initialize()
    assert first.arrival.how == "created"
    await first.write("kept", b"x")
    running = await first.start("echo begun; sleep 60; echo never")
    await first.detach()
    async with made(workspace_id=identity) as second:
        assert second.arrival.how == "attached"
        assert await second.read_bytes("kept") == b"x"
        process = await second.attach(running.id)
        assert (await process.stdout.receive()).startswith(b"begun")
        await process.aclose()


async def test_an_attach_is_quick(made, identity):
    first = made(workspace_id=identity)
    await first.initialize()
    await first.detach()
    began = time.monotonic()
    async with made(workspace_id=identity):
        assert time.monotonic() - began < 5


HOST = """
import asyncio, sys
from isobox import DockerWorkspace

async def main():
    options = dict(image=sys.argv[1], engine=sys.argv[2], linger=float(sys.argv[4]))
    if sys.argv[3]:
        options["workspace_id"] = sys.argv[3]
    workspace = DockerWorkspace(**options)
    await workspace.initialize()
    await workspace.write("kept", b"x")
    process = await workspace.start("for i in $(seq 1000); do echo $i; sleep 0.1; done")
    print(process.id, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def killed_host(engine, image, identity, linger):
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, image, engine.url, identity, str(linger)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert host.stdout is not None
    with host:
        process = host.stdout.readline().decode().strip()
        host.send_signal(signal.SIGKILL)
    assert process
    return process


async def test_a_killed_hosts_commands_are_resumed(
    engine, python_image, made, identity
):
    running = await anyio.to_thread.run_sync(
        killed_host, engine, python_image, identity, 60
    )
    async with made(workspace_id=identity, linger=60) as workspace:
        assert workspace.arrival.how == "attached"
        process = await workspace.attach(running)
        seen = b""
        with anyio.fail_after(SOON):
            while b"\n15\n" not in seen:
                seen += await process.stdout.receive()
        assert seen.startswith(b"1\n2\n3\n")
        await process.aclose()


async def test_nothing_is_left_of_killed_hosts(engine, python_image, made):
    for _ in range(3):
        await anyio.to_thread.run_sync(killed_host, engine, python_image, "", 0.5)
    with anyio.fail_after(SOON):
        while engine.call("ps", "-q", "--filter", "label=isobox.workspace").stdout:
            await anyio.sleep(0.2)
    async with made():
        left = engine.containers()
        assert len(left) == 1
    assert engine.call("volume", "ls", "-q").stdout == ""


HOLDER = """
import asyncio, sys
from isobox import DockerWorkspace

async def main():
    workspace = DockerWorkspace(
        image=sys.argv[1], engine=sys.argv[2], linger=0.5, python="none"
    )
    await workspace.initialize()
    await workspace.start(sys.argv[3])
    print("ready", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""
HOLDS = {
    "stop": "kill -STOP -1; sleep 1000",
    "input": "exec 9>/proc/1/fd/0; sleep 1000",
}


@pytest.mark.parametrize("how", HOLDS)
async def test_no_command_of_a_shell_keeps_the_container(
    engine, busybox_image, made, how
):
    host = subprocess.Popen(
        [sys.executable, "-c", HOLDER, busybox_image, engine.url, HOLDS[how]],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert host.stdout is not None
    with host:
        assert await anyio.to_thread.run_sync(host.stdout.readline) == b"ready\n"
        host.send_signal(signal.SIGKILL)
    with anyio.fail_after(SOON):
        while engine.call("ps", "-q", "--filter", "label=isobox.workspace").stdout:
            await anyio.sleep(0.2)
    async with made():
        assert len(engine.containers()) == 1


async def test_limits_of_each_command_hold_without_python(made, busybox_image):
    limits = Limits(file_size=1 << 20, open_files=100)
    async with made(image=busybox_image, python="none", limits=limits) as workspace:
        result = await workspace.run("ulimit -n; ulimit -f")
        assert result.stdout == "100\n2048\n"
        filled = await workspace.run("dd if=/dev/zero of=f bs=65536 count=64")
        assert not filled.ok
        assert (await workspace.stat("f")).size == 1 << 20


async def test_the_first_process_without_python_is_nobodys(made, busybox_image):
    async with made(image=busybox_image, python="none") as workspace:
        for denied in ("kill -KILL 1", ": >/proc/1/fd/0", "cat /proc/1/environ"):
            assert (await workspace.run(denied)).exit_code
        result = await workspace.run("sleep 0 & exec id -u")
        assert result.stdout == "1000\n"


async def test_what_a_shells_commands_leave_behind_is_reaped(made, busybox_image):
    async with made(image=busybox_image, python="none") as workspace:
        await workspace.run("for i in 1 2 3 4 5; do (sleep 0.1 &) ; done")
        with anyio.fail_after(SOON):
            while (await workspace.run("ps -o stat | grep -c Z")).stdout != "0\n":
                await anyio.sleep(0.1)


STOPS = """
import os, signal
os.write(1, b"go\\n")
while True:
    try:
        os.kill(-1, signal.SIGSTOP)
    except OSError:
        pass
"""


async def test_transfers_end_whatever_is_stopped(made, tmp_path):
    async with made() as workspace:
        await workspace.write("stops.py", STOPS)
        ref = await workspace.snapshot()
        stopper = await workspace.start(["python3", "-u", "stops.py"])
        assert await stopper.stdout.receive() == b"go\n"
        calls = {
            "snapshot": workspace.snapshot,
            "download": lambda: workspace.download(".", tmp_path / "to"),
            "restore": lambda: workspace.restore(ref),
            "glob": lambda: workspace.glob("**/*"),
            "grep": lambda: workspace.grep("signal"),
        }
        for call in calls.values():
            with anyio.fail_after(SOON), contextlib.suppress(SandboxLostError):
                await call()
        await stopper.kill()
        assert (await workspace.run(["echo", "on"])).stdout == "on\n"


def test_blocking_code_comes_back_to_its_container(engine, python_image, identity):
    options = {"image": python_image, "engine": engine.url, "workspace_id": identity}
    first = sync.DockerWorkspace(**options)
    first.initialize()
    first.write("kept", "x")
    assert first.arrival.how == "created"
    first.detach()
    with sync.DockerWorkspace(**options) as workspace:
        assert workspace.arrival.how == "attached"
        assert workspace.read_text("kept") == "x"


CHANGES = {
    "user": {"user": "2000"},
    "read_only_root": {"read_only_root": False},
    "tmp": {"limits": Limits(tmp=8 * MiB)},
    "rlimits": {"limits": Limits(open_files=128)},
}


@pytest.mark.parametrize("changed", CHANGES)
async def test_what_cannot_change_is_made_anew(made, identity, changed):
    first = made(workspace_id=identity)
    await first.initialize()
    await first.write("kept", b"x")
    await first.detach()
    audit = MemorySink()
    async with made(workspace_id=identity, audit=audit, **CHANGES[changed]) as second:
        assert second.arrival.how == "recreated"
        assert second.arrival.because == (changed,)
        assert await second.read_bytes("kept") == b"x"
    told = [r for r in audit.records if "container" in str(r)]
    assert any("recreated" in str(record) and changed in str(record) for record in told)


async def test_limits_change_in_place(made, identity):
    first = made(workspace_id=identity)
    await first.initialize()
    running = await first.start(["sleep", "100"])
    await first.detach()
    limits = Limits(processes=99, memory=2048 * MiB)
    async with made(workspace_id=identity, limits=limits) as second:
        assert second.arrival.how == "updated"
        assert second.arrival.because == ("limits",)
        process = await second.attach(running.id)
        await process.aclose()
    first = made(workspace_id=identity, limits=Limits(cpus=0.5))
    await first.initialize()
    await first.detach()
    async with made(workspace_id=identity) as second:
        assert second.arrival.how == "recreated"


async def test_variables_and_timeouts_need_no_new_container(made, identity):
    first = made(workspace_id=identity, env={"A": "1"})
    await first.initialize()
    await first.detach()
    options = {"env": {"A": "2"}, "limits": Limits(timeout=5, output=100)}
    async with made(workspace_id=identity, **options) as second:
        assert second.arrival.how == "attached"
        assert (await second.run("echo $A")).stdout == "2\n"


def test_only_who_can_be_found_is_left(made):
    async def leave():
        async with made() as workspace:
            await workspace.detach()

    with pytest.raises(InvalidArgumentError, match="workspace_id"):
        anyio.run(leave)


HARM = {
    "stopped": ("stop",),
    "killed": ("kill",),
    "removed": ("rm", "--force"),
    "paused": ("pause",),
}


@pytest.mark.parametrize("harm", HARM)
async def test_what_is_lost_comes_back(engine, made, identity, harm):
    async with made(workspace_id=identity) as workspace:
        await workspace.write("kept", b"x")
        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:

                async def fly():
                    with pytest.raises(SandboxLostError) as caught:
                        await workspace.run(["sleep", "100"])
                    assert harm.removesuffix("ed")[:4] in str(caught.value) or (
                        harm == "killed"
                    )

                group.start_soon(fly)
                await anyio.sleep(0.3)
                await called(engine, *HARM[harm], workspace._sandbox.container)
        assert await workspace.read_bytes("kept") == b"x"
        assert (await workspace.run(["echo", "back"])).stdout == "back\n"
        how = {"removed": "created", "paused": "attached"}.get(harm, "restarted")
        assert workspace.arrival.how == how


async def test_a_container_out_of_memory_is_told(engine, made, identity):
    """The guest is what the kernel kills last; here it has no choice."""
    limits = Limits(memory=64 * MiB)
    async with made(workspace_id=identity, limits=limits) as workspace:
        await workspace.write("kept", b"x")
        container = workspace._sandbox.container
        pid = json.loads(engine.call("inspect", container).stdout)[0]["State"]["Pid"]
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        script = "import time; x = bytearray(80 << 20); time.sleep(9)"
        taken = f"echo 0 > /proc/self/oom_score_adj; python3 -c '{script}'"
        with anyio.fail_after(SOON), pytest.raises(SandboxLostError, match="memory"):
            await workspace.run(taken)
        assert await workspace.read_bytes("kept") == b"x"


async def test_without_an_id_what_is_lost_stays_lost(engine, made):
    async with made() as workspace:
        await called(engine, "kill", workspace._sandbox.container)
        for _ in range(2):
            with pytest.raises(SandboxLostError):
                await workspace.run(["true"])
        await workspace.reset()
        assert (await workspace.run(["true"])).ok


async def test_two_hosts_share_a_workspace(made, identity):
    async with made(workspace_id=identity) as first:
        second = made(workspace_id=identity)
        await second.initialize()
        assert second.arrival.how == "attached"
        await first.write("f", b"of the first")
        assert await second.read_bytes("f") == b"of the first"
        await second.detach()
        assert (await first.run(["true"])).ok


async def test_two_hosts_at_once_make_one_container(made, identity, engine):
    workspaces = [made(workspace_id=identity) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for workspace in workspaces:
            group.start_soon(workspace.initialize)
    containers = {each._sandbox.container for each in workspaces}
    assert len(containers) == 1
    for workspace in workspaces:
        await workspace.close()


@pytest.mark.parametrize("harm", HARM)
async def test_several_hosts_come_back_at_once(engine, made, identity, harm):
    first, *others = [made(workspace_id=identity) for _ in range(4)]
    for workspace in (first, *others):
        await workspace.initialize()
    await first.write("kept", b"x")
    await called(engine, *HARM[harm], first._sandbox.container)
    with anyio.fail_after(2 * SOON):
        # Whoever still speaks with the old one hears that it is gone.
        for workspace in (first, *others):
            with contextlib.suppress(SandboxLostError):
                await workspace.run(["true"])
        results = await asyncio.gather(
            *(each.read_bytes("kept") for each in (first, *others))
        )
    assert results == [b"x"] * 4
    assert len({each._sandbox.container for each in (first, *others)}) == 1
    for workspace in (first, *others):
        await workspace.close()


async def test_several_find_a_stopped_container_at_once(engine, made, identity):
    async with made(workspace_id=identity, read_only_root=False, user=0) as first:
        await first.run("echo hi > /usr/local/bin/tool")
        await called(engine, "stop", first._sandbox.container)
        hosts = [
            made(workspace_id=identity, read_only_root=False, user=0) for _ in range(4)
        ]
        with anyio.fail_after(2 * SOON):
            await asyncio.gather(*(each.initialize() for each in hosts))
        for each in hosts:
            # Started again and not made anew: its root is as it was.
            assert (await each.run("cat /usr/local/bin/tool")).stdout == "hi\n"
        hows = [each.arrival.how for each in hosts]
        assert sorted(hows) == ["attached"] * 3 + ["restarted"]
        for each in hosts:
            await each.close()
    names = (await called(engine, "ps", "-a", "--format={{.Names}}")).stdout
    assert "isobox.turn" not in names


async def test_a_host_that_died_in_its_turn_keeps_nobody_out(
    engine, made, identity, monkeypatch
):
    monkeypatch.setattr(life, "_STARTS", 3)
    async with made(workspace_id=identity) as workspace:
        await workspace.write("file", "kept")
        image = described(engine, workspace)["Config"]["Image"]
        name = described(engine, workspace)["Name"].lstrip("/")
        await called(engine, "stop", name)
        turn = f"isobox.turn.{identity}"
        mark = f"--label=isobox.turn={identity}"
        await called(engine, "create", f"--name={turn}", mark, image, "-")
        await until_back(workspace)
        assert await workspace.read_text("file") == "kept"
        assert workspace.arrival.how == "restarted"
    names = (await called(engine, "ps", "-a", "--format={{.Names}}")).stdout
    assert "isobox.turn" not in names


async def test_no_other_workspace_has_the_name_of_a_turn(engine, made, identity):
    async with (
        made(workspace_id=identity) as workspace,
        made(workspace_id=f"{identity}-turn") as other,
    ):
        await other.run("echo precious > /tmp/state", check=True)
        await called(engine, "kill", workspace._sandbox.container)
        await until_back(workspace)
        assert workspace.arrival.how == "restarted"
        assert (await other.run("cat /tmp/state")).stdout == "precious\n"


async def test_a_foreign_container_with_the_name_of_a_turn_stays(
    engine, made, identity
):
    name = f"isobox.turn.{identity}"
    async with made(workspace_id=identity) as workspace:
        await called(engine, "create", f"--name={name}", "isobox-test-python", "-")
        await called(engine, "kill", workspace._sandbox.container)
        with pytest.raises(InvalidArgumentError, match="not isobox's"):
            await until_back(workspace)
        await called(engine, "rm", name)
        await workspace.run("true", check=True)


async def until_back(workspace):
    """Call until no call is lost with the container."""
    with anyio.fail_after(SOON):
        while True:
            with contextlib.suppress(SandboxLostError):
                await workspace.run("true", check=True)
                return


async def test_nothing_runs_that_nobody_holds(engine, made, identity, monkeypatch):
    """A host that ends before it has the first process's input has started none."""
    asked = anyio.Event()

    async def attach(*_):
        asked.set()
        raise BackendUnavailableError("the host is gone", backend="docker")

    async with made(workspace_id=identity) as workspace:
        await workspace.write("file", "kept")
        await called(engine, "kill", workspace._sandbox.container)
        with monkeypatch.context() as patched:
            patched.setattr(Engine, "attach", attach)
            while not asked.is_set():
                with pytest.raises(SandboxLostError):
                    await workspace.run("true")
            running = await called(engine, "ps", "--quiet")
            assert running.stdout == ""
        assert await workspace.read_text("file") == "kept"


async def test_what_a_dead_host_left_at_a_volume_does_not_keep_its_files(
    engine, made, identity
):
    mount = f"--mount=type=volume,source=isobox-{identity},target=/workspace"
    mark = f"--label=isobox.hand={identity}"
    async with made(workspace_id=identity) as workspace:
        await workspace.write("secret", "of the first")
        await called(engine, "create", mount, mark, "isobox-test-python", "-")
    async with made(workspace_id=identity) as workspace:
        assert (await workspace.run("ls")).stdout == ""


async def test_files_that_could_not_be_removed_are_told(engine, made, identity):
    mount = f"--mount=type=volume,source=isobox-{identity},target=/workspace"
    workspace = made(workspace_id=identity)
    await workspace.initialize()
    created = await called(engine, "create", mount, "isobox-test-python", "-")
    with pytest.raises(SandboxLostError, match=f"isobox-{identity} .* still there"):
        await workspace.close()
    await called(engine, "rm", created.stdout.strip())
    await called(engine, "volume", "rm", f"isobox-{identity}")


class WithFile(DockerWorkspace):
    """A workspace that shows a file of its own."""

    def _spec(self):
        given = File(path="/etc/isobox-given", data=b"given")
        return replace(super()._spec(), files=(given,))


async def test_an_open_that_fails_takes_nothing_from_another_host(
    engine, python_image, identity
):
    options = {"image": python_image, "engine": engine.url, "workspace_id": identity}
    async with WithFile(**options) as workspace:
        with pytest.raises(BackendUnavailableError, match="runtime"):
            await WithFile(**options, runtime="no-such").initialize()
        await called(engine, "rm", "--force", f"isobox-{identity}")
        await until_back(workspace)
        assert (await workspace.run("cat /etc/isobox-given")).stdout == "given"


async def test_a_container_of_an_image_in_the_making_goes_when_it_is_over(engine, made):
    now = int(time.time())
    moments = {"over": now - 1000, "on": now + 1000, "odd": "9" * 5000}
    for name, until in moments.items():
        mark = f"--label=isobox.until={until}"
        options = ("--detach", "--network=none", f"--name={name}", mark)
        await called(engine, "run", *options, "isobox-test-python", "sleep", "1000")
    try:
        async with made():
            found = await called(engine, "ps", "--all", "--format={{.Names}}")
        names = set(found.stdout.split())
        assert names & moments.keys() == {"on", "odd"}
    finally:
        await called(engine, "rm", "--force", "on", "odd")


async def test_what_never_started_is_made_anew(engine, made, identity):
    """As if its host had died before the volume was handed over."""
    async with made(workspace_id=identity) as workspace:
        config = described(engine, workspace)
        await workspace.detach()
    name, labels = config["Name"].lstrip("/"), config["Config"]["Labels"]
    await called(engine, "rm", "--force", name)
    await called(engine, "volume", "rm", "--force", name)
    mark = f"isobox.workspace={identity}"
    await called(engine, "volume", "create", "--label", mark, name)
    flags = [f"--label={key}={value}" for key, value in labels.items()]
    mount = f"--mount=type=volume,source={name},target=/workspace"
    image = config["Config"]["Image"]
    await called(engine, "create", f"--name={name}", mount, *flags, image, "true")
    async with made(workspace_id=identity) as workspace:
        assert workspace.arrival.how == "recreated"
        assert (await workspace.run("touch a && ls")).stdout == "a\n"


async def test_hosts_that_want_it_otherwise_end_with_an_error_or_have_it(
    made, identity
):
    hosts = [
        made(workspace_id=identity, limits=Limits(tmp=size * MiB)) for size in (16, 32)
    ]
    ends = await asyncio.gather(
        *(each.initialize() for each in hosts), return_exceptions=True
    )
    for end in ends:
        assert end is None or isinstance(end, ConflictError | SandboxLostError), end
    assert None in ends
    for each in hosts:
        await each.close()


# -- copies ------------------------------------------------------------------------


async def test_a_fork_carries_what_was_installed(engine, made):
    async with made(read_only_root=False, user=0) as workspace:
        await workspace.run(
            "echo hi > /usr/local/bin/tool; chmod +x /usr/local/bin/tool"
        )
        await workspace.write("f", b"x")
        fork = await workspace.fork()
        async with fork:
            assert (await fork.run(["cat", "/usr/local/bin/tool"])).stdout == "hi\n"
            assert await fork.read_bytes("f") == b"x"
            await fork.reset()
            assert (await fork.run(["cat", "/usr/local/bin/tool"])).stdout == "hi\n"
    images = engine.call("images", "-q", "--filter", "label=isobox.anonymous=1")
    assert images.stdout == ""


# -- the engine --------------------------------------------------------------------


async def test_every_call_ends_when_the_engine_does(engine, made, identity):
    workspace = made(workspace_id=identity)
    await workspace.initialize()
    await workspace.write("kept", b"x")
    ends: list[object] = []

    async def fly():
        try:
            ends.append(await workspace.run("sleep 1; echo done", timeout=20))
        except IsoboxError as error:
            ends.append(error)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(fly)
            await anyio.sleep(0.5)
            await anyio.to_thread.run_sync(engine.end, signal.SIGKILL)
    assert len(ends) == 50
    with pytest.raises(SandboxLostError, match="engine"):
        await workspace.run(["true"])
    engine.start()
    assert await anyio.to_thread.run_sync(engine.answers)
    with anyio.fail_after(SOON):
        assert await workspace.read_bytes("kept") == b"x"
        assert (await workspace.run(["echo", "back"])).stdout == "back\n"
    await workspace.close()


async def test_an_engine_that_hangs_holds_up_no_call(engine, made, identity):
    async with made(workspace_id=identity) as workspace:
        os.kill(engine.pid, signal.SIGSTOP)
        try:
            with anyio.fail_after(60), pytest.raises(IsoboxError):
                await workspace.run(["sleep", "1"], timeout=2, check=True)
        finally:
            os.kill(engine.pid, signal.SIGCONT)
