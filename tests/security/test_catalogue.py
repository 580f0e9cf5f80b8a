"""Escapes that others have had, tried here; the security page lists them all."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

import isobox
from isobox import BubblewrapWorkspace, Limits, sync
from isobox._backends.bubblewrap import binary, processes
from isobox._backends.bubblewrap.plan import Plan
from isobox._linux import system
from isobox.errors import BackendUnavailableError, InvalidArgumentError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not os.path.exists("/usr/bin/bwrap"), reason="needs /usr/bin/bwrap"
    ),
]

SOURCE = Path(isobox.__file__).parent


@pytest.fixture
async def workspace():
    async with BubblewrapWorkspace() as opened:
        yield opened


async def python(workspace, script: str, *arguments: str):
    """Return what a script prints inside."""
    result = await workspace.run(["python3", "-c", script, *arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout


# -- configuration -------------------------------------------------------------

OPTIONS: dict[str, dict[str, object]] = {
    "nothing": {},
    "empty": {"mounts": (), "unprotected": (), "env": {}, "labels": {}},
    "debug": {"debug": True},
    "open": {"protect": False, "min_isolation": "landlock", "limits": Limits()},
}
CONNECT = """
import socket, sys
port, times = int(sys.argv[1]), int(sys.argv[2])
reached = 0
for _ in range(times):
    for address in (("127.0.0.1", port), ("192.0.2.1", 80), ("1.1.1.1", 53)):
        with socket.socket() as s:
            s.settimeout(1)
            reached += s.connect_ex(address) == 0
print(reached)
"""


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_no_option_permits_anything_else(tmp_path, options):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        async with BubblewrapWorkspace(tmp_path, **options) as workspace:
            assert await python(workspace, CONNECT, port, "1") == "0\n"
            links = await workspace.run("tail -n +3 /proc/net/dev | cut -d: -f1")
            assert links.stdout.split() == ["lo"]
            assert (await workspace.run("touch /etc/x /usr/x")).exit_code == 1
            status = await workspace.run("grep CapEff /proc/self/status")
            assert status.stdout.split()[1] == "0" * 16


async def test_a_thousand_connects_reach_nothing(workspace):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert await python(workspace, CONNECT, port, "334") == "0\n"


async def test_arguments_of_a_call_widen_nothing(workspace):
    result = await workspace.run(
        "touch here $HOME/x $TMPDIR/x /usr/bin/x; cd /root",
        cwd="/usr/share",
        env={"HOME": "/usr", "TMPDIR": "/etc", "LD_PRELOAD": "/workspace/x.so"},
    )
    assert result.stderr.count("Read-only file system") == 4
    assert result.exit_code != 0


async def test_what_one_command_exports_no_other_gets(workspace):
    await workspace.run("export PATH=/workspace EVIL=1; alias ls=evil; typeset -x A=1")
    result = await workspace.run("env; ls / >/dev/null")
    assert "EVIL" not in result.stdout
    assert result.exit_code == 0


async def test_a_mount_that_does_not_hold_is_no_start(tmp_path, monkeypatch):
    def forget(plan) -> None:
        plan.sealed.append(f"{system.ROOT}/.git")

    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(Plan, "_protect", forget)
    with pytest.raises(BackendUnavailableError, match="writable inside"):
        await BubblewrapWorkspace(tmp_path).initialize()


async def test_no_tool_has_a_switch_for_less(workspace):
    for tool in await workspace.list_tools():
        names = " ".join(tool.input_schema["properties"])
        assert not re.search("sandbox|isolat|unsafe|danger|protect|mount|user", names)


@pytest.mark.parametrize("words", ["git status", "git config x y", "sudo", "code ."])
async def test_no_words_of_a_command_permit_more(tmp_path, words):
    (tmp_path / ".git").mkdir()
    async with BubblewrapWorkspace(tmp_path) as workspace:
        result = await workspace.run(f"{words}; touch .git/x")
    assert "Read-only file system" in result.stderr
    assert os.listdir(tmp_path / ".git") == []


#: What else runs on the host, each with an argv of its own: `bwrap --help`, a
#: look at an interpreter, the mount of a private view, what plants listeners in a
#: network namespace, a command that a user names as a secret's source, what reads
#: scripts for a policy, what matches for the shell fallback, and a look at runsc;
#: one file names such calls alone.
STARTERS = {
    "_channel/start.py",
    "_backends/bubblewrap/binary.py",
    "_guest/bundle.py",
    "_linux/overlay.py",
    "_linux/planting.py",
    "_egress/sources.py",
    "_layers/reader.py",
    "_shell/aside.py",
    "_backends/gvisor/binary.py",
    "_policy/python_runs.py",
}


def test_one_place_starts_sandboxes():
    starts = re.compile(
        r"subprocess\.(Popen|run|call|check_)|create_subprocess|open_process\("
        r"|run_process\("
    )
    inside = ("testing/", "cli/", "_probe/")
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")
             if starts.search(path.read_text())}  # fmt: skip
    assert {path for path in found if not path.startswith(inside)} == STARTERS


# -- files ---------------------------------------------------------------------


async def test_a_link_in_the_workspace_is_no_source_of_a_mount(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").mkdir()
    (work / "data").symlink_to(tmp_path / "secret")
    workspace = BubblewrapWorkspace(work, mounts=[(str(work / "data"), "/data")])
    with pytest.raises(InvalidArgumentError, match="link in the workspace"):
        await workspace.initialize()


async def test_a_mount_is_read_only_and_cannot_be_linked_from(tmp_path):
    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    work.mkdir()
    (data / "file").write_text("theirs")
    mounts = [(str(data), "/data")]
    async with BubblewrapWorkspace(work, mounts=mounts) as workspace:
        result = await workspace.run(
            "ln /data/file x; ln /usr/bin/env y; touch /data/z"
        )
        assert result.stderr.count("Invalid cross-device link") == 2
        assert result.stderr.count("Read-only file system") == 1
    assert (data / "file").stat().st_nlink == 1


async def test_nothing_of_pid_1_is_reached(workspace):
    result = await workspace.run(
        "cd /proc/1; cat exe mem environ root/etc/passwd cwd/x maps; ls fd;"
        "echo > exe; echo > mem; echo evil > /proc/self/exe; cat /run/isobox/guest/x"
    )
    assert result.stdout == ""
    assert result.stderr.count("Permission denied") >= 6
    assert (await workspace.run("readlink /proc/self/cwd")).stdout == "/workspace\n"


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp", "/dev/shm"])
async def test_private_places_are_private_both_ways(workspace, place):
    name = f"isobox-test-{os.getpid()}"
    result = await workspace.run(f"ls -A {place}; touch {place}/{name}")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert not Path(place, name).exists()


async def test_the_home_is_private_and_empty(workspace):
    result = await workspace.run("cd; pwd; ls -A; echo evil > .bashrc; ls /home")
    assert result.stdout == "/home/agent\nagent\n"
    async with BubblewrapWorkspace() as other:
        assert (await other.run("ls -A ~")).stdout == ""


async def test_every_writable_place_has_a_size(workspace):
    mounts = (await workspace.run(["cat", "/proc/self/mountinfo"])).stdout
    for line in mounts.splitlines():
        place, options = line.split()[4:6]
        kind, _, super_options = line.partition(" - ")[2].split(" ", 2)
        if options.startswith("ro") or place == "/workspace":
            continue
        if kind == "tmpfs":
            assert "size=" in super_options
            assert "nr_inodes=" in super_options or os.geteuid() != 0
        else:
            assert re.match(r"/(proc|dev/[a-z]+)$", place)
    result = await workspace.run("touch /x /dev/x /run/x")
    assert result.stderr.count("Read-only file system") == 3


async def test_a_refused_write_names_the_path(tmp_path):
    (tmp_path / ".git").mkdir()
    async with BubblewrapWorkspace(tmp_path) as workspace:
        with pytest.raises(OSError, match=r"\.git/config"):
            await workspace.write(".git/config", "evil")
        with pytest.raises(OSError, match=r"\.vscode"):
            await workspace.remove(".vscode", recursive=True)


# -- what the host would execute -----------------------------------------------

POISON = """
git init -q . && cat >> .git/config <<END
[core]
    fsmonitor = touch {0}
    pager = touch {0}
    sshCommand = touch {0}
[filter "x"]
    clean = touch {0}; cat
    smudge = touch {0}; cat
[diff]
    external = touch {0}
END
echo '* filter=x diff=x' > .gitattributes; echo x > file; echo '*.o' > .gitignore
"""


@pytest.mark.skipif(not os.path.exists("/usr/bin/git"), reason="needs git")
@pytest.mark.parametrize("mode", ["live", "copy"])
async def test_a_poisoned_repository_runs_nothing_on_the_host(tmp_path, mode):
    marker, work = tmp_path / "marker", tmp_path / "work"
    work.mkdir()
    subprocess.run(
        ["/bin/sh", "-c", POISON.format(marker)],
        cwd=work,
        check=True,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"},
    )
    async with BubblewrapWorkspace(work, mode=mode) as workspace:
        await workspace.write("file", "changed")
        await workspace.scan(depth=None)
        await workspace.glob("**/*")
        await workspace.grep("changed")
        await workspace.restore(await workspace.snapshot())
        await workspace.download(".", tmp_path / "down")
        if mode == "copy":
            assert await workspace.diff()
            await workspace.apply()
    assert not marker.exists()


async def test_what_lies_in_the_working_directory_is_not_run(tmp_path, monkeypatch):
    marker = tmp_path / "marker"
    for name in ("bwrap", "python3", "sh", "env", "git", "mount"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text(f"open({str(marker)!r}, 'w')")
    (tmp_path / "isobox.toml").write_text("protect = false")
    (tmp_path / ".env").write_text("LD_PRELOAD=/workspace/evil.so")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    async with BubblewrapWorkspace(tmp_path) as workspace:
        result = await workspace.run("echo evil > .vscode/x; env")
        assert "Read-only file system" in result.stderr or ".vscode" in result.stderr
        assert "LD_PRELOAD" not in result.stdout
    monkeypatch.setattr(binary, "_SYSTEM", "/nonexistent/bwrap")
    assert not [path for path in binary._candidates() if not os.path.isabs(path)]
    assert not marker.exists()


# -- sockets -------------------------------------------------------------------

CALL = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    print(s.connect_ex(bytes.fromhex(sys.argv[1])))
"""


async def test_abstract_sockets_of_the_host_are_not_reached(workspace):
    name = f"\0isobox-test-{os.getpid()}".encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        assert await python(workspace, CALL, name.hex()) == "111\n"
        listed = (await workspace.run(["cat", "/proc/net/unix"])).stdout
        assert name[1:].decode() not in listed


async def test_no_socket_is_in_view(workspace):
    result = await workspace.run(
        "find / -path /proc -prune -o -type s -print 2>/dev/null; ls /run"
    )
    assert ".sock" not in result.stdout
    assert result.stdout.split() == ["isobox"]


async def test_a_socket_cannot_be_mounted(tmp_path_factory, monkeypatch):
    top = tmp_path_factory.mktemp("s")
    monkeypatch.chdir(top)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("docker.sock")
        mounts = [(str(top / "docker.sock"), "/docker.sock")]
        with pytest.raises(InvalidArgumentError, match="neither a directory nor a"):
            await BubblewrapWorkspace(mounts=mounts).initialize()


# -- the kernel ----------------------------------------------------------------


async def test_no_process_has_a_weaker_filter(workspace):
    result = await workspace.run(
        "sleep 9 & cat /proc/[0-9]*/status | grep -E '^Seccomp' | sort | uniq -c"
    )
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[1:] for line in lines] == [
        ["Seccomp:", "2"],
        ["Seccomp_filters:", "1"],
    ]


async def test_nobody_gains_privilege(workspace):
    result = await workspace.run(
        "grep -hE '^(Cap|NoNewPrivs)' /proc/[0-9]*/status | sort -u"
    )
    values = dict(line.split() for line in result.stdout.splitlines())
    assert values.pop("NoNewPrivs:") == "1"
    assert set(values.values()) == {"0" * 16}


TYPE = """
import errno, fcntl
for request in (0x5412, 0x541C, 0x5423):
    try:
        fcntl.ioctl(0, request, b"x" * 16)
        print("typed")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


async def test_nothing_is_typed_into_a_terminal(workspace):
    command = ["python3", "-c", TYPE]
    async with await workspace.start(command, tty=True) as process:
        assert (await process.stdout.read()).split() == [b"EPERM"] * 3


async def test_the_terminal_of_the_host_is_not_there(workspace):
    result = await workspace.run(
        "tty; cat < /dev/tty; ls /dev/pts; readlink /proc/1/fd/0"
    )
    assert result.stdout.split("\n")[:2] == ["not a tty", "ptmx"]
    assert "/dev/tty: No such device or address" in result.stderr


async def test_there_are_no_control_groups_and_no_sysfs(workspace):
    kinds = await workspace.run("sed 's/.* - //' /proc/self/mountinfo | cut -d' ' -f1")
    assert not {"cgroup", "cgroup2", "sysfs", "debugfs", "securityfs", "overlay"} & set(
        kinds.stdout.split()
    )
    assert (await workspace.run("ls /sys /sys/fs/cgroup")).exit_code != 0


#: Each namespace has its own, or the kernel asks for a capability as well.
OWN_SETTINGS = (
    r"/proc/sys/(fs/mqueue/|kernel/(auto_msgmni|msg\w+|sem|shm\w+|sem_next_id"
    r"|ns_last_pid|pid_max|domainname|hostname)$|net/|user/)"
)


async def test_no_kernel_setting_of_the_host_is_writable(workspace):
    found = await workspace.run(
        "find /proc/sys /proc/sysrq-trigger -type f -writable 2>/dev/null"
    )
    others = [p for p in found.stdout.split() if not re.match(OWN_SETTINGS, p)]
    assert others == []
    result = await workspace.run("echo '|/workspace/x' > /proc/sys/kernel/core_pattern")
    assert result.exit_code == 1


async def test_the_kernel_is_never_asked_as_root(workspace):
    tree = processes.below(workspace._sandbox._child.pid)
    assert len(tree) > 1
    for pid in [seen.pid for seen in tree]:
        status = Path(f"/proc/{pid}/status").read_text()
        uids = next(line for line in status.splitlines() if line.startswith("Uid:"))
        assert "0" not in uids.split()


async def test_no_descriptor_of_the_host_is_inherited(tmp_path):
    leaks = [os.open(tmp_path, os.O_RDONLY), os.open("/etc", os.O_PATH)]
    for fd in leaks:
        os.set_inheritable(fd, True)
    try:
        async with BubblewrapWorkspace() as workspace:
            shown = await python(
                workspace,
                "import os\n"
                "for n in range(3, 4096):\n"
                "    try: print(os.readlink(f'/proc/self/fd/{n}'))\n"
                "    except OSError: pass\n",
            )
            assert shown == ""
    finally:
        for fd in leaks:
            os.close(fd)


@pytest.mark.parametrize("name", ["--bind", "-c", "--", "--args", "--seccomp"])
async def test_no_word_is_an_option_of_ours(tmp_path, name):
    work = tmp_path / name
    work.mkdir()
    (work / name).write_text('#!/bin/sh\necho "$0|$*"\n')
    (work / name).chmod(0o755)
    options = {"env": {"PATH": "/workspace:/usr/bin:/bin", "--clearenv": name}}
    async with BubblewrapWorkspace(work, **options) as workspace:
        result = await workspace.run([name, "--bind", "/", "/", "--", name])
        assert result.stdout == f"/workspace/{name}|--bind / / -- {name}\n"
        assert (await workspace.run("ls /root")).exit_code != 0
        result = await workspace.run([f"{name}-that-is-not-there"])
        assert result.exit_code == 127


# -- processes -----------------------------------------------------------------


@pytest.mark.parametrize("fast", [True, False], ids=["at-once", "one-by-one"])
async def test_no_signal_from_inside_ends_the_sandbox(workspace, fast):
    numbers = sorted(set(signal.valid_signals()))
    script = "; ".join(f"kill -{number:d} 1" for number in numbers)
    for each in [script] if fast else script.split("; "):
        await workspace.run(each)
        assert (await workspace.run(["echo", "hi"])).stdout == "hi\n"


def test_a_sandbox_outlives_the_thread_that_opened_it():
    opened: list[sync.BubblewrapWorkspace] = []

    def open_one() -> None:
        workspace = sync.BubblewrapWorkspace()
        workspace.initialize()
        opened.append(workspace)

    thread = threading.Thread(target=open_one)
    thread.start()
    thread.join()
    [workspace] = opened
    try:
        assert workspace.run(["echo", "hi"]).stdout == "hi\n"
    finally:
        workspace.close()
