"""Less isolation, where no more is to be had: asked for, named, and measured."""

from __future__ import annotations

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
import pytest

from isobox import BubblewrapWorkspace
from isobox._backends.bubblewrap import binary, ladder, machine
from isobox._core.isolation import DIMENSIONS
from isobox._linux import confining, landlock
from isobox.abc import Limits
from isobox.errors import BackendUnavailableError, UnsupportedError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not os.path.exists("/usr/bin/bwrap"), reason="needs /usr/bin/bwrap"
    ),
    pytest.mark.skipif(landlock.abi() < 6, reason="needs Landlock of version 6"),
]

LESS = ("no_proc", "landlock")


@pytest.fixture(params=LESS)
def rung(request, monkeypatch):
    """The only rung of the ladder, as if the machine had no other."""
    monkeypatch.setattr(ladder, "RUNGS", (request.param,))
    return request.param


@pytest.fixture
def alone(monkeypatch):
    """Landlock and seccomp, without namespaces."""
    monkeypatch.setattr(ladder, "RUNGS", ("landlock",))


@pytest.fixture
def public_tmp():
    """A directory of the caller's that the sandbox's user could reach by name."""
    path = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    path.chmod(0o755)
    yield path
    subprocess.run(["rm", "-rf", str(path)], check=True)


def less(rung, **options):
    return BubblewrapWorkspace(min_isolation=rung, **options)


def blocked(monkeypatch, tmp_path, facts):
    """Put a bwrap in place that fails as it does where namespaces are blocked."""
    path = tmp_path / "bwrap"
    features = " ".join(binary._FEATURES)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && echo "{features} " && exit 0\n'
        'echo "bwrap: No permissions to create new namespace" >&2\nexit 1\n'
    )
    path.chmod(0o755)
    monkeypatch.setattr(binary, "_candidates", lambda: [str(path)])
    monkeypatch.setattr(machine, "facts", lambda: facts)


DOCKER = machine.Facts(container="docker", seccomp=2, masks=("/proc/sys",))


# -- what is said ----------------------------------------------------------------


@pytest.mark.parametrize("asked", ["full", "no_proc"])
async def test_less_is_never_taken_unasked(monkeypatch, tmp_path, asked):
    tmp_path.chmod(0o755)
    blocked(monkeypatch, tmp_path, DOCKER)
    with pytest.raises(BackendUnavailableError) as caught:
        await BubblewrapWorkspace(min_isolation=asked).initialize()
    error = caught.value
    assert "seccomp profile blocks user namespaces" in error.message
    assert 'min_isolation="landlock"' in error.message
    assert error.fix == (
        "docker run --security-opt seccomp=unconfined "
        "--security-opt systempaths=unconfined ..."
    )


async def test_less_is_taken_where_it_was_allowed(monkeypatch, tmp_path):
    blocked(monkeypatch, tmp_path, DOCKER)
    async with BubblewrapWorkspace(min_isolation="landlock") as workspace:
        assert workspace.isolation().process.mechanism.startswith("landlock: ")
        assert (await workspace.run("echo works")).stdout == "works\n"


async def test_more_is_taken_where_it_is_to_be_had():
    async with BubblewrapWorkspace(min_isolation="landlock") as workspace:
        assert workspace.isolation().process.level == "strong"
        assert (await workspace.run("ls /proc")).stdout.split()[0] == "1"


async def test_a_kernel_without_landlock_is_refused(monkeypatch, tmp_path):
    blocked(monkeypatch, tmp_path, replace(DOCKER, landlock=0))
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    with pytest.raises(BackendUnavailableError, match="it is not there") as caught:
        await BubblewrapWorkspace(min_isolation="landlock").initialize()
    assert "seccomp profile blocks" in caught.value.message
    assert "docker run" in caught.value.fix


async def test_an_old_landlock_needs_a_user_of_its_own(alone, monkeypatch):
    monkeypatch.setattr(landlock, "abi", lambda: 5)
    workspace = BubblewrapWorkspace(min_isolation="landlock")
    if os.geteuid() == 0:
        async with workspace:
            assert (await workspace.run("echo works")).stdout == "works\n"
    else:
        with pytest.raises(BackendUnavailableError, match="signals"):
            await workspace.initialize()


async def test_what_was_reached_is_said(rung):
    async with less(rung) as workspace:
        said = workspace.isolation()
    changed = {name for name in DIMENSIONS if said[name].mechanism.startswith(rung)}
    if rung == "no_proc":
        assert changed == {"process", "user_identity"}
        assert {said[name].level for name in changed} == {"strong"}
    else:
        assert changed == set(DIMENSIONS)
        assert {said[name].level for name in changed} == {"partial"}


async def test_protected_names_need_mounts(alone, public_tmp):
    if os.geteuid() == 0:
        os.chown(public_tmp, 65534, 65534)
    workspace = less("landlock", host_workdir=public_tmp)
    with pytest.raises(UnsupportedError, match="protected names"):
        await workspace.initialize()


async def test_a_mount_elsewhere_needs_mounts(alone, public_tmp):
    workspace = less("landlock", mounts=[(str(public_tmp), "/elsewhere")])
    with pytest.raises(UnsupportedError, match="only at its own path"):
        await workspace.initialize()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_a_directory_of_roots_is_not_worked_on(alone, public_tmp):
    workspace = less("landlock", host_workdir=public_tmp, protect=False)
    with pytest.raises(BackendUnavailableError, match="is root's") as caught:
        await workspace.initialize()
    assert f"chown -R 1000:1000 {public_tmp}" in caught.value.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_a_directory_of_another_is_worked_on_as_that_user(alone, public_tmp):
    os.chown(public_tmp, 65534, 65534)
    async with less("landlock", host_workdir=public_tmp, protect=False) as workspace:
        assert (await workspace.run("id -u; echo text > made")).stdout == "65534\n"
        assert workspace.isolation().tenant.level == "partial"
    assert (public_tmp / "made").stat().st_uid == 65534


async def test_a_private_view_is_worked_on(alone, public_tmp):
    (public_tmp / "file").write_text("old\n")
    async with less("landlock", host_workdir=public_tmp, mode="copy") as workspace:
        await workspace.run("echo new > file", check=True)
        assert (public_tmp / "file").read_text() == "old\n"
        await workspace.apply()
    assert (public_tmp / "file").read_text() == "new\n"


async def test_terminals_and_ports_need_namespaces(alone):
    async with less("landlock") as workspace:
        with pytest.raises(UnsupportedError, match="terminals"):
            await workspace.start(["cat"], tty=True)
        assert (await workspace.run("echo still there")).ok


# -- what works ------------------------------------------------------------------


async def test_commands_and_files_work(rung):
    async with less(rung) as workspace:
        await workspace.write("a/b.txt", "text")
        script = "cat a/b.txt > $TMPDIR/x; cat $TMPDIR/x; cp -r a $HOME/; ls $HOME"
        assert (await workspace.run(script)).stdout == "texta\n"
        assert (await workspace.run("mkdir c && mv a/b.txt c/ && ls c")).ok
        assert (await workspace.read_text("c/b.txt")) == "text"
        assert (await workspace.run(["python3", "-c", "print(1)"])).stdout == "1\n"


@pytest.mark.parametrize(
    "script",
    [
        "git init . && git -c user.name=a -c user.email=b@c commit --allow-empty -m x",
        "echo 'int main(void) { return 0; }' > a.c && cc a.c -o a && ./a",
        "printf 'all:\\n\\techo made > out\\n' > Makefile && make -s && cat out",
        "python3 -c 'import subprocess; subprocess.run([\"true\"], check=True)'",
        "echo text > f && tar -cf - f | (mkdir d && cd d && tar -xf -) && cmp f d/f",
        "rg --version || true; grep -r nothing . || true",
    ],
    ids=["git", "cc", "make", "python", "tar", "search"],
)
async def test_tools_work(rung, script):
    async with less(rung) as workspace:
        result = await workspace.run(script)
        assert result.ok, result.stderr


async def test_a_long_script_runs(rung):
    script = "#" * 120_000 + "\necho long; exit 3"
    async with less(rung) as workspace:
        result = await workspace.run(script)
        assert (result.exit_code, result.stdout) == (3, "long\n")


async def test_a_timeout_kills_every_descendant(rung):
    tree = "(setsid sleep 300 &); (setsid sh -c 'sleep 300 & wait' &); sleep 300"
    async with less(rung) as workspace:
        other = await workspace.start(["cat"], stdin=True)
        result = await workspace.run(tree, timeout=0.5)
        assert result.timed_out
        if rung == "landlock":  # which has a /proc to look into
            assert (await workspace.run(OWN_SLEEPERS)).stdout == "0\n"
        await other.write(b"not touched\n")
        assert await other.stdout.receive() == b"not touched\n"
        await other.kill()


OWN_SLEEPERS = (
    "for f in /proc/[0-9]*; do [ -O $f ] && tr '\\0' ' ' < $f/cmdline; echo; done "
    "2>/dev/null | grep -c '^sleep 300 '"
)


def users_own():
    if os.geteuid() == 0:
        return 0
    names = filter(str.isdigit, os.listdir("/proc"))
    return sum(uid_of(f"/proc/{name}") == os.geteuid() for name in names)


def uid_of(path):
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


async def test_a_fork_bomb_ends(rung):
    bomb = """python3 -c '
import os, time
end = time.time() + 30
while time.time() < end:
    try: os.fork()
    except OSError: pass
'"""
    # Without namespaces, those that the user runs elsewhere count as well.
    async with less(rung, limits=Limits(processes=60 + users_own())) as workspace:
        with anyio.fail_after(30):
            assert (await workspace.run(bomb, timeout=0.5)).timed_out
            assert (await workspace.run("echo alive")).stdout == "alive\n"


# -- what is held ----------------------------------------------------------------

TRIES = """
import ctypes, errno, json, os, signal, socket, sys
plan = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
found = {}
def attempt(name, function):
    try:
        function()
        found[name] = "reached"
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno, str(error.errno))
def read(path):
    with open(path, "rb") as file:
        file.read(1)
def write(path):
    with open(path, "ab"):
        pass
def call(function, *arguments):
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as sock:
        sock.settimeout(1)
        sock.connect(address)
def datagram_pair():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("read secret", lambda: read(plan["secret"]))
attempt("write secret", lambda: write(plan["secret"]))
attempt("truncate secret", lambda: os.truncate(plan["secret"], 0))
attempt("list its directory", lambda: os.listdir(os.path.dirname(plan["secret"])))
attempt("shadow", lambda: read("/etc/shadow"))
attempt("machine id", lambda: read("/etc/machine-id"))
attempt("root's home", lambda: os.listdir("/root"))
attempt("write /etc", lambda: write("/etc/isobox-ladder"))
attempt("write /usr", lambda: write("/usr/isobox-ladder"))
attempt("write /dev/shm", lambda: write(plan["shm"]))
attempt("tcp", lambda: connect(socket.AF_INET, ("127.0.0.1", plan["port"])))
attempt("udp", lambda: connect(socket.AF_INET, ("127.0.0.1", 53), socket.SOCK_DGRAM))
attempt("unix", lambda: connect(socket.AF_UNIX, plan["unix"]))
attempt("abstract", lambda: connect(socket.AF_UNIX, "\\0" + plan["abstract"]))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
def netlink():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.bind((0, 0))
attempt("netlink", netlink)
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("signal", lambda: os.kill(plan["victim"], 0))
attempt("environment", lambda: read("/proc/%d/environ" % plan["victim"]))
attempt("memory", lambda: read("/proc/%d/mem" % plan["victim"]))
attempt("its root", lambda: os.listdir("/proc/%d/root/" % plan["victim"]))
attempt("sysctl", lambda: write("/proc/sys/kernel/core_pattern"))
attempt("namespace", lambda: call(libc.unshare, 0x10000000))
attempt("mount", lambda: call(libc.mount, b"x", b"/tmp", b"tmpfs", 0, None))
attempt("shared memory", lambda: call(libc.shmat, 0, None, 0))
attempt("shmget", lambda: call(libc.shmget, 0x15B0, 4096, 0o1777))
limits = ctypes.create_string_buffer(16)
attempt("limits", lambda: call(libc.prlimit64, plan["victim"], 7, None, limits))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, plan["victim"], 19))
attempt("device", lambda: os.mknod("device", 0o020666, os.makedev(1, 3)))
print(json.dumps(found))
"""

#: Where a name leads inside namespaces to something of the sandbox's own.
OWN = {
    "no_proc": {"shmget", "write /dev/shm", "netlink", "udp"},
    "landlock": set(),
}


@pytest.fixture
def plan(public_tmp):
    """Decoys of the host: what a sandbox must not reach."""
    secret = public_tmp / "secret"
    secret.write_text("host-only")
    secret.chmod(0o666)
    name = f"isobox-ladder-{os.getpid()}"
    with (
        subprocess.Popen(["sleep", "60"], env={"SECRET": "host-only"}) as victim,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as path,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        path.bind(str(public_tmp / "socket"))
        (public_tmp / "socket").chmod(0o777)
        abstract.bind(f"\0{name}")
        path.listen()
        abstract.listen()
        yield {
            "secret": str(secret),
            "shm": f"/dev/shm/{name}",
            "port": tcp.getsockname()[1],
            "unix": str(public_tmp / "socket"),
            "abstract": name,
            "victim": victim.pid,
        }
        victim.kill()
    assert secret.read_text() == "host-only"


async def test_nothing_of_the_host_is_reached(rung, plan):
    async with less(rung) as workspace:
        result = await workspace.run(["python3", "-I", "-c", TRIES, json.dumps(plan)])
    assert result.ok, result.stderr
    found = json.loads(result.stdout)
    assert len(found) == TRIES.count("\nattempt(")
    reached = {name for name, outcome in found.items() if outcome == "reached"}
    assert reached <= OWN[rung], found
    assert not os.path.exists(plan["shm"])


async def test_two_sandboxes_do_not_reach_each_other(rung):
    async with less(rung) as one, less(rung) as other:
        await one.write("secret", "of one")
        sleeper = await one.start(["sleep", "60"])
        tries = f"cat {one._sandbox.root}/secret; kill -0 {sleeper.pid} && echo alive"
        if rung == "landlock":
            result = await other.run(tries)
            assert result.stdout == ""
        else:
            assert not (await other.run("cat /workspace/secret")).ok
        await sleeper.kill()


# -- the end ---------------------------------------------------------------------

HOST = """
import asyncio, sys
sys.path[:0] = {path!r}
from isobox import BubblewrapWorkspace
from isobox._backends.bubblewrap import ladder
ladder.RUNGS = ({rung!r},)
async def main():
    async with BubblewrapWorkspace(min_isolation={rung!r}) as workspace:
        await workspace.run("(setsid sleep {mark} &); setsid sleep {mark} & echo")
        print("ready", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def sleepers(mark):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if line == b"sleep\0%d\0" % mark:
            found.append(int(name))
    return found


def gone(mark):
    deadline = time.monotonic() + 10
    while sleepers(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_survives_the_host(rung, number):
    mark = 100_000 + os.getpid()
    host = HOST.format(path=sys.path, rung=rung, mark=mark)
    with subprocess.Popen([sys.executable, "-c", host], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        assert len(sleepers(mark)) == 2
        run.send_signal(number)
        run.wait()
    assert gone(mark)


async def test_nothing_survives_a_guest_that_is_killed_from_inside(rung):
    mark = 200_000 + os.getpid()
    # Every process of the sandbox that can be signalled, the guest included.
    every = "for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done"
    kill = every if rung == "landlock" else "kill -9 1"
    script = f"(setsid sleep {mark} &); setsid sleep {mark} & sleep 0.1; {kill}"
    async with less(rung) as workspace:
        if rung == "no_proc":
            assert (await workspace.run(script)).exit_code is not None
        else:
            with pytest.raises(Exception, match=r"lost|ended|closed|gone"):
                await workspace.run(script)
    assert gone(mark)


async def test_closing_leaves_nothing(rung):
    mark = 300_000 + os.getpid()
    async with less(rung) as workspace:
        root = workspace._sandbox.root
        await workspace.run(f"(setsid sleep {mark} &); echo")
        assert len(sleepers(mark)) == 1
    assert gone(mark)
    assert root == "/workspace" or not os.path.exists(root)


# -- pieces ----------------------------------------------------------------------

WHOLE = "         0          0 4294967295\n"


@pytest.mark.parametrize(
    ("id_map", "base", "size"),
    [
        (WHOLE, 0x70000000, 65536),
        ("0 1000 1\n1 100000 65536\n", 32769, 32768),
        ("0 100000 65536\n", 32768, 32768),
    ],
)
def test_user_ids_are_taken_from_those_that_are_there(id_map, base, size):
    found = ladder.uid_range(id_map)
    assert (found.base, found.size) == (base, size)


@pytest.mark.parametrize("id_map", ["0 1000 1\n", ""])
def test_where_there_is_only_root_there_is_no_sandbox(id_map):
    with pytest.raises(BackendUnavailableError, match="no user id besides"):
        ladder.uid_range(id_map)


def test_an_old_landlock_takes_less():
    assert confining.beside_namespaces(1) is None
    assert confining.everything(3).network == 0
    assert confining.everything(5).scopes == 0
    assert confining.everything(6).scopes == 3
    assert not confining.everything(4).files & confining.IOCTL_DEV
