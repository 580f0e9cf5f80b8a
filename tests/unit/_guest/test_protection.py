"""The guest protects itself from the workload."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.unit._guest.client import (
    SEARCH,
    Guest,
    eventually,
    running,
    sees_descriptors,
    stderr,
    stdout,
)

from isobox._guest import agent
from isobox._linux import sparing

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
needs_filters = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs Linux"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SYSTEM = "/usr/bin/python3"
needs_python = pytest.mark.skipif(
    not os.access(SYSTEM, os.X_OK), reason="needs a Python that another user can run"
)


@needs_root
@needs_python
@pytest.mark.parametrize("who", ["guest", "warden"])
def test_its_memory_and_descriptors_are_closed_to_its_own_user(who):
    with Guest(prefix=NOBODY, python=SYSTEM) as guest:
        assert guest.hello is not None
        assert guest.hello["uid"] == 65534
        pid = guest.pid if who == "guest" else "$PPID"
        script = f"""
            head -c 1 /proc/{pid}/mem; ls /proc/{pid}/fd/; cat /proc/{pid}/environ
            ls -l /proc/{pid}/cwd/; readlink /proc/{pid}/exe
        """
        result = guest.result(guest.spawn(script=script.encode()))
    assert stdout(result) == b""
    assert stderr(result).count(b"Permission denied") >= 4


@needs_root
@needs_python
def test_it_is_not_traced_by_its_own_user():
    attach = (
        "import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True);"
        "print(libc.ptrace(16, int(sys.argv[1]), 0, 0), ctypes.get_errno())"
    )
    with Guest(prefix=NOBODY, python=SYSTEM) as guest:
        asked = guest.spawn(SYSTEM, "-c", attach, str(guest.pid))
        assert stdout(guest.result(asked)).split() == [b"-1", b"1"]


def oom_score(pid: int) -> str:
    with open(f"/proc/{pid}/oom_score_adj") as file:
        return file.read().strip()


def test_the_kernel_takes_commands_first_when_memory_runs_out(guest):
    before = oom_score(os.getpid())
    asked = guest.spawn(
        script=b"cat /proc/self/oom_score_adj; sh -c 'cat /proc/self/oom_score_adj'"
    )
    assert stdout(guest.result(asked)) == b"1000\n1000\n"
    assert oom_score(guest.pid) == before


@needs_root
@needs_python
def test_an_ordinary_users_guest_keeps_its_score_too():
    with Guest(prefix=NOBODY, python=SYSTEM) as guest:
        asked = guest.spawn("cat", "/proc/self/oom_score_adj")
        assert stdout(guest.result(asked)) == b"1000\n"
        assert oom_score(guest.pid) == oom_score(os.getpid())


@sees_descriptors
def test_descriptors_that_its_starter_left_open_are_closed(tmp_path):
    secret = os.open(tmp_path, os.O_RDONLY)
    ours, theirs = socket.socketpair()
    try:
        with Guest(pass_fds=(secret, theirs.fileno())) as guest:
            links = [
                os.readlink(f"/proc/{guest.pid}/fd/{name}")
                for name in os.listdir(f"/proc/{guest.pid}/fd")
            ]
            assert str(tmp_path) not in links
            assert sum(link.startswith("socket:") for link in links) == 2
    finally:
        os.close(secret)
        ours.close()
        theirs.close()


@sees_descriptors
def test_its_standard_streams_are_not_the_channel(guest):
    for number in (0, 1):
        assert os.readlink(f"/proc/{guest.pid}/fd/{number}") == "/dev/null"


@sees_descriptors
def test_every_descriptor_of_it_is_closed_on_exec(guest):
    folder = f"/proc/{guest.pid}/fdinfo"
    for name in os.listdir(folder):
        with open(f"{folder}/{name}") as file:
            flags = next(line for line in file if line.startswith("flags:"))
        closes = int(flags.split()[1], 8) & os.O_CLOEXEC
        assert closes or int(name) <= 2


@sees_descriptors
def test_wardens_hold_no_channel_and_no_other_warden(guest):
    busy = [guest.start("sleep", "30") for _ in range(3)]
    result = guest.result(guest.spawn(script=b"echo $PPID"))
    warden = int(stdout(result))
    links = [
        os.readlink(f"/proc/{warden}/fd/{name}")
        for name in os.listdir(f"/proc/{warden}/fd")
    ]
    assert sum(link.startswith("socket:") for link in links) == 1
    for each in busy:
        guest.control(each, "cancel")
        guest.wait(each)


@sees_descriptors
def test_a_workers_descriptors_are_its_pipes(guest, tmp_path):
    """What reads files for a search holds nothing that it could be tricked into."""
    (tmp_path / "file").write_text("a" * 50)
    asked = {**SEARCH, "pattern": "(a+)+b", "timeout": 30.0}
    answer = guest.open("search", path=bytes(tmp_path), **asked)
    with open(f"/proc/{guest.pid}/task/{guest.pid}/children") as file:
        eventually(lambda: file.seek(0) or len(file.read().split()) >= 2)
        file.seek(0)
        workers = file.read().split()

    def links(worker: str) -> Iterator[str]:
        for number in os.listdir(f"/proc/{worker}/fd"):
            with suppress(FileNotFoundError):  # closed since it was listed
                yield os.readlink(f"/proc/{worker}/fd/{number}")

    def sockets(worker: str) -> int:
        return sum(link.startswith("socket:") for link in links(worker))

    for worker in workers:
        eventually(lambda worker=worker: sockets(worker) <= 1)
    guest.control(answer, "cancel")
    guest.wait(answer)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_itself_it_leaves_nothing(number, mark):
    with Guest() as guest:
        guest.start(
            "sh", "-c", f"(setsid sh -c 'sleep 60; : {mark}' &); sleep 60; : {mark}"
        )
        eventually(lambda: len(running(mark)) == 2)
        guest.popen.send_signal(number)
        eventually(lambda: not running(mark))
        guest.popen.wait(10)


def test_it_imports_little_at_its_start():
    code = (
        "import sys, importlib.util as u;"
        "s = u.spec_from_file_location('g', sys.argv[1]);"
        "b = set(sys.modules); m = u.module_from_spec(s); s.loader.exec_module(m);"
        "print(*sorted(set(sys.modules) - b))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, agent.__file__],
        capture_output=True,
        check=True,
    )
    heavy = {"typing", "re", "hashlib", "tarfile", "ctypes", "signal", "socket", "json"}
    assert not heavy & set(done.stdout.decode().split())


CHANGE = b"""
import os, resource
for pid in (os.getppid(), os.getpid()):
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (99, 99))
        print("changed")
    except PermissionError:
        print("refused", resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] > 99)
resource.setrlimit(resource.RLIMIT_NOFILE, (98, 98))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@needs_filters
def test_it_filters_all_that_it_starts_and_says_so():
    with Guest(config={"filter": sparing.everywhere()}) as guest:
        assert guest.hello is not None
        assert guest.hello["filtered"] is True
        result = guest.result(guest.spawn(sys.executable, "-c", CHANGE))
        assert stdout(result) == b"refused True\nrefused True\n98\n"
        status = guest.result(guest.spawn("grep", "NoNewPrivs", "/proc/self/status"))
        assert stdout(status).split() == [b"NoNewPrivs:", b"1"]


@pytest.mark.parametrize("rules", [None, b"", b"no rules of the kernel's"])
def test_without_a_filter_it_does_not_say_that_there_is_one(rules):
    with Guest(config={"filter": rules}) as guest:
        assert guest.hello is not None
        assert guest.hello["filtered"] is False
        assert stdout(guest.result(guest.spawn("echo", "on"))) == b"on\n"


PIN = b"import os; os.sched_setaffinity(os.getppid(), {min(os.sched_getaffinity(0))})"


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="needs processors to choose from"
)
def test_a_command_has_the_guests_processors_whatever_the_last_has_chosen(guest):
    look = (sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))")
    before = stdout(guest.result(guest.spawn(*look)))
    guest.result(guest.spawn(sys.executable, "-c", PIN))
    assert stdout(guest.result(guest.spawn(*look))) == before
    assert before.decode().strip() == str(sorted(os.sched_getaffinity(guest.pid)))
