"""Ways out of containers that others have had, tried against a real engine."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import socket
import stat
import subprocess
import time
import uuid

import anyio
import pytest
from tests.engines import PYTHON_IMAGE

from isobox import DockerWorkspace, Limits
from isobox._backends.docker import remains
from isobox._backends.docker.engine import Engine, EngineError
from isobox._backends.docker.sources import Sources
from isobox.errors import (
    BackendUnavailableError,
    ConflictError,
    InvalidArgumentError,
    IsoboxError,
    SandboxLostError,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

UID = 4321


@pytest.fixture(autouse=True)
def _engine(docker_host, python_image):
    pass


@pytest.fixture
def workdir(tmp_path):
    """A directory that an ordinary user has."""
    directory = tmp_path / "work"
    directory.mkdir()
    os.chown(directory, UID, UID)
    return directory


@pytest.fixture
async def workspace(workdir):
    async with DockerWorkspace(workdir, image=PYTHON_IMAGE) as opened:
        yield opened


def inspected(engine, workspace):
    shown = engine.call("inspect", workspace._sandbox.container).stdout
    return json.loads(shown)[0]


async def tried(workspace, program, *arguments):
    """Run a program that prints what it reached, as JSON."""
    done = await workspace.run(["python3", "-c", program, *arguments], timeout=60)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def image_of(engine, name, *changes, files=()):
    """Make an image of the usual one, as whoever publishes one would."""
    made = engine.call("create", PYTHON_IMAGE, "-").stdout.strip()
    for source, target in files:
        engine.call("cp", "--archive", str(source), f"{made}:{target}")
    options = [word for change in changes for word in ("--change", change)]
    engine.call("commit", *options, made, name)
    engine.call("rm", made)
    return name


# The engine is not asked for files.


async def test_no_file_operation_is_a_copy_of_the_engine(engine, workspace, tmp_path):
    (tmp_path / "here").write_text("x")
    since = engine.call("info", "--format", "{{.SystemTime}}").stdout.strip()
    await workspace.write("a/b", b"c")
    assert await workspace.read_bytes("a/b") == b"c"
    await workspace.upload(tmp_path / "here", "there")
    await workspace.download("a", tmp_path / "back")
    await workspace.run(["true"])
    events = engine.call(
        *("events", "--since", since, "--until", str(int(time.time()) + 1)),
        *("--format", "{{.Action}}"),
    ).stdout.split()
    assert not {"archive-path", "extract-to-dir", "copy", "export"} & set(events)
    assert (tmp_path / "back" / "b").read_text() == "c"


async def test_a_link_planted_inside_leads_no_copy_out(workspace, tmp_path):
    (tmp_path / "secret").write_text("of the host")
    await workspace.run(["ln", "-s", str(tmp_path), "out"])
    await workspace.run(["ln", "-s", str(tmp_path / "secret"), "leak"])
    with pytest.raises(IsoboxError):
        await workspace.read_bytes("leak")
    with pytest.raises(IsoboxError):
        await workspace.read_bytes("out/secret")
    with contextlib.suppress(IsoboxError):
        await workspace.write("out/planted", b"x")
    assert not (tmp_path / "planted").exists()


# Mounts.


@pytest.mark.parametrize(
    "target", ["/workspace/in", "/proc/x", "/sys", "/dev/x", "/", "/run/x"]
)
async def test_no_mount_lies_where_commands_can_prepare_it(workdir, tmp_path, target):
    mounts = [(str(tmp_path), target)]
    workspace = DockerWorkspace(workdir, image=PYTHON_IMAGE, mounts=mounts)
    with pytest.raises(InvalidArgumentError):
        async with workspace:
            pass


async def test_a_directory_that_became_a_link_is_not_the_workspace(workdir, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(IsoboxError):
        async with DockerWorkspace(
            tmp_path / "link", image=PYTHON_IMAGE, user="1000"
        ) as opened:
            await opened.run(["touch", "reached"])
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "directory"])
async def test_what_is_in_the_workspace_is_no_source_of_a_mount(
    workdir, tmp_path, kind
):
    (tmp_path / "secret").mkdir()
    if kind == "link":
        (workdir / "data").symlink_to(tmp_path / "secret")
    else:
        (workdir / "data").mkdir()
    mounts = [(str(workdir / "data"), "/data")]
    with pytest.raises(InvalidArgumentError, match="is in the workspace"):
        async with DockerWorkspace(workdir, image=PYTHON_IMAGE, mounts=mounts):
            pass


async def test_nor_is_what_is_in_another_workspace(workspace, workdir, tmp_path):
    await workspace.run(["mkdir", "data"], check=True)
    (tmp_path / "mine").mkdir()
    os.chown(tmp_path / "mine", UID, UID)
    mounts = [(str(workdir / "data"), "/data")]
    with pytest.raises(InvalidArgumentError, match="directory of another workspace"):
        async with DockerWorkspace(
            tmp_path / "mine", image=PYTHON_IMAGE, mounts=mounts
        ):
            pass


@pytest.fixture
def places(tmp_path):
    """A directory, another with a secret, and what puts the other in its place."""
    shown, secret, aside = (tmp_path / each for each in ("shown", "secret", "aside"))
    for place in (shown, secret):
        place.mkdir()
        os.chown(place, UID, UID)
        (place / "which").write_text(place.name)

    def swap(kind):
        shown.rename(aside)
        if kind == "link":
            shown.symlink_to(secret)
        else:
            secret.rename(shown)

    def back(kind):
        if kind == "link":
            shown.unlink()
        else:
            shown.rename(secret)
        aside.rename(shown)

    return shown, swap, back


def showing(shown, target, workdir, **options):
    """A workspace that has a directory of the host at a path inside."""
    if target == "/workspace":
        return DockerWorkspace(shown, image=PYTHON_IMAGE, **options)
    mounts = [(str(shown), target)]
    return DockerWorkspace(workdir, image=PYTHON_IMAGE, mounts=mounts, **options)


@pytest.mark.parametrize("harm", ["kill", "rm"])
@pytest.mark.parametrize("kind", ["link", "directory"])
@pytest.mark.parametrize("target", ["/data", "/workspace"])
async def test_what_took_the_place_of_a_mounts_source_is_not_shown(
    engine, workdir, places, target, kind, harm
):
    shown, swap, back = places
    async with showing(shown, target, workdir, workspace_id="swap") as opened:
        options = ["--force"] if harm == "rm" else []
        engine.call(harm, *options, opened._sandbox.container)
        swap(kind)
        with pytest.raises((ConflictError, InvalidArgumentError)):
            await unless_lost(opened, ["cat", f"{target}/which"])
        back(kind)
        done = await opened.run(["cat", f"{target}/which"])
        assert done.stdout == "shown"


async def unless_lost(workspace, argv):
    """Run a command until it is not lost with the container."""
    with anyio.fail_after(30):
        while True:
            with contextlib.suppress(SandboxLostError):
                return await workspace.run(argv)


@pytest.mark.parametrize("runtime", [None, "runsc"])
@pytest.mark.parametrize("kind", ["link", "directory"])
@pytest.mark.parametrize("target", ["/data", "/workspace"])
async def test_nor_what_was_there_only_while_the_container_started(
    engine, workdir, places, monkeypatch, request, target, kind, runtime
):
    if runtime is not None:
        request.getfixturevalue("runsc")
    shown, swap, back = places
    start = Engine.start

    async def swapped(self, container):
        swap(kind)
        try:
            return await start(self, container)
        finally:
            back(kind)

    monkeypatch.setattr(Engine, "start", swapped)
    before = engine.containers()
    with pytest.raises(ConflictError, match="another than when"):
        async with showing(shown, target, workdir, runtime=runtime):
            pass
    assert engine.containers() == before


async def test_a_container_that_nobody_looked_into_is_made_anew(
    engine, workdir, places, monkeypatch
):
    """As if its host had died before it looked."""
    shown, swap, back = places
    start = Engine.start

    async def swapped(self, container):
        swap("link")
        try:
            return await start(self, container)
        finally:
            back("link")

    first = showing(shown, "/data", workdir, workspace_id="unseen")
    with monkeypatch.context() as patched:
        patched.setattr(Engine, "start", swapped)
        patched.setattr(Sources, "check_shown", lambda *_: None)
        await first.initialize()
        assert (await first.run(["cat", "/data/which"])).stdout == "secret"
        await first.detach()
    async with showing(shown, "/data", workdir, workspace_id="unseen") as opened:
        assert opened.arrival.how == "recreated"
        assert opened.arrival.because == ("mounts",)
        assert (await opened.run(["cat", "/data/which"])).stdout == "shown"


async def test_what_is_planted_on_the_images_path_is_not_run_by_isobox(engine, workdir):
    path = "/workspace/bin:/usr/local/bin:/usr/bin:/bin"
    name = image_of(engine, "path-in-the-workspace", f"ENV PATH={path}")
    planted = '#!/bin/sh\nid > /workspace/ran\nexec /usr/bin/env python3 "$@"\n'
    async with DockerWorkspace(workdir, image=name, workspace_id="planted") as opened:
        for program in ("python3", "sh", "cat"):
            await opened.write(f"bin/{program}", planted.encode())
        await opened.run("/bin/chmod 755 bin/*; /bin/chmod 777 .", check=True)
        async with contextlib.AsyncExitStack() as stack:
            again = DockerWorkspace(workdir, image=name, workspace_id="planted")
            await again.initialize()
            stack.push_async_callback(again.detach)
            assert again.arrival.how == "attached"
            assert not (workdir / "ran").exists()
            shown = await again.run(["/usr/bin/printenv", "PATH"])
            assert shown.stdout == f"{path}\n"


@pytest.mark.parametrize("place", ["socket", "directory", "root", "other"])
async def test_the_socket_of_the_engine_is_not_mounted(
    engine, workdir, tmp_path, place
):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "agent"))
        source = {
            "socket": engine.socket,
            "directory": engine.base,
            "root": "/",
            "other": tmp_path / "agent",
        }[place]
        mounts = [(str(source), "/mnt/it")]
        with pytest.raises(InvalidArgumentError):
            async with DockerWorkspace(workdir, image=PYTHON_IMAGE, mounts=mounts):
                pass


async def test_no_socket_of_the_host_is_inside(workspace):
    found = await workspace.run("find / -xdev -type s 2>/dev/null; true")
    assert found.stdout == ""


# Descriptors, and where commands start.

DESCRIPTORS = """
import json, os
kinds = [os.readlink("/proc/self/fd/%s" % fd) for fd in os.listdir("/proc/self/fd")
         if os.path.exists("/proc/self/fd/%s" % fd)]
opened = [each for each in kinds if not each.startswith(("pipe:", "socket:", "/proc"))]
print(json.dumps([opened, os.getcwd()]))
"""


async def test_no_descriptor_of_the_runtime_is_inherited(workspace):
    opened, here = await tried(workspace, DESCRIPTORS)
    assert set(opened) <= {"/dev/null"}
    assert here == "/workspace"


async def test_no_descriptor_of_a_process_is_a_place_to_start(workspace, tmp_path):
    (tmp_path / "marker-of-the-host").write_text("")
    for number in range(3, 24):
        for way in (f"/proc/self/fd/{number}", f"/proc/self/fd/{number}/../../.."):
            try:
                done = await workspace.run("pwd -P; ls", cwd=way)
            except IsoboxError:
                continue
            assert not done.ok or str(tmp_path) not in done.stdout
            assert "marker-of-the-host" not in done.stdout


# What is configured.


async def test_the_engine_is_told_to_hold_everything(engine, workspace):
    about = inspected(engine, workspace)
    host = about["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert not host["Privileged"]
    assert not host["Devices"]
    assert host["ReadonlyRootfs"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert not [each for each in host["SecurityOpt"] if "unconfined" in each]
    assert host["NetworkMode"] == "none"
    assert {host["PidMode"], host["UTSMode"], host["UsernsMode"]} == {""}
    assert host["IpcMode"] == "private"
    assert host["PidsLimit"] > 0
    assert about["Config"]["User"] == f"{UID}:{UID}"


HOSTILE = [
    "--privileged",
    "x --network=host",
    '{"Privileged": true}',
    "a\nENTRYPOINT x",
    "seccomp=unconfined",
]


@pytest.mark.parametrize("value", HOSTILE)
async def test_no_text_of_a_user_is_configuration(engine, workdir, value):
    options = {"env": {"TEXT": value}, "labels": {"text": value}}
    async with DockerWorkspace(workdir, image=PYTHON_IMAGE, **options) as opened:
        done = await opened.run(["printenv", "TEXT"])
        assert done.stdout == f"{value}\n"
        host = inspected(engine, opened)["HostConfig"]
    assert not host["Privileged"]
    assert host["NetworkMode"] == "none"


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", ["image", "runtime", "user"])
async def test_no_name_is_more_than_a_name(workdir, name, value):
    options = {"image": PYTHON_IMAGE, name: value}
    with pytest.raises(IsoboxError):
        async with DockerWorkspace(workdir, **options):
            pass


@pytest.mark.parametrize(
    "option", ["privileged", "cap_add", "security_opt", "network_mode", "devices"]
)
def test_there_is_no_option_for_less(option):
    with pytest.raises(TypeError, match=option):
        DockerWorkspace(image=PYTHON_IMAGE, **{option: True})


# The end of a command.


async def test_a_cancelled_command_is_gone_in_the_container(engine, workspace):
    with anyio.move_on_after(1):
        await workspace.run("setsid sleep 7654 & sleep 7654")
    container = workspace._sandbox.container
    assert "sleep 7654" not in engine.call("top", container).stdout


# The kernel's files.

CONTROL = """
import ctypes, glob, json, os
reached = []
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("/tmp/cg", exist_ok=True)
for kind in (b"cgroup", b"cgroup2", b"proc", b"sysfs", b"tmpfs"):
    which = b"memory" if kind == b"cgroup" else None
    if libc.mount(b"none", b"/tmp/cg", kind, 0, which) == 0:
        reached.append("mount %s" % kind.decode())
if libc.unshare(0x10000000 | 0x00020000) == 0:
    reached.append("unshare")
for base, directories, files in os.walk("/sys/fs/cgroup"):
    for name in ("release_agent", "notify_on_release", "cgroup.procs", "memory.max"):
        try:
            open(os.path.join(base, name), "r+").close()
            reached.append(os.path.join(base, name))
        except OSError:
            pass
    try:
        os.mkdir(os.path.join(base, "made"))
        reached.append(base)
    except OSError:
        pass
print(json.dumps(reached))
"""


async def test_no_control_group_is_written_or_mounted(workspace):
    assert await tried(workspace, CONTROL) == []


KERNEL = """
import json, sys
reached = []
for mode, paths in json.loads(sys.argv[1]).items():
    for path in paths:
        try:
            with open(path, mode) as file:
                if "+" in mode or file.read(1):
                    reached.append(path)
        except OSError:
            pass
print(json.dumps(reached))
"""

NEVER_READ = [
    *("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug"),
    *("/sys/firmware/acpi", "/proc/1/environ", "/proc/1/mem", "/proc/scsi/scsi"),
]
NEVER_WRITTEN = [
    *("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/1/mem"),
    *("/proc/sys/kernel/modprobe", "/proc/sys/vm/panic_on_oom"),
    *("/proc/irq/1/smp_affinity", "/sys/kernel/uevent_helper"),
]


async def test_what_the_kernel_shows_of_the_host_is_masked(workspace):
    plan = {"rb": NEVER_READ, "r+b": NEVER_WRITTEN}
    assert await tried(workspace, KERNEL, json.dumps(plan)) == []


STATUS = """
import json
with open("/proc/self/status") as file:
    pairs = dict(line.rstrip().split(":", 1) for line in file)
names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
print(json.dumps({name: int(pairs[name], 16) for name in names}))
"""


async def test_a_command_has_no_capability_and_can_get_none(workspace):
    held = await tried(workspace, STATUS)
    assert held.pop("NoNewPrivs") == 1
    assert held.pop("Seccomp") == 2
    assert set(held.values()) == {0}


async def test_a_set_id_program_of_the_image_gives_nothing(
    engine, workdir, tmp_path, busybox_tree
):
    tool = tmp_path / "busybox"
    subprocess.run(["cp", busybox_tree / "bin/busybox", tool], check=True)
    os.chown(tool, 0, 0)
    tool.chmod(0o4755)
    name = image_of(engine, "with-set-id", files=[(tool, "/busybox")])
    async with DockerWorkspace(workdir, image=name) as opened:
        mode = (await opened.run(["stat", "-c", "%a", "/busybox"])).stdout
        assert int(mode, 8) & stat.S_ISUID
        assert (await opened.run(["/busybox", "id", "-u"])).stdout == f"{UID}\n"


# Sockets without a file.

ABSTRACT = """
import json, socket, sys
reached = []
for name in json.loads(sys.argv[1]):
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.connect("\\0" + name)
        reached.append(name)
    except OSError:
        pass
print(json.dumps(reached))
"""


async def test_abstract_sockets_of_the_host_are_not_reached(workspace):
    name = f"isobox-test-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(f"\0{name}")
        ours.listen()
        lines = (await anyio.Path("/proc/net/unix").read_text()).splitlines()
        names = [line.partition("@")[2] for line in lines if "@" in line]
        assert name in names
        assert await tried(workspace, ABSTRACT, json.dumps(names)) == []


# The image's own text.

BAD_IMAGE = (
    'ENTRYPOINT ["/bin/false"]',
    'CMD ["/bin/false"]',
    "ENV LD_PRELOAD=/evil.so PYTHONPATH=/evil PYTHONSTARTUP=/evil PYTHONHOME=/evil",
    "ENV HOME=/evil TEXT=kept BASH_ENV=/evil ENV=/evil",
    "LABEL isobox.workspace=other isobox.key=known isobox.anonymous=1",
    "USER root",
    "WORKDIR /evil",
    "VOLUME /workspace /tmp /etc",
    "HEALTHCHECK CMD touch /workspace/ran",
)


async def test_text_of_an_image_changes_nothing_but_variables_of_commands(
    engine, workdir
):
    name = image_of(engine, "hostile-text", *BAD_IMAGE)
    async with DockerWorkspace(workdir, image=name) as opened:
        done = await opened.run(["printenv", "TEXT"])
        assert done.stdout == "kept\n"
        assert (await opened.run(["id", "-u"])).stdout == f"{UID}\n"
        about = inspected(engine, opened)
        process = engine.call("top", opened._sandbox.container, "-o", "pid").stdout
        environ = [
            await anyio.Path(f"/proc/{pid}/environ").read_bytes()
            for pid in process.split()[1:2]
        ]
    assert about["Config"]["Labels"]["isobox.key"] != "known"
    assert about["Config"]["Labels"]["isobox.workspace"] != "other"
    assert not about["Config"]["Entrypoint"]
    assert environ
    for name in (b"LD_PRELOAD", b"PYTHONPATH", b"PYTHONHOME", b"BASH_ENV"):
        assert all(name + b"=/" not in each for each in environ)
    assert list(workdir.iterdir()) == []


async def test_a_number_is_a_number_whatever_the_image_calls_it(
    engine, workdir, tmp_path
):
    name = with_users(
        engine,
        tmp_path,
        f"{UID}:x:0:0::/:/bin/sh\nme:x:{UID}:0::/:/bin/sh\n",
        f"root:x:0:me,{UID}\nshadow:x:42:me,{UID}\n",
    )
    async with DockerWorkspace(workdir, image=name) as opened:
        shown = await opened.run("id -u; id -g; id -G; touch made")
    assert shown.stdout == f"{UID}\n{UID}\n{UID}\n"
    about = (workdir / "made").stat()
    assert (about.st_uid, about.st_gid) == (UID, UID)


@pytest.mark.parametrize("python", ["auto", "none"])
async def test_no_image_puts_commands_into_a_group(engine, workdir, tmp_path, python):
    users = f"root:x:0:0::/:/bin/sh\nme:x:{UID}:{UID}::/:/bin/sh\n"
    name = with_users(engine, tmp_path, users, f"root:x:0:\n{UID}:x:42:\n")
    before = set(engine.containers())
    with pytest.raises(BackendUnavailableError, match=r"/etc/group .* \[42\]"):
        async with DockerWorkspace(workdir, image=name, python=python):
            pass
    # Those of tests before may have gone meanwhile.
    assert set(engine.containers()) <= before


def with_users(engine, directory, users, groups):
    for name, text in (("passwd", users), ("group", groups)):
        (directory / name).write_text(text)
        os.chown(directory / name, 0, 0)
    files = [(directory / name, f"/etc/{name}") for name in ("passwd", "group")]
    return image_of(engine, f"users-{uuid.uuid4().hex[:8]}", files=files)


async def test_root_is_never_taken_unasked(engine, tmp_path):
    name = image_of(engine, "of-root", "USER 0:0")
    async with DockerWorkspace(image=name) as opened:
        assert (await opened.run(["id", "-u"])).stdout != "0\n"
    mine = tmp_path / "mine"
    mine.mkdir()
    with pytest.raises(InvalidArgumentError, match="belongs to root"):
        async with DockerWorkspace(mine, image=PYTHON_IMAGE):
            pass


# Limits.

MANY = """
import json, subprocess
children = []
try:
    for _ in range(400):
        children.append(subprocess.Popen(["sleep", "30"]))
except OSError:
    pass
print(json.dumps(len(children)))
for child in children:
    child.kill()
"""

HOG = """
held = []
while True:
    held.append(bytearray(b"x" * (8 << 20)))
"""


async def test_processes_and_memory_end_in_the_container(workdir):
    limits = Limits(processes=60, memory=128 << 20)
    async with DockerWorkspace(workdir, image=PYTHON_IMAGE, limits=limits) as opened:
        assert await tried(opened, MANY) < 100
        with anyio.fail_after(60):
            hog = await opened.run(["python3", "-c", HOG])
        assert hog.exit_code != 0
        assert (await opened.run(["echo", "on"])).stdout == "on\n"


SIZES = """
import json, os
found = {}
with open("/proc/self/mounts") as file:
    for line in file:
        _, place, kind, options, *_ = line.split()
        if kind == "tmpfs" and os.path.isdir(place) and os.access(place, os.W_OK):
            found[place] = options
print(json.dumps(found))
"""


async def test_every_private_place_has_a_size(workspace):
    found = await tried(workspace, SIZES)
    assert {"/tmp", "/home/agent", "/dev/shm"} <= set(found)
    assert all("size=" in options for options in found.values())
    assert all("nr_inodes=" in options for options in found.values())


EMPTY = """
import json
made = 0
try:
    while made < 20_000:
        open(f"/tmp/{made}", "w").close()
        made += 1
except OSError:
    pass
print(json.dumps(made))
"""


async def test_empty_files_do_not_take_the_memory(workdir):
    limits = Limits(memory=64 << 20, tmp=8 << 20)
    async with DockerWorkspace(workdir, image=PYTHON_IMAGE, limits=limits) as opened:
        assert 2000 < await tried(opened, EMPTY) < 2100
        assert (await opened.run(["echo", "on"])).stdout == "on\n"
        await opened.remove("/tmp/1")
        await opened.write("/tmp/again", b"x")


# Whoever runs commands has their uid.

#: All of it that one process can do to another of its user.
STARVE = """
import json, os, resource
reached = []
def attempt(call, *arguments):
    try:
        call(*arguments)
        reached.append([call.__name__, arguments[0]])
    except PermissionError:
        pass
idle = os.sched_param(0)
for pid in (1, os.getppid()):
    attempt(resource.prlimit, pid, resource.RLIMIT_NOFILE, (3, 3))
    attempt(os.sched_setscheduler, pid, os.SCHED_IDLE, idle)
    attempt(os.setpriority, os.PRIO_PROCESS, pid, 19)
attempt(os.setpriority, os.PRIO_USER, 0, 19)
attempt(os.sched_setaffinity, 1, {min(os.sched_getaffinity(0))})
print(json.dumps(reached))
"""


async def test_a_command_neither_starves_nor_disarms_the_guest(workspace):
    assert "cannot change limits" in workspace.isolation().process.mechanism
    assert await tried(workspace, STARVE) == []
    with anyio.fail_after(30):
        late = await workspace.run("sleep 600 & sleep 600", timeout=0.5)
    assert late.timed_out
    assert (await workspace.run("ulimit -n")).stdout != "3\n"


async def test_nor_does_it_on_the_kernel_of_gvisor(workdir, runsc):
    assert runsc
    async with DockerWorkspace(workdir, image=PYTHON_IMAGE, runtime="runsc") as opened:
        assert "cannot change limits" in opened.isolation().process.mechanism
        assert await tried(opened, STARVE) == []
        await opened.run("kill -9 1; kill -STOP 1")
        assert (await opened.run(["echo", "on"])).stdout == "on\n"


#: `int 0x80` asks the kernel by the numbers of 32 bits.
OLD = """
import ctypes, json, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("53 b861000000 31db b901000000 ba13000000 cd80 5b c3"))
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(json.dumps(ctypes.CFUNCTYPE(ctypes.c_int)(address)()))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls of x86_64 alone")
async def test_calls_of_32_bits_are_no_way_around(workspace):
    # setpriority(PRIO_PROCESS, 1, 19)
    assert await tried(workspace, OLD) == -errno.EPERM


async def test_programs_change_limits_and_scheduling_of_their_own(workspace):
    shown = await workspace.run(
        "nice -n 5 nice; taskset -c 0 nproc; taskset -p 1 $$ >/dev/null; nproc;"
        "chrt -b 0 echo batch; ionice -c 3 echo idle; ulimit -n 99; ulimit -n;"
        "prlimit --nofile=98 sh -c 'ulimit -n'"
    )
    assert shown.stdout.split() == ["5", "1", "1", "batch", "idle", "99", "98"]
    assert shown.stderr == ""


async def test_what_the_engine_cannot_kill_is_killed(engine, workdir, monkeypatch):
    real = Engine._remove
    asked = []

    async def hanging(self, container):
        asked.append(container)
        if len(asked) == 1:
            raise EngineError(500, "did not receive an exit event")
        await real(self, container)

    workspace = DockerWorkspace(workdir, image=PYTHON_IMAGE)
    await workspace.initialize()
    await workspace.start(["sleep", "600"])
    monkeypatch.setattr(Engine, "_remove", hanging)
    container = workspace._sandbox.container
    await workspace.close()
    assert asked == [container, container]
    assert container not in engine.containers()


def test_only_what_is_in_the_container_is_killed(engine):
    options = ("run", "--detach", "--network", "none", PYTHON_IMAGE)
    script = "sleep 600 & setsid sleep 600 & wait"
    made = [engine.call(*options, "sh", "-c", script) for _ in range(2)]
    first, second = (each.stdout.strip() for each in made)
    shown = [engine.call("inspect", each).stdout for each in (first, second)]
    pids = [json.loads(each)[0]["State"]["Pid"] for each in shown]
    try:
        assert not remains.kill(first, pids[1])
        assert not remains.kill(first, os.getpid())
        assert not remains.kill("", pids[0])
        assert engine.call("ps", "--quiet", "--no-trunc").stdout.count("\n") >= 2
        assert remains.kill(first, pids[0])
        assert engine.call("wait", first).stdout == "137\n"
        assert second in engine.call("ps", "--quiet", "--no-trunc").stdout
    finally:
        engine.call("rm", "--force", first, second)


# Other users of the engine.


async def test_a_container_of_somebody_else_is_neither_used_nor_removed(engine):
    name = f"w{uuid.uuid4().hex[:12]}"
    options = ("--network", "none", "--name", f"isobox-{name}")
    theirs = engine.call("run", "--detach", *options, PYTHON_IMAGE, "sleep", "600")
    try:
        with pytest.raises(IsoboxError, match=f"isobox-{name}"):
            async with DockerWorkspace(image=PYTHON_IMAGE, workspace_id=name) as opened:
                await opened.run(["true"])
        state = "{{.State.Running}}"
        shown = engine.call("inspect", "--format", state, theirs.stdout.strip())
        assert shown.stdout == "true\n"
    finally:
        engine.call("rm", "--force", theirs.stdout.strip())
