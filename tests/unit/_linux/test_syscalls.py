from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys

import pytest

from isobox._linux import syscalls
from isobox._linux.syscalls import openat2
from isobox.errors import BackendUnavailableError

CLONE_NEWNET = 0x40000000


@pytest.fixture
def root(tmp_path):
    (tmp_path / "inside").write_text("inside")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("..")
    fd = os.open(tmp_path, os.O_PATH)
    yield fd
    os.close(fd)


def test_openat2_opens_what_is_below(root):
    fd = openat2(root, "inside", os.O_RDONLY, resolve=syscalls.RESOLVE_BENEATH)
    assert os.read(fd, 10) == b"inside"
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_openat2_makes_files_with_their_mode(root, tmp_path):
    os.close(openat2(root, b"made", os.O_CREAT | os.O_WRONLY, 0o600))
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("path", "resolve", "code"),
    [
        ("out", syscalls.RESOLVE_BENEATH, errno.EXDEV),
        ("../x", syscalls.RESOLVE_BENEATH, errno.EXDEV),
        ("up/x", syscalls.RESOLVE_BENEATH, errno.EXDEV),
        ("out", syscalls.RESOLVE_NO_SYMLINKS, errno.ELOOP),
        ("out", syscalls.RESOLVE_IN_ROOT, errno.ENOENT),
        ("/proc/self/root", syscalls.RESOLVE_NO_MAGICLINKS, errno.ELOOP),
        ("/proc/self", syscalls.RESOLVE_NO_XDEV, errno.EXDEV),
    ],
)
def test_openat2_keeps_its_rules(root, path, resolve, code):
    with pytest.raises(OSError, match=os.strerror(code)):
        openat2(root, path, os.O_RDONLY, resolve=resolve)


def test_openat2_refuses_a_nul(root):
    with pytest.raises(ValueError, match="null"):
        openat2(root, "inside\0x", os.O_RDONLY)


def test_a_call_that_fails_raises_its_errno():
    with pytest.raises(FileNotFoundError):
        openat2(-1, "/no/such", os.O_RDONLY)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        syscalls.syscall(0xFFFF)


def test_prctl_reads_and_writes():
    name = ctypes.create_string_buffer(16)
    assert syscalls.prctl(16, ctypes.addressof(name)) == 0  # PR_GET_NAME
    assert name.value
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        syscalls.prctl(0x7FFF)


def test_pidfd_kill_ends_a_process_once():
    with subprocess.Popen(["sleep", "60"]) as child:
        pidfd = syscalls.pidfd_open(child.pid)
        assert syscalls.pidfd_kill(pidfd)
        assert child.wait() == -9
        assert not syscalls.pidfd_kill(pidfd)
        os.close(pidfd)
    with pytest.raises(ProcessLookupError):
        syscalls.pidfd_open(child.pid)


def test_namespaces_are_left_and_entered():
    script = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from isobox._linux.syscalls import setns, unshare
def here():
    return os.stat("/proc/self/ns/net").st_ino
try:
    unshare(0x10000000 if os.geteuid() else {CLONE_NEWNET})
    if os.geteuid():
        unshare({CLONE_NEWNET})
except PermissionError:
    print("not permitted")
    sys.exit()
first, fd = here(), os.open("/proc/self/ns/net", os.O_RDONLY)
unshare({CLONE_NEWNET})
assert here() != first
setns(fd, {CLONE_NEWNET})
assert here() == first
try:
    setns(fd, 0x20000)
except OSError as error:
    print(error.strerror)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    if run.stdout == "not permitted\n":
        pytest.skip("this machine lets nobody make a network namespace")
    assert run.stdout == "Invalid argument\n"


def test_a_foreign_architecture_is_named(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(BackendUnavailableError, match="riscv64"):
        syscalls.architecture()
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert syscalls.architecture() == "aarch64"
