"""The launcher, run against the real kernel."""

from __future__ import annotations

import ast
import os
import resource
import select
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.mounts import host_mounts

from isobox._linux import launch
from isobox._linux.launching import (
    FAILURE,
    IdMap,
    Scratch,
    launch_command,
    launch_spec,
)
from isobox._linux.seccomp import build
from isobox.errors import InvalidArgumentError


def words(text: str) -> list[str]:
    return text.split()


USER = 0x70000007
SOURCE = Path(launch.__file__)

VIEW = words("""
    --unshare-all --unshare-user --disable-userns --cap-drop ALL --uid 1000 --gid 1000
    --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib
    --symlink usr/lib64 /lib64 --proc /proc --dev /dev --chdir /workspace
""")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_bwrap = pytest.mark.skipif(
    not os.path.exists("/usr/bin/bwrap"), reason="needs bwrap"
)


def memory_file(data: bytes) -> int:
    fd = os.memfd_create("test")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class Launcher:
    """Runs commands through the launcher, over one directory of root's."""

    def __init__(self, workdir: Path, stage: str) -> None:
        self.workdir = workdir
        self.stage = stage
        self.fd = os.open(workdir, os.O_RDONLY | os.O_DIRECTORY)

    def spec(self, *argv: str, **options) -> bytes:
        options.setdefault("parent", os.getpid())
        options.setdefault("stage", self.stage)
        return launch_spec(argv, uid=USER, gid=USER, **options)

    def feed(self, spec: bytes, *more_fds: int) -> subprocess.CompletedProcess[str]:
        fd = memory_file(spec)
        try:
            return subprocess.run(
                launch_command(fd),
                pass_fds=(fd, self.fd, *more_fds),
                env={"SECRET": "of the host"},
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            os.close(fd)

    def run(self, *argv: str, **options) -> subprocess.CompletedProcess[str]:
        return self.feed(self.spec(*argv, **options))

    def in_sandbox(self, script: str, *, seccomp: bytes | None = None):
        argv = ["/usr/bin/bwrap", *VIEW, "--bind-fd", str(self.fd), "/workspace"]
        fds = []
        if seccomp is not None:
            fds.append(memory_file(seccomp))
            argv += ["--seccomp", str(fds[0])]
        spec = self.spec(*argv, "sh", "-c", script, idmaps=[IdMap(self.fd, 0, 0)])
        try:
            return self.feed(spec, *fds)
        finally:
            for fd in fds:
                os.close(fd)


@pytest.fixture
def launcher(tmp_path):
    workdir = tmp_path / "work"
    workdir.mkdir(mode=0o700)
    stage = tempfile.mkdtemp(dir="/run", prefix="isobox-test-")
    made = Launcher(workdir, stage)
    yield made
    os.close(made.fd)
    os.rmdir(stage)


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def test_runs_alone_on_old_pythons():
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 8))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported == {"ctypes", "os", "resource", "sys"}


@needs_root
@needs_bwrap
def test_files_made_by_the_sandbox_belong_to_the_owner_of_the_directory(launcher):
    (launcher.workdir / "before").write_text("by root\n")
    result = launcher.in_sandbox(
        "cat before && echo new > made && stat -c %u:%g made ."
    )
    assert (result.stderr, result.stdout) == ("", "by root\n1000:1000\n1000:1000\n")
    assert owner_and_mode(launcher.workdir / "made") == (0, 0, 0o644)
    assert owner_and_mode(launcher.workdir) == (0, 0, 0o700)


@needs_root
@needs_bwrap
def test_files_of_another_user_are_nobodys_and_stay_so(launcher):
    other = launcher.workdir / "other"
    other.write_text("secret")
    other.chmod(0o600)
    os.chown(other, 12345, 12345)
    result = launcher.in_sandbox("stat -c %u other; cat other; chmod 777 other")
    assert result.stdout == "65534\n"
    assert owner_and_mode(other) == (12345, 12345, 0o600)


@needs_root
@needs_bwrap
def test_the_filter_keeps_set_id_files_of_root_from_being_made(launcher):
    script = """
        cp /bin/true file; chmod 4755 file; chmod g+s file; install -m 6755 file other
        python3 -c '
import os
for call in (lambda: os.open("opened", os.O_CREAT | os.O_WRONLY, 0o4777),
             lambda: os.mknod("node", 0o104755)):
    try:
        call()
    except PermissionError:
        print("refused")
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
print(libc.syscall(437, -100, b"opened2", how, 24), os.strerror(ctypes.get_errno()))'
    """
    result = launcher.in_sandbox(script, seccomp=build())
    assert result.stdout == "refused\nrefused\n-1 Function not implemented\n"
    made = list(launcher.workdir.iterdir())
    assert launcher.workdir / "file" in made
    assert not [path for path in made if owner_and_mode(path)[2] & 0o6000]


@needs_root
@needs_bwrap
def test_without_the_filter_they_would_be_roots_outside(launcher):
    result = launcher.in_sandbox("cp /bin/true file && chmod 4755 file")
    assert result.returncode == 0
    assert owner_and_mode(launcher.workdir / "file") == (0, 0, 0o4755)


@needs_root
@needs_bwrap
def test_the_mount_is_nosuid_and_nodev_and_unknown_to_the_host(launcher):
    before = host_mounts()
    result = launcher.in_sandbox("grep ' /workspace ' /proc/self/mountinfo")
    options = result.stdout.split(" - ")[0].split()
    assert {"rw", "nosuid", "nodev", "idmapped"} <= set(options[5].split(","))
    assert host_mounts() == before
    assert os.listdir(launcher.stage) == []


@needs_root
def test_a_private_place_holds_so_many_bytes_and_files(launcher):
    fd = os.open(os.devnull, os.O_RDONLY)
    place = Scratch(fd, 1 << 20, 8, "1750")
    script = f"""
        cd /proc/self/fd/{fd} && stat -c '%u %g %a' . && ls -A
        for i in 1 2 3 4 5 6 7 8; do true > $i || echo $i; done
        head -c 2097152 /dev/zero > 1; stat -c %s 1
    """
    spec = launcher.spec("/bin/sh", "-c", script, scratches=[place])
    try:
        result = launcher.feed(spec, fd)
    finally:
        os.close(fd)
    assert result.stdout == f"{USER} {USER} 1750\n8\n1048576\n"
    assert result.stderr.count("No space left on device") == 2
    assert os.listdir(launcher.stage) == []


@needs_root
def test_what_it_executes_is_bare(launcher):
    assert launcher.run("/usr/bin/env").stdout == ""
    result = launcher.run("/bin/sh", "-c", "id -u; id -G; pwd")
    assert result.stdout == f"{USER}\n{USER}\n/\n"
    status = launcher.run("/bin/cat", "/proc/self/status").stdout
    fields = dict(line.split(":\t") for line in status.splitlines())
    assert fields["SigIgn"] == "0" * 16
    assert fields["CapEff"] == fields["CapPrm"] == "0" * 16
    assert fields["NoNewPrivs"] == "1"


@needs_root
def test_only_the_descriptors_of_the_caller_stay_open(launcher):
    result = launcher.run("/bin/ls", "/proc/self/fd", idmaps=[IdMap(launcher.fd, 0, 0)])
    # `ls` itself holds the first free one: the directory that it reads.
    assert set(result.stdout.split()) == {"0", "1", "2", "3", str(launcher.fd)}


@needs_root
def test_limits_are_set(launcher):
    result = launcher.run(
        "/bin/sh",
        "-c",
        "ulimit -n; ulimit -Hc; cat /proc/self/oom_score_adj",
        rlimits={resource.RLIMIT_NOFILE: (99, 99), resource.RLIMIT_CORE: (0, 0)},
        oom_score_adj=321,
    )
    assert result.stdout == "99\n0\n321\n"


@needs_root
def test_several_directories_with_owners_of_their_own(launcher, tmp_path):
    second = tmp_path / "second"
    second.mkdir(mode=0o700)
    os.chown(second, 4321, 4322)
    fd = os.open(second, os.O_RDONLY)
    script = f"touch /proc/self/fd/{launcher.fd}/a /proc/self/fd/{fd}/b"
    maps = [IdMap(launcher.fd, 0, 0), IdMap(fd, 4321, 4322)]
    result = launcher.feed(launcher.spec("/bin/sh", "-c", script, idmaps=maps), fd)
    os.close(fd)
    assert result.stderr == ""
    assert owner_and_mode(launcher.workdir / "a")[:2] == (0, 0)
    assert owner_and_mode(second / "b")[:2] == (4321, 4322)


@needs_root
def test_a_file_system_without_id_maps_is_named_as_the_reason(launcher):
    fd = os.open("/proc/sys", os.O_RDONLY)
    spec = launcher.spec("/bin/true", idmaps=[IdMap(fd, 0, 0)])
    result = launcher.feed(spec, fd)
    os.close(fd)
    assert result.returncode == 126
    assert result.stderr == (
        f"{FAILURE}id-map descriptor {fd}: Invalid argument (id-mapped mounts need "
        "Linux 5.12 and a file system that has them)\n"
    )


@needs_root
@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"parent": 1}, "tie to the parent: process 1 is not the parent"),
        ({"stage": "/nowhere"}, "cover /nowhere: No such file or directory"),
        (
            {"idmaps": [IdMap(999, 0, 0)]},
            "copy the mount of descriptor 999: Bad file descriptor",
        ),
        (
            {"rlimits": {999: (1, 1)}},
            "set resource limit 999: invalid resource specified",
        ),
        ({"oom_score_adj": 5000}, "set oom_score_adj: Invalid argument"),
    ],
)
def test_a_failure_is_one_line_that_names_the_step(launcher, change, line):
    options = {"idmaps": [IdMap(launcher.fd, 0, 0)]} | change
    result = launcher.run("/bin/true", **options)
    assert (result.returncode, result.stderr) == (126, f"{FAILURE}{line}\n")


@needs_root
def test_a_missing_program_is_named(launcher):
    result = launcher.run("/no/such")
    line = f"{FAILURE}execute /no/such: No such file or directory\n"
    assert (result.returncode, result.stderr) == (126, line)


@needs_root
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (b"", "the last field has no end"),
        (b"parent\0", "incomplete"),
        (b"user\x000\x000\0", "parent, user and exec must be there, and none be 0"),
        (b"surprise\0", "unknown directive b'surprise'"),
        (b"parent\0x\0", "invalid literal for int() with base 10: b'x'"),
    ],
)
def test_a_broken_spec_is_refused(launcher, spec, reason):
    result = launcher.feed(spec)
    assert result.stderr == f"{FAILURE}read the spec: {reason}\n"
    assert result.returncode == 126


@needs_root
def test_it_dies_with_its_parent(launcher, tmp_path):
    script = f"""
import os, subprocess, sys
sys.path[:0] = {sys.path!r}
from isobox._linux.launching import launch_command, launch_spec
fd = os.memfd_create("spec")
spec = launch_spec(["/bin/sh", "-c", "echo $$; exec sleep 60"], uid={USER}, gid={USER},
                   parent=os.getpid())
os.write(fd, spec)
os.lseek(fd, 0, 0)
subprocess.run(launch_command(fd), pass_fds=[fd])
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    ended = poll.poll(10_000)
    os.close(pidfd)
    assert ended


@needs_root
def test_it_enters_control_groups_and_keeps_none_open(launcher):
    reader, writer = os.pipe()
    script = f"test ! -e /proc/self/fd/{writer}"
    spec = launcher.spec("/bin/sh", "-c", script, groups=[writer])
    result = launcher.feed(spec, writer)
    os.close(writer)
    with open(reader, "rb") as entered:
        assert entered.read() == b"0"
    assert (result.stderr, result.returncode) == ("", 0)


@needs_root
def test_a_group_that_takes_nobody_is_the_reason(launcher):
    with open("/dev/full", "wb") as full:
        spec = launcher.spec("/bin/true", groups=[full.fileno()])
        result = launcher.feed(spec, full.fileno())
    assert result.stderr.startswith(f"{FAILURE}enter the control group: ")
    assert result.returncode == 126


@needs_root
def test_an_ordinary_user_enters_groups_and_stays_who_they_are():
    reader, writer = os.pipe()
    argv = ["/bin/sh", "-c", "id -u; readlink /proc/self/ns/mnt"]
    spec = memory_file(
        launch_spec(argv, uid=USER, gid=USER, parent=os.getpid(), groups=[writer])
    )
    result = subprocess.run(
        [
            *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"),
            *("/usr/bin/python3", "-I", "-S", "-c", SOURCE.read_text(), str(spec)),
        ],
        pass_fds=(spec, writer),
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(spec)
    os.close(writer)
    with open(reader, "rb") as entered:
        assert entered.read() == b"0"
    mounts = os.readlink("/proc/self/ns/mnt")
    assert (result.stdout, result.stderr) == (f"{USER}\n{mounts}\n", "")


def test_the_spec_refuses_root_and_nul():
    for argv, uid, gid in (
        (["/bin/true"], 0, 1),
        (["/bin/true"], 1, 0),
        (["/bin/true", "a\0b"], 1, 1),
        ([], 1, 1),
    ):
        with pytest.raises(InvalidArgumentError):
            launch_spec(argv, uid=uid, gid=gid, parent=1)


def test_the_spec_keeps_any_other_byte():
    spec = launch_spec(["/bin/\udcff", "", "ü\n"], uid=1, gid=2, parent=3)
    assert spec.endswith("exec\0/bin/\udcff\0\0ü\n\0".encode(errors="surrogateescape"))
