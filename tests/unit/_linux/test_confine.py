"""The program that takes rights away, run against the real kernel."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile

import pytest

from isobox._linux import confining, landlock
from isobox._linux.confining import FAILURE, confine_command, confine_spec
from isobox._linux.seccomp import without_namespaces
from isobox.errors import InvalidArgumentError

needs_landlock = pytest.mark.skipif(
    landlock.abi() < 6, reason="needs Landlock of version 6"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def memory_file(data: bytes) -> int:
    fd = os.memfd_create("test")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def run(spec: bytes, *fds: int) -> subprocess.CompletedProcess[str]:
    fd = memory_file(spec)
    try:
        return subprocess.run(
            confine_command(fd, python="/usr/bin/python3"),
            pass_fds=(fd, *fds),
            env={"SECRET": "of the host"},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    finally:
        os.close(fd)


def confined(*argv: str, rules=None, **options) -> subprocess.CompletedProcess[str]:
    return run(confine_spec(argv, rules=rules, **options))


def test_it_stands_alone():
    tree = ast.parse(confining.SOURCE.read_text())
    imported = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported <= set(sys.stdlib_module_names)
    assert {
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    } == {"__future__"}


def test_the_environment_is_not_passed_on():
    result = confined("/usr/bin/env")
    assert (result.returncode, result.stdout) == (0, "")


def test_no_privilege_is_gained():
    result = confined("/usr/bin/grep", "NoNewPrivs", "/proc/self/status")
    assert result.stdout.split() == ["NoNewPrivs:", "1"]


@needs_landlock
def test_rules_hold_and_what_is_allowed_works():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        rules = confining.everything(landlock.abi())
        rules.allow(
            confining.READ, "/usr", "/lib64", "/lib", "/bin", "/etc/ld.so.cache"
        )
        rules.allow(rules.files, folder)
        rules.allow(confining.USE, "/dev/null")
        script = (
            f"echo a > {folder}/a && mkdir {folder}/b && mv {folder}/a {folder}/b/ && "
            "echo works > /dev/null && echo yes; cat /etc/passwd; echo > /tmp/x"
        )
        result = confined("/bin/sh", "-c", script, rules=rules)
    assert result.stdout == "yes\n"
    assert result.stderr.count("Permission denied") == 2


@needs_landlock
def test_beside_namespaces_only_devices_and_mounts_are_taken():
    rules = confining.beside_namespaces(landlock.abi())
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/b")
        script = f"cd {folder} && echo x > a && mv a b/ && cat b/a; mknod n c 1 3"
        result = confined("/bin/sh", "-c", script, rules=rules)
    assert result.stdout == "x\n"
    assert "mknod: n: " in result.stderr


def test_filters_hold():
    code = memory_file(without_namespaces())
    script = "import socket; socket.socket()"
    spec = confine_spec(["/usr/bin/python3", "-c", script], rules=None, filters=[code])
    result = run(spec, code)
    os.close(code)
    assert "Address family not supported" in result.stderr


@needs_root
def test_it_becomes_the_user_and_no_other():
    result = confined("/usr/bin/id", user=0x70000007)
    assert result.stdout.split()[0] == "uid=1879048199"
    assert result.stdout.split()[2] == "groups=1879048199"


@needs_root
def test_a_directory_that_the_user_cannot_enter_is_named():
    with tempfile.TemporaryDirectory() as folder:
        result = confined("/bin/true", user=0x70000007, enter=folder)
    assert result.returncode == 126
    assert result.stderr == (
        f"{FAILURE}enter {folder} as user 1879048199: Permission denied\n"
    )


def test_the_keeper_passes_the_status_on_and_leaves_nothing():
    mark = f"{40_000 + os.getpid()}"
    script = f"(setsid sleep {mark} > /dev/null 2>&1 &); exit 3"
    result = confined("/bin/sh", "-c", script, keep=os.getpid())
    assert result.returncode == 3
    left = subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False)
    assert left.returncode == 1


def test_a_keeper_with_another_parent_does_not_stay():
    result = confined("/bin/true", keep=1)
    assert result.returncode == 126
    assert result.stderr == f"{FAILURE}become a keeper: process 1 is not the parent\n"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (b"exec", "the last field has no end"),
        (b"", "the last field has no end"),
        (b"user\x005\x005\0", "exec must be there"),
        (b"user\x000\x000\0exec\0/bin/true\0", "user must not be 0"),
        (b"fly\0exec\0/bin/true\0", "unknown directive b'fly'"),
        (b"landlock\x001\0", "incomplete"),
    ],
)
def test_a_broken_spec_runs_nothing(spec, says):
    result = run(spec)
    assert result.returncode == 126
    assert result.stderr == f"{FAILURE}read the spec: {says}\n"


@pytest.mark.parametrize(
    ("argv", "options"),
    [([], {}), (["/bin/true", "a\0b"], {}), (["/bin/true"], {"user": 0})],
)
def test_a_spec_that_cannot_be_is_refused(argv, options):
    with pytest.raises(InvalidArgumentError):
        confine_spec(argv, rules=None, **options)
