"""The filter in the kernel: what an attack meets, and what tools meet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from isobox._linux.seccomp import build
from isobox._linux.syscall_numbers import NUMBERS
from isobox._linux.syscalls import architecture

pytestmark = pytest.mark.skipif(
    not os.path.exists("/usr/bin/bwrap"), reason="needs /usr/bin/bwrap"
)


def words(text: str) -> list[str]:
    return text.split()


NOBODY = 65534
KILLED_BY_SIGSYS = 128 + 31

VIEW = words("""
    --unshare-all --unshare-user --cap-drop ALL --ro-bind /usr /usr
    --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib
    --symlink usr/lib64 /lib64 --ro-bind /etc /etc --proc /proc --dev /dev
    --tmpfs /tmp --chdir /tmp --clearenv --setenv PATH /usr/bin:/bin
    --setenv HOME /tmp --setenv SHELL /bin/sh --setenv LANG C.UTF-8
""")

PROBE = """
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    ctypes.set_errno(0)
    words = [a.encode() if isinstance(a, str) else ctypes.c_ulong(a) for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    return "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]
print(json.dumps([call(*each) for each in json.loads(sys.argv[1])]))
"""


def sandboxed(*argv: str, profile="standard", debug=False, timeout=100):
    filter_fd = os.memfd_create("filter")
    os.write(filter_fd, build(profile, debug=debug))
    os.lseek(filter_fd, 0, os.SEEK_SET)
    root = os.geteuid() == 0
    user = NOBODY if root else None
    try:
        return subprocess.run(
            ["/usr/bin/bwrap", *VIEW, "--seccomp", str(filter_fd), "--", *argv],
            pass_fds=(filter_fd,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            cwd="/",
            env={},
            user=user,
            group=user,
            extra_groups=[] if root else None,
        )
    finally:
        os.close(filter_fd)


def probe(*calls: tuple[Any, ...], **options: Any) -> Any:
    numbers = NUMBERS[architecture()]
    plain = [[numbers.get(name, name), *arguments] for name, *arguments in calls]
    result = sandboxed("/usr/bin/python3", "-c", PROBE, json.dumps(plain), **options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_attacks_meet_the_errors_that_the_rules_name():
    attempts = {
        ("unshare", 0x10000000): "EPERM",
        ("clone", 0x10000011): "EPERM",
        ("clone3", 0, 0): "ENOSYS",
        ("io_uring_setup", 1, 0): "ENOSYS",
        ("openat2", -100 & (1 << 64) - 1, "/tmp", 0, 24): "ENOSYS",
        ("keyctl", 0, -3 & (1 << 64) - 1): "EPERM",
        ("personality", 0x400000): "EPERM",
        ("personality", 0x40000): "EPERM",
        ("personality", 0xFFFFFFFF): "ok",
        ("ptrace", 0): "EPERM",
        ("prlimit64", 1, 7, "xxxxxxxxxxxxxxxx", 0): "EPERM",
        ("prlimit64", 1, 7, 0, 0): "ok",
        ("sched_setscheduler", 1, 5, "xxxx"): "EPERM",
        ("setpriority", 0, 1, 19): "EPERM",
        ("setpriority", 0, 0, 19): "ok",
        ("ioprio_set", 1, 1, 0x6000): "EPERM",
        ("bpf", 0, 0, 0): "EPERM",
        ("mount", "x", "/tmp", "tmpfs", 0, 0): "EPERM",
        ("socket", 40, 1, 0): "EAFNOSUPPORT",
        ("socket", 38, 5, 0): "EAFNOSUPPORT",
        ("socket", 16, 3, 12): "EAFNOSUPPORT",
        ("socket", 16, 3, 0): "ok",
        ("socket", 1, 1, 0): "ok",
        ("socket", 2, 2, 0): "ok",
        ("ioctl", 0, 0x5412, "x"): "EPERM",
        ("ioctl", 0, 1 << 32 | 0x5412, "x"): "EPERM",
        ("ioctl", 0, 0x541C, "x"): "EPERM",
        ("ioctl", 0, 0x5401, 0): "ENOTTY",
        ("mkdirat", -100 & (1 << 64) - 1, "/tmp/d", 0o755): "ok",
        ("fchmodat", -100 & (1 << 64) - 1, "/tmp/d", 0o4755): "EPERM",
        ("fchmodat", -100 & (1 << 64) - 1, "/tmp/d", 0o2755): "EPERM",
        ("fchmodat", -100 & (1 << 64) - 1, "/tmp/d", 0o1777): "ok",
        ("openat", -100 & (1 << 64) - 1, "/tmp/f", 0o101, 0o4755): "EPERM",
        ("openat", -100 & (1 << 64) - 1, "/tmp/f", 0o101, 0o755): "ok",
        (470,): "ENOSYS",
        (9999,): "ENOSYS",
    }
    assert dict(zip(attempts, probe(*attempts), strict=True)) == attempts


@pytest.mark.skipif(architecture() != "x86_64", reason="calls of x86_64 alone")
def test_old_calls_are_covered_too():
    attempts = {
        ("creat", "/tmp/f", 0o4755): "EPERM",
        ("open", "/tmp/f", 0o101, 0o4755): "EPERM",
        ("open", "/tmp/f", 0o101, 0o755): "ok",
        ("chmod", "/tmp/f", 0o4755): "EPERM",
        ("chmod", "/tmp/f", 0o2755): "EPERM",
        ("chmod", "/tmp/f", 0o700): "ok",
        ("mkdir", "/tmp/d", 0o2755): "EPERM",
        (0x40000000 | 39,): "ENOSYS",
    }
    assert dict(zip(attempts, probe(*attempts), strict=True)) == attempts


def test_strict_refuses_more():
    attempts = {
        ("socket", 1, 1, 0): "EAFNOSUPPORT",
        ("socketpair", 1, 2, 0, 0): "EAFNOSUPPORT",
        ("personality", 0x400000): "EPERM",
        ("personality", 0xFFFFFFFF): "ok",
        ("socket", 2, 1, 0): "ok",
    }
    assert (
        dict(zip(attempts, probe(*attempts, profile="strict"), strict=True)) == attempts
    )


def test_debug_lets_a_process_trace_its_child():
    # PTRACE_TRACEME
    assert probe(("ptrace", 0, 0, 0, 0), debug=True) == ["ok"]


@pytest.mark.skipif(architecture() != "x86_64", reason="calls of x86_64 alone")
def test_calls_of_32_bits_are_killed():
    script = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b814000000" "cd80" "c3"))  # mov eax, getpid; int 0x80; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
"""
    result = sandboxed("/usr/bin/python3", "-c", script)
    assert (result.returncode, result.stdout) == (KILLED_BY_SIGSYS, "")


PYTHON = {
    "threads": """
import threading
threads = [threading.Thread(target=print, args=("ok",)) for _ in range(1)]
[t.start() for t in threads]
[t.join() for t in threads]""",
    "subprocess": """
import subprocess
from typing import Any
print(subprocess.check_output(["echo", "ok"], text=True))""",
    "multiprocessing": """
import multiprocessing as mp
def square(n): return n * n
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with mp.get_context(method).Pool(2) as pool:
            assert pool.map(square, range(4)) == [0, 1, 4, 9]
    with mp.Manager() as manager:
        manager.dict()["a"] = 1
    print("ok")""",
    "asyncio": """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("echo", "ok", stdout=-1)
    print((await process.communicate())[0].decode())
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    server.close()
asyncio.run(main())""",
    "pty": """
import os, pty
pid, fd = pty.fork()
if pid == 0: os.execlp("echo", "echo", "ok")
print(os.read(fd, 10).decode())""",
    "sqlite3": """
import sqlite3
db = sqlite3.connect("/tmp/db"); db.execute("pragma journal_mode=wal")
db.execute("create table t (a)"); db.commit(); print("ok")""",
}


@pytest.mark.parametrize("name", PYTHON)
def test_python_works(name):
    # A file, because `spawn` starts from it.
    script = f"cat > main.py <<'END'\n{PYTHON[name]}\nEND\npython3 main.py"
    result = sandboxed("/bin/sh", "-c", script)
    assert (result.stdout.strip(), result.stderr) == ("ok", "")


TOOLS = {
    "git": """git init -q repo && cd repo
        git config user.email a@b && git config user.name a
        echo x > x && git add x && git commit -qm one && git clone -q . ../copy
        git gc -q && git status --short""",
    "gcc": """printf 'int main(void){return 0;}' > a.c
        gcc -O2 -flto a.c -o a && ./a""",
    "make": """printf 'all: a b\\na b:\\n\\ttouch $@\\n' > Makefile
        make -s -j2 && ls a b >&2""",
    "node": """node -e '
        const {Worker} = require("worker_threads"), {fork} = require("child_process");
        if (!process.send) { new Worker("0", {eval: true});
          fork(require("fs").writeFileSync("c.js", "process.send(1)") || "c.js")
            .on("message", () => process.exit(0)) }'""",
    "java": """java -Xmx64m -XX:+UseSerialGC -version 2>/dev/null
        java -Xmx256m --version >/dev/null""",
    "rg": "echo needle > f && rg -q needle .",
    "tmux": """
        tmux -L t new-session -d 'echo ok > done; tmux -L t wait-for -S end' \\; \
        wait-for end && cat done >&2""",
    "nice": "test $(nice -n 5 nice) = 5",
    "ionice": "ionice -c 3 true",
    "chrt": "chrt -b 0 true",
    "taskset": "test $(taskset -c 0 nproc) = 1 && taskset -p 1 $$ >/dev/null",
    "prlimit": "test $(prlimit --nofile=99 sh -c 'ulimit -n') = 99",
    # Its threads are bound to processors by their numbers.
    "g++": """printf '#include <omp.h>\\nint main(){int n=0;\\n' > a.cpp
        printf '#pragma omp parallel reduction(+:n)\\n n+=1; return n!=2;}' >> a.cpp
        g++ -fopenmp a.cpp -o a && OMP_PROC_BIND=true OMP_NUM_THREADS=2 ./a""",
    "sqlite3": "sqlite3 db 'pragma journal_mode=wal; create table t (a);' >/dev/null",
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_work(tool):
    if not shutil.which(tool, path="/usr/bin:/bin"):
        pytest.skip(f"{tool} is not installed")
    result = sandboxed("/bin/sh", "-ec", TOOLS[tool])
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


@pytest.mark.parametrize("tool", ["git", "gcc", "make", "node", "rg"])
def test_tools_work_under_strict(tool):
    if not shutil.which(tool, path="/usr/bin:/bin"):
        pytest.skip(f"{tool} is not installed")
    result = sandboxed("/bin/sh", "-ec", TOOLS[tool], profile="strict")
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
