"""What can be reached from in here: one program that runs inside a sandbox.

It needs Python 3.8, the standard library and no privilege, and may run
anywhere: each probe has a process of its own that ends in time, undoes what it
did, signals nobody, and sends packets to loopback and TEST-NET addresses only.

    inside.py [PLAN]       try everything, print one JSON object
    inside.py plant TOKEN  be what others look for, until standard input ends

PLAN is JSON: what `plant` printed on the host and in a neighbour sandbox, and
facts about the host to compare with. Without it those probes are "absent".
"""

# Places that everyone writes to are looked at here, and set-id files are made
# to see whether they can be; nothing found there is trusted.
# ruff: noqa: S103, S108

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    Attempt = Callable[[], str]
    Address = tuple[str, int] | str

FORMAT = 1
SECONDS_PER_PROBE = 3.0
SECONDS_PER_PACKET = 0.3
GIB = 1 << 30

PLAN: dict[str, Any] = {}
INHERITED: list[int] = []
MAIN = os.getpid()
PARENT = os.getppid()


class Held(Exception):  # noqa: N818 - an outcome, not a failure
    """Something stood in the way."""


class Absent(Exception):  # noqa: N818 - an outcome, not a failure
    """There is nothing here to reach."""


class Probe(NamedTuple):
    """One attempt: it returns what it reached, or raises what stopped it."""

    id: str
    dimension: str
    tries: str
    attempt: Attempt


CATALOGUE: dict[str, Probe] = {}


def register(name: str, dimension: str, tries: str, attempt: Attempt) -> None:
    """Add a probe to the catalogue."""
    if name in CATALOGUE:
        raise ValueError(f"two probes are called {name}")
    CATALOGUE[name] = Probe(name, dimension, tries, attempt)


def probe(dimension: str, tries: str) -> Callable[[Attempt], Attempt]:
    """Register the decorated function under its own name."""

    def registered(attempt: Attempt) -> Attempt:
        name = attempt.__name__.strip("_").replace("_", "-")
        register(name, dimension, tries, attempt)
        return attempt

    return registered


# -- running ------------------------------------------------------------------

# What a kernel or a barrier says when it refuses; any other error means that
# the probe itself is wrong, and is reported as such.
_REFUSALS = {
    errno.EACCES,
    errno.EAFNOSUPPORT,
    errno.EBUSY,
    errno.ECONNREFUSED,
    errno.EHOSTUNREACH,
    errno.ELOOP,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENOSPC,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EPROTONOSUPPORT,
    errno.EROFS,
    errno.ESOCKTNOSUPPORT,
    errno.EADDRNOTAVAIL,
    errno.EUSERS,
    errno.EXDEV,
}
_NOTHING_THERE = {errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR, errno.ESRCH}


def outcome_of(attempt: Attempt) -> tuple[str, str]:
    """Return how an attempt ended, and the detail."""
    try:
        return "reached", attempt()
    except Held as held:
        return "held", str(held)
    except Absent as absent:
        return "absent", str(absent)
    except OSError as error:
        return _outcome_of_errno(error)
    except Exception as error:  # noqa: BLE001 - one bad probe never costs the others
        return "error", f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _lacking(number: int, why: str) -> Generator[None, None, None]:
    """Take the error of a kernel that lacks what is asked of it, as gVisor's does."""
    try:
        yield
    except OSError as error:
        if error.errno != number:
            raise
        raise Absent(why) from error


def _outcome_of_errno(error: OSError) -> tuple[str, str]:
    name = errno.errorcode.get(error.errno or 0, repr(error))
    if error.errno in _REFUSALS:
        return "held", name
    if error.errno in _NOTHING_THERE:
        return "absent", name
    return "error", f"{name}: {error.strerror}"


def run_all() -> dict[str, list[str]]:
    """Run every probe, each in a process of its own, one after the other."""
    try:
        return {name: list(_run(one)) for name, one in CATALOGUE.items()}
    finally:
        _remove_traces()


#: Names what a probe makes, so that it can be found if the probe had to be ended.
_MARK = f".isobox-probe-{os.getpid()}-"


def _remove_traces() -> None:
    places = {".", os.environ.get("TMPDIR", "."), "/tmp", "/var/tmp", "/dev/shm"}
    for place in places:
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                if name.startswith(_MARK):
                    path = os.path.join(place, name)
                    shutil.rmtree(path, ignore_errors=True)
                    with contextlib.suppress(OSError):
                        os.unlink(path)


def _run(one: Probe) -> tuple[str, str]:
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_the_child(one, sender)
    os.close(sender)
    answer = _answer(receiver)
    os.close(receiver)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if answer:
        outcome, detail = json.loads(answer)
        return outcome, detail
    return _silent_end(status)


def _be_the_child(one: Probe, sender: int) -> None:
    try:
        signal.signal(signal.SIGALRM, _too_late)
        signal.setitimer(signal.ITIMER_REAL, SECONDS_PER_PROBE)
        outcome, detail = outcome_of(one.attempt)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(sender, json.dumps([outcome, _printable(detail)]).encode() + b"\n")
    finally:
        os._exit(0)


def _too_late(*_: object) -> None:
    raise RuntimeError(f"took longer than {SECONDS_PER_PROBE} s")


def _answer(receiver: int) -> bytes:
    answer = b""
    deadline = time.monotonic() + SECONDS_PER_PROBE + 1
    while not answer.endswith(b"\n"):
        left = max(0.0, deadline - time.monotonic())
        if not select.select([receiver], [], [], left)[0]:
            return b""
        piece = os.read(receiver, 4096)
        if not piece:
            return b""
        answer += piece
    return answer


def _silent_end(status: int) -> tuple[str, str]:
    if not os.WIFSIGNALED(status):
        return "error", "the probe ended without an answer"
    name = _signal_name(os.WTERMSIG(status))
    return "held" if name == "SIGSYS" else "error", f"killed by {name}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _printable(text: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in text)[:300]


# -- tools ----------------------------------------------------------------------


def _read(path: str, size: int = 65536) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def _open(path: str, flags: int) -> str:
    os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    return f"{path} opens"


@contextlib.contextmanager
def _scratch() -> Generator[str]:
    path = _made_directory((os.getcwd(), "/tmp", "/dev/shm"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _made_directory(places: Sequence[str]) -> str:
    refusal: Exception = Absent("nowhere to try")
    for place in places:
        try:
            return tempfile.mkdtemp(prefix=_MARK, dir=place)
        except OSError as error:
            refusal = error
    raise refusal


def _creates_in(directory: str) -> str:
    descriptor, path = tempfile.mkstemp(prefix=_MARK, dir=directory)
    os.close(descriptor)
    os.unlink(path)
    return f"made a file in {directory}"


def _status(field: str, pid: object = "self") -> str:
    for line in _read(f"/proc/{pid}/status").decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return value.strip()
    raise Absent(f"/proc/{pid}/status has no {field}")


def _processes() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _ancestors() -> set[int]:
    found, pid = {os.getpid()}, os.getpid()
    while pid > 1:
        pid = int(_status("PPid", pid))
        found.add(pid)
    return found


def _other(pid: int) -> int:
    if pid in (0, MAIN):
        raise Absent("it is this program, or not of this PID namespace")
    return pid


def _mounts() -> list[tuple[str, str]]:
    """Return the place and the type of every mount in view."""
    found: list[tuple[str, str]] = []
    for line in _read("/proc/self/mountinfo", 1 << 20).decode().splitlines():
        before, _, after = line.partition(" - ")
        place = before.split()[4].encode().decode("unicode_escape")
        found.append((place, after.split()[0]))
    return found


def _part(name: str) -> dict[str, Any]:
    part: dict[str, Any] = PLAN.get(name, {})
    return part


def _decoy(who: str, what: str) -> Any:  # noqa: ANN401 - JSON
    value = _part(who).get(what)
    if value is None:
        raise Absent("none was planted")
    return value


def _fact(name: str) -> Any:  # noqa: ANN401 - JSON
    value = _part("facts").get(name)
    if value is None:
        raise Absent("the host gave nothing to compare with")
    return value


def _on_the_same_kernel() -> None:
    if boot_id() != _fact("boot_id"):
        raise Held("another kernel")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6])
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"


def _some(names: Sequence[str], otherwise: str) -> str:
    if not names:
        raise Held(otherwise)
    return _listed(names)


def boot_id() -> str:
    """Name this run of the kernel."""
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def digest(path: str) -> str:
    """Return the SHA-256 of a small file in hex."""
    return hashlib.sha256(_read(path, 1 << 20)).hexdigest()


# -- system calls by number -----------------------------------------------------

_MACHINES = ("x86_64", "aarch64")
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}


def _call(name: str, *arguments: Any) -> int:  # noqa: ANN401 - what C takes
    machine = os.uname().machine
    if machine not in _MACHINES or sys.maxsize < 1 << 32:
        raise Absent(f"no table of system calls for {machine}")
    number = _NUMBERS[name][_MACHINES.index(machine)]
    if number is None:
        raise Absent(f"{machine} has no {name}")
    return _call_number(number, *arguments)


def _call_number(number: int, *arguments: Any) -> int:  # noqa: ANN401
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = library.syscall(ctypes.c_long(number), *words)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _answers(name: str, *arguments: Any) -> str:  # noqa: ANN401
    """Reached is any answer of the code behind the call, complaints too."""
    try:
        return f"{name} returned {_call(name, *arguments)}"
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise
        return f"{name} answered {errno.errorcode.get(error.errno or 0, error.errno)}"


CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
AT_FDCWD = -100

_HANDLE = struct.pack("<Ii", 8, 1) + bytes(8)
_CLOCK_EVENT = struct.pack("<IIQQQQQ", 1, 64, 0, 0, 0, 0, 0x61) + bytes(16)

# Each with arguments that change nothing even where the caller is mighty.
_CALLS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("acct", "Turn on process accounting", (b"/nonexistent/isobox",)),
    ("add_key", "Add a kernel key", (b"user", b"isobox-probe", b"x", 1, -2)),
    ("bpf", "Make a BPF map", (0, struct.pack("<5I", 2, 4, 4, 1, 0), 20)),
    ("clone3", "clone3, whose flags no filter can see", (0, 0)),
    ("delete_module", "Unload a kernel module", (b"isobox_probe_none", 0)),
    ("fanotify_init", "Watch the file system by fanotify", (0x200, 0)),
    ("finit_module", "Load a kernel module from a file", (-1, b"", 0)),
    ("fsopen", "New mount API: a file system context", (b"tmpfs", 0)),
    ("fspick", "New mount API: reconfigure", (AT_FDCWD, b"/", 0)),
    ("init_module", "Load a kernel module", (0, 0, b"")),
    ("io_uring_setup", "Make an io_uring", (1, bytes(128))),
    ("iopl", "Raise the I/O privilege level", (3,)),
    ("kcmp", "Compare kernel objects of processes", (MAIN, MAIN, 1, 0, 0)),
    ("kexec_file_load", "Load a kernel from a file", (-1, -1, 0, 0, 0xFFFF)),
    ("kexec_load", "Load another kernel", (0, 1 << 30, 0, 0xFFFF)),
    ("keyctl", "Ask for the session keyring", (0, -3, 0)),
    ("modify_ldt", "Read the local descriptor table", (0, 0, 0)),
    ("mount_setattr", "New mount API: change flags", (-1, b"", 0, 0, 0)),
    ("move_mount", "New mount API: attach", (-1, b"", -1, b"", 0)),
    ("name_to_handle_at", "Get a file handle", (AT_FDCWD, b"/", _HANDLE, bytes(8), 0)),
    ("open_by_handle_at", "Open a file by handle", (AT_FDCWD, _HANDLE, os.O_RDONLY)),
    ("open_tree", "New mount API: clone", (AT_FDCWD, b"/", 1 | os.O_CLOEXEC)),
    ("open_tree_attr", "A call newer than most filters", (-1, b"", 0, 0, 0)),
    ("perf_event_open", "Count processor events", (_CLOCK_EVENT, 0, -1, -1, 0)),
    ("personality", "Make readable memory executable", (0x400000,)),
    ("pivot_root", "Change the root mount", (b"/", b"/nonexistent")),
    ("process_vm_readv", "Read memory by system call", (MAIN, 0, 0, 0, 0, 0)),
    ("process_vm_writev", "Write memory by system call", (MAIN, 0, 0, 0, 0, 0)),
    ("ptrace", "Be traced by the parent", (0, 0, 0, 0)),
    ("quotactl", "Query disk quotas", (0x800001 << 8, 0, 0, 0)),
    ("reboot", "Reboot, with numbers that the kernel refuses", (0, 0, 0, 0)),
    ("request_key", "Look up a kernel key", (b"user", b"isobox-probe-none", 0, 0)),
    ("settimeofday", "Set the clock, to nothing", (0, 0)),
    ("swapon", "Add swap space", (b"/nonexistent/isobox", 0)),
    ("syslog", "Ask for the kernel log's size", (10, 0, 0)),
    ("userfaultfd", "Handle page faults in user space", (1,)),
)
for _name, _tries, _arguments in _CALLS:
    _id = _name.replace("_", "-")
    register(_id, "system_calls", _tries, partial(_answers, _name, *_arguments))

for _id, _flag, _tries in (
    ("unshare-user", CLONE_NEWUSER, "Make a user namespace by unshare"),
    ("unshare-mount", CLONE_NEWNS, "Make a mount namespace by unshare"),
    ("unshare-net", CLONE_NEWNET, "Make a network namespace by unshare"),
    ("unshare-pid", CLONE_NEWPID, "Make a PID namespace by unshare"),
):
    register(_id, "system_calls", _tries, partial(_answers, "unshare", _flag))


@probe("system_calls", "Make a user namespace by clone")
def _clone_user() -> str:
    pid = _call("clone", CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a child ran in a user namespace of its own"


@probe("system_calls", "Work without any system call filter")
def _seccomp_mode() -> str:
    mode = _status("Seccomp")
    if mode != "0":
        raise Held(f"mode {mode}, {_status('Seccomp_filters')} filters")
    return "no filter"


@probe("system_calls", "Find a process with a weaker filter to take over")
def _weaker_filter() -> str:
    own = int(_status("Seccomp_filters"))
    weaker: list[str] = []
    for pid in _processes():
        with contextlib.suppress(OSError, Absent):
            if int(_status("Seccomp_filters", pid)) < own:
                weaker.append(f"pid {pid}")
    return _some(weaker, f"every process in view has {own} filters or more")


@probe("system_calls", "Call the kernel through the 32-bit entry")
def _foreign_architecture() -> str:
    if os.uname().machine != "x86_64":
        raise Absent("only x86_64 has it")
    return _in_a_child(_getpid_by_int80)


def _getpid_by_int80() -> bool:
    mov_eax_20_int80_ret = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
    memory = _executable(mov_eax_20_int80_ret)
    getpid = ctypes.CFUNCTYPE(ctypes.c_int)(memory)
    return bool(getpid() == os.getpid())


def _executable(code: bytes) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    address: int = library.mmap(
        None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0)
    )
    ctypes.memmove(address, code, len(code))
    return address


def _in_a_child(works: Callable[[], bool]) -> str:
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os._exit(0 if works() else 1)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        raise Held(f"killed by {_signal_name(os.WTERMSIG(status))}")
    if os.WEXITSTATUS(status):
        raise Held("the kernel did not answer")
    return "the kernel answered"


@probe("system_calls", "Call the kernel through the x32 numbers")
def _x32() -> str:
    if os.uname().machine != "x86_64":
        raise Absent("only x86_64 has it")
    return f"getpid is {_call_number(0x40000000 | 39)}"


@contextlib.contextmanager
def _terminal() -> Generator[int]:
    """Lend a pseudoterminal of our own as controlling terminal."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        leader, follower = os.openpty()
    except OSError:
        raise Absent("no terminal to be had") from None
    try:
        fcntl.ioctl(follower, 0x540E, 0)  # TIOCSCTTY
        yield follower
    finally:
        os.close(follower)
        os.close(leader)


def _ioctl_answers(request: int, argument: bytes) -> str:
    with _terminal() as terminal:
        try:
            fcntl.ioctl(terminal, request, argument)
        except OSError as error:
            if error.errno in (errno.ENOTTY, errno.EINVAL):
                return f"the terminal answered {errno.errorcode[error.errno]}"
            if error.errno == errno.EIO:
                raise Held("the kernel has it turned off") from None
            raise
    return "the terminal took it"


for _id, _request, _argument, _tries in (
    ("tiocsti", 0x5412, b"x", "Push a key into a terminal"),
    ("tioclinux", 0x541C, b"\x06", "Paste into a console"),
    ("tiocsetd", 0x5423, bytes(4), "Change a terminal's line discipline"),
):
    register(_id, "system_calls", _tries, partial(_ioctl_answers, _request, _argument))


# -- mounts ---------------------------------------------------------------------

MS_RDONLY, MS_REMOUNT, MS_BIND, MNT_DETACH = 1, 32, 4096, 2


@probe("file_system", "Mount a tmpfs")
def _mount() -> str:
    with _scratch() as place:
        _call("mount", b"tmpfs", place.encode(), b"tmpfs", 0, 0)
        _call("umount2", place.encode(), MNT_DETACH)
    return "mounted it"


@probe("file_system", "Make a read-only mount writable")
def _remount() -> str:
    for place in ("/", "/usr", "/etc"):
        flags = os.statvfs(place).f_flag
        if flags & os.ST_RDONLY:
            return _remounted(place.encode(), MS_REMOUNT | MS_BIND | flags & 0b1110)
    raise Absent("nothing is read-only")


def _remounted(place: bytes, flags: int) -> str:
    try:
        _call("mount", b"none", place, 0, flags, 0)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise Absent(f"{place.decode()} is not a mount of its own") from None
        raise
    _call("mount", b"none", place, 0, flags | MS_RDONLY, 0)
    return f"{place.decode()} was writable"


@probe("file_system", "Unmount")
def _umount() -> str:
    with _scratch() as place:
        return _answers("umount2", place.encode(), 0)


@probe("file_system", "Change the root directory")
def _chroot() -> str:
    with _scratch() as place:
        os.chroot(place)
        os.chroot("../../../..")
    return "chroot worked"


@probe("file_system", "See the host's own directories as they are")
def _host_directories() -> str:
    _on_the_same_kernel()
    same: list[str] = []
    for path, (device, inode) in _fact("directories").items():
        with contextlib.suppress(OSError):
            here = os.stat(path)
            if (here.st_dev, here.st_ino) == (device, inode):
                same.append(path)
    return _some(sorted(same), "none is the host's")


register("write-top", "file_system", "Create a file in /", partial(_creates_in, "/"))
for _directory in (
    "/boot",
    "/dev",
    "/etc",
    "/lib/modules",
    "/opt",
    "/root",
    "/usr",
    "/usr/bin",
    "/usr/local/bin",
    "/var",
):
    register(
        "write" + _directory.replace("/", "-"),
        "file_system",
        f"Create a file in {_directory}",
        partial(_creates_in, _directory),
    )


@probe("file_system", "Write in the home of whoever started the sandbox")
def _write_host_home() -> str:
    return _creates_in(_fact("home"))


@probe("file_system", "List the home of whoever started the sandbox")
def _host_home() -> str:
    home: str = _fact("home")
    return _some([f"{home}/{name}" for name in os.listdir(home)], "it is empty")


@probe("file_system", "Read the password hashes")
def _etc_shadow() -> str:
    return f"{len(_read('/etc/shadow').splitlines())} lines of /etc/shadow"


@probe("file_system", "List what other users have in /home and /root")
def _homes() -> str:
    own = {os.path.realpath(os.environ.get("HOME", "/")), os.path.realpath(".")}
    places = ["/root", *_children("/home")]
    found = [p for p in places if os.path.realpath(p) not in own and _children(p)]
    return _some(found, "nothing but its own")


def _children(directory: str) -> list[str]:
    try:
        return sorted(os.path.join(directory, name) for name in os.listdir(directory))
    except OSError:
        return []


@probe("file_system", "Find sockets that someone else listens on")
def _path_sockets() -> str:
    tops = ("/dev", "/home", "/mnt", "/root", "/run", "/srv", "/tmp", "/var")
    found, unseen = _find(tops, _is_socket, levels=4)
    return _some(found, f"none{unseen}")


def _find(
    tops: Sequence[str], wanted: Callable[[os.DirEntry[str]], bool], levels: int
) -> tuple[list[str], str]:
    """Look for entries from the top down, in half of a probe's time at most.

    What lies below is as much as anybody cares to put there.

    Returns:
        The paths, and what to add to "none" where the time was not enough.
    """
    until = time.monotonic() + SECONDS_PER_PROBE / 2
    found: list[str] = []
    waiting = deque((top, levels) for top in tops)
    while waiting:
        directory, left = waiting.popleft()
        for entry in _entries(directory):
            if time.monotonic() > until:
                return found, f" until {directory}; there was no time for more"
            if wanted(entry):
                found.append(entry.path)
            if left and _is_directory(entry):
                waiting.append((entry.path, left - 1))
    return found, ""


def _entries(directory: str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        yield from entries


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_socket(entry: os.DirEntry[str]) -> bool:
    try:
        # Most kinds are told by the directory itself, which is far quicker.
        if entry.is_file(follow_symlinks=False) or _is_directory(entry):
            return False
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


def _connects_to_one_of(paths: Sequence[str]) -> str:
    refusal: Exception = Absent("none is there")
    for path in paths:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(SECONDS_PER_PACKET)
                client.connect(path)
                return f"{path} answers"
        except OSError as error:
            if error.errno not in _NOTHING_THERE:
                refusal = error
    raise refusal


for _id, _paths, _tries in (
    (
        "engine-socket",
        (
            "/var/run/docker.sock",
            "/run/docker.sock",
            "/run/containerd/containerd.sock",
            "/run/podman/podman.sock",
            "/run/crio/crio.sock",
            "/var/lib/lxd/unix.socket",
        ),
        "Connect to a container engine",
    ),
    (
        "dbus-socket",
        ("/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket"),
        "Connect to the system's D-Bus",
    ),
    (
        "service-socket",
        (
            "/run/systemd/private",
            "/run/systemd/journal/stdout",
            "/run/snapd.socket",
            "/run/udev/control",
            "/dev/log",
            "/tmp/.X11-unix/X0",
        ),
        "Connect to a service of the host",
    ),
):
    register(_id, "file_system", _tries, partial(_connects_to_one_of, _paths))


@probe("file_system", "Leave a set-user-id file by chmod")
def _setuid_chmod() -> str:
    with _scratch() as place:
        path = os.path.join(place, "file")
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o700))
        os.chmod(path, 0o4755)
        return _set_id(path)


@probe("file_system", "Leave a set-user-id file by open")
def _setuid_open() -> str:
    with _scratch() as place:
        path = os.path.join(place, "file")
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o6755))
        return _set_id(path)


@probe("file_system", "Leave a set-user-id file by openat2, unseen by filters")
def _setuid_openat2() -> str:
    with _scratch() as place:
        path = os.path.join(place, "file")
        how = struct.pack("<QQQ", os.O_CREAT | os.O_WRONLY, 0o6755, 0)
        _call("openat2", AT_FDCWD, path.encode(), how, len(how))
        return _set_id(path)


def _set_id(path: str) -> str:
    found = os.stat(path)
    if not found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise Held("the bit was dropped")
    return f"mode {stat.S_IMODE(found.st_mode):o} of user {found.st_uid}"


@probe("file_system", "Find set-user-id programs that would work")
def _setuid_programs() -> str:
    names = ("su", "sudo", "mount", "passwd", "newgrp", "chsh", "pkexec")
    found: list[str] = []
    for path in [f"{d}/{n}" for d in ("/usr/bin", "/bin") for n in names]:
        with contextlib.suppress(OSError):
            works = not os.statvfs(path).f_flag & os.ST_NOSUID
            if works and os.stat(path).st_mode & stat.S_ISUID:
                found.append(path)
    if found and _status("NoNewPrivs") == "1":
        raise Held("there are some, but no new privileges")
    return _some(found, "none")


@probe("file_system", "Link a file of the host into the workspace")
def _hardlink() -> str:
    with _scratch() as place:
        os.link(_decoy("host", "secret_file"), os.path.join(place, "link"))
    return "linked it"


@probe("file_system", "Make a device node")
def _mknod() -> str:
    with _scratch() as place:
        path = os.path.join(place, "zero")
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        os.close(os.open(path, os.O_RDONLY))
    return "made one, and it opens"


@probe("file_system", "Plant files that the host would execute later")
def _trusted_names() -> str:
    names = (".git/hooks/pre-commit", ".vscode/tasks.json", ".claude/settings.json")
    return _some([n for n in (*names, ".envrc", ".mcp.json") if _plants(n)], "none")


def _plants(name: str) -> bool:
    top = name.partition("/")[0]
    if os.path.lexists(top):
        return False
    try:
        if "/" in name:
            os.makedirs(os.path.dirname(name))
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o755))
    except OSError:
        return False
    finally:
        if os.path.isdir(top):
            shutil.rmtree(top, ignore_errors=True)
        elif os.path.lexists(top):
            os.unlink(top)
    return True


# -- devices and the kernel's files ---------------------------------------------

for _id, _path, _flags, _tries in (
    ("dev-mem", "/dev/mem", os.O_RDONLY, "Read physical memory"),
    ("dev-kmsg", "/dev/kmsg", os.O_RDONLY, "Read the kernel log"),
    ("dev-kvm", "/dev/kvm", os.O_RDWR, "Make virtual machines"),
    ("dev-fuse", "/dev/fuse", os.O_RDWR, "Serve a file system to the kernel"),
    ("dev-tun", "/dev/net/tun", os.O_RDWR, "Make a network interface"),
    ("dev-vsock", "/dev/vsock", os.O_RDONLY, "Open the socket to the hypervisor"),
    ("dev-userfaultfd", "/dev/userfaultfd", os.O_RDWR, "Open userfaultfd's device"),
    ("kcore", "/proc/kcore", os.O_RDONLY, "Read kernel memory"),
    ("proc-kmsg", "/proc/kmsg", os.O_RDONLY, "Read the kernel log by procfs"),
    ("sysrq", "/proc/sysrq-trigger", os.O_WRONLY, "Open the SysRq trigger"),
    (
        "core-pattern",
        "/proc/sys/kernel/core_pattern",
        os.O_WRONLY,
        "Choose what the host runs as root when a process crashes",
    ),
    (
        "modprobe-path",
        "/proc/sys/kernel/modprobe",
        os.O_WRONLY,
        "Choose what the host runs as root to load a module",
    ),
    (
        "uevent-helper",
        "/sys/kernel/uevent_helper",
        os.O_WRONLY,
        "Choose what the host runs as root when a device appears",
    ),
    (
        "binfmt-misc",
        "/proc/sys/fs/binfmt_misc/register",
        os.O_WRONLY,
        "Register an interpreter for programs of the host",
    ),
):
    register(_id, "file_system", _tries, partial(_open, _path, _flags))


@probe("file_system", "Read a disk past its file system")
def _block_devices() -> str:
    found: list[str] = []
    for path in _children("/dev"):
        if re.match(r"/dev/(sd|vd|xvd|nvme|dm-|mmcblk)", path):
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
                found.append(path)
    return _some(found, "none opens")


# null, zero, full, random, urandom, tty, ptmx, console
_PLAIN_DEVICES = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2)}


@probe("file_system", "Find devices beyond the usual")
def _device_nodes() -> str:
    if os.statvfs("/dev").f_flag & os.ST_NODEV:
        raise Held("/dev is mounted nodev")
    found, unseen = _find(("/dev",), _is_device, levels=4)
    return _some(found, f"none{unseen}")


def _is_device(entry: os.DirEntry[str]) -> bool:
    if entry.path.startswith("/dev/pts/"):
        return False
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    kind = stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)
    number = (os.major(found.st_rdev), os.minor(found.st_rdev))
    return kind and number not in _PLAIN_DEVICES and os.access(entry.path, os.R_OK)


# The kernel keeps these per PID or IPC namespace, so a sandbox with namespaces
# of its own changes nobody else's.
_OWN_SYSCTLS = re.compile(
    r"/proc/sys/(fs/mqueue/\w+"
    r"|kernel/(auto_msgmni|(msg|sem|shm)\w*|ns_last_pid|pid_max))"
)


@probe("file_system", "Find kernel settings that open for writing")
def _sysctls() -> str:
    if not os.path.isdir("/proc/sys"):
        raise Absent("no /proc/sys")
    found, unseen = _find(("/proc/sys",), _opens_for_writing, levels=8)
    worse = [path for path in found if not _OWN_SYSCTLS.fullmatch(path)]
    return _some(worse, f"{len(found)}, of its own namespaces{unseen}")


def _opens_for_writing(entry: str | os.DirEntry[str]) -> bool:
    try:
        _open(os.fspath(entry), os.O_WRONLY)
    except OSError:
        return False
    return True


@probe("file_system", "Read kernel addresses")
def _kallsyms() -> str:
    addresses = [line.split()[0] for line in _read("/proc/kallsyms").splitlines()[:9]]
    if not any(address.strip(b"0") for address in addresses):
        raise Held("all are zero")
    return "/proc/kallsyms has them"


@probe("file_system", "See the machine through sysfs")
def _sysfs() -> str:
    return _some(_children("/sys/kernel"), "/sys is empty")


def _mounts_of(*types: str) -> list[str]:
    return [place for place, kind in _mounts() if kind in types]


@probe("file_system", "See the host's control groups")
def _cgroups() -> str:
    return _some(_mounts_of("cgroup", "cgroup2"), "no cgroup file system")


@probe("file_system", "Write into a control group")
def _cgroup_write() -> str:
    files = [f"{place}/cgroup.procs" for place in _mounts_of("cgroup", "cgroup2")]
    return _some([f for f in files if _opens_for_writing(f)], "none opens for writing")


@probe("file_system", "Read debugfs, tracefs, securityfs or EFI variables")
def _debug_file_systems() -> str:
    kinds = ("debugfs", "tracefs", "securityfs", "efivarfs", "pstore", "bpf")
    return _some([p for p in _mounts_of(*kinds) if _children(p)], "none is readable")


@probe("user_identity", "Read the machine's serial number")
def _serial_number() -> str:
    _read("/sys/class/dmi/id/product_serial")
    return "it is readable"


# -- processes ------------------------------------------------------------------


@probe("process", "See processes that are not its ancestors")
def _process_list() -> str:
    others = [pid for pid in _processes() if pid not in _ancestors()]
    return _some([f"pid {pid}" for pid in others], "none")


@probe("process", "Inherit open files of the host")
def _descriptors() -> str:
    return _some([str(number) for number in INHERITED], "only 0, 1 and 2")


def _open_descriptors() -> list[int]:
    found: list[int] = []
    for number in range(3, 4096):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.append(number)
    return found


@probe("process", "Get a host file or terminal as standard input or output")
def _standard_streams() -> str:
    found: list[str] = []
    for number in range(3):
        with contextlib.suppress(OSError):
            kind = os.fstat(number).st_mode
            if os.isatty(number) or stat.S_ISREG(kind) or stat.S_ISBLK(kind):
                found.append(f"{number} is {os.readlink(f'/proc/self/fd/{number}')}")
    return _some(found, "pipes, sockets or null")


@probe("process", "Open the controlling terminal")
def _controlling_terminal() -> str:
    with _lacking(errno.EIO, "there is none"):
        os.close(os.open("/dev/tty", os.O_RDWR))
    return "/dev/tty opens"


@probe("process", "Look into the root directory of pid 1")
def _init_root() -> str:
    there, here = os.stat(f"/proc/{_other(1)}/root/"), os.stat("/")
    if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
        raise Held("it is the same root")
    return _some(_children("/proc/1/root"), "it is empty")


@probe("process", "Join the namespaces of pid 1")
def _setns() -> str:
    refusal: Exception = Held("pid 1 is in the same")
    for kind in ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup"):
        path = f"/proc/{_other(1)}/ns/{kind}"
        try:
            if os.readlink(path) != os.readlink(f"/proc/self/ns/{kind}"):
                _call("setns", os.open(path, os.O_RDONLY), 0)
                return f"joined its {kind} namespace"
        except OSError as error:
            refusal = error
    raise refusal


def _opens_memory(pid: int) -> str:
    return _open(f"/proc/{_other(pid)}/mem", os.O_RDWR)


def _lists_descriptors(pid: int) -> str:
    return f"{len(os.listdir(f'/proc/{_other(pid)}/fd'))} descriptors"


def _traces(pid: int) -> str:
    # Seizing does not stop the other, and ends with this process.
    _call("ptrace", 0x4206, _other(pid), 0, 0)
    return f"traces pid {pid}"


def _takes_a_descriptor(pid: int) -> str:
    _call("pidfd_getfd", _call("pidfd_open", _other(pid), 0), 0, 0)
    return f"has a copy of standard input of pid {pid}"


def _reads_memory(pid: int) -> str:
    byte = ctypes.create_string_buffer(1)
    here = struct.pack("QQ", ctypes.addressof(byte), 1)
    try:
        _call("process_vm_readv", _other(pid), here, 1, struct.pack("QQ", 16, 1), 1, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise
    return f"may read the memory of pid {pid}"


_INTRUSIONS: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("memory", "Open the memory of", _opens_memory),
    ("descriptors", "List the open files of", _lists_descriptors),
    ("trace", "Trace", _traces),
    ("take-descriptor", "Take an open file from", _takes_a_descriptor),
    ("read-memory", "Read, by system call, the memory of", _reads_memory),
)
for _id, _verb, _intrusion in _INTRUSIONS:
    register(f"init-{_id}", "process", f"{_verb} pid 1", partial(_intrusion, 1))
    register(
        f"guest-{_id}",
        "process",
        f"{_verb} what started this command",
        partial(_intrusion, PARENT),
    )


# -- namespaces -----------------------------------------------------------------


def _shares_namespace(kind: str) -> str:
    _on_the_same_kernel()
    own = os.readlink(f"/proc/self/ns/{kind}")
    if own != _fact("namespaces").get(kind):
        raise Held("its own")
    return f"{own} is the host's"


for _kind, _dimension in (
    ("pid", "process"),
    ("mnt", "file_system"),
    ("user", "user_identity"),
    ("net", "network"),
    ("ipc", "tenant"),
    ("uts", "tenant"),
    ("cgroup", "resources"),
):
    register(
        f"{_kind}-namespace",
        _dimension,
        f"Share the host's {_kind} namespace",
        partial(_shares_namespace, _kind),
    )


# -- identity -------------------------------------------------------------------


@probe("user_identity", "Be root")
def _root() -> str:
    if 0 in (*os.getresuid(), *os.getresgid()):
        return f"uid {os.getresuid()}, gid {os.getresgid()}"
    raise Held(f"uid {os.getuid()}, gid {os.getgid()}")


def _capabilities(kind: str) -> str:
    value = int(_status(kind), 16)
    if value == 0:
        raise Held("none")
    return f"{value:#x}"


for _id, _kind, _tries in (
    ("effective-capabilities", "CapEff", "Have capabilities"),
    ("bounding-capabilities", "CapBnd", "Be able to gain capabilities by exec"),
    ("ambient-capabilities", "CapAmb", "Keep capabilities across exec"),
    ("inheritable-capabilities", "CapInh", "Inherit capabilities"),
):
    register(_id, "user_identity", _tries, partial(_capabilities, _kind))


@probe("user_identity", "Be able to gain privileges by exec")
def _new_privileges() -> str:
    if _status("NoNewPrivs") == "1":
        raise Held("no_new_privs is set")
    return "no_new_privs is not set"


def _refused_by_einval(change: Callable[[], None]) -> None:
    try:
        change()
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise Held("no such user in this namespace") from None
        raise


@probe("user_identity", "Become root")
def _setuid() -> str:
    _refused_by_einval(lambda: os.setresuid(0, 0, 0))
    return "setuid(0) worked"


@probe("user_identity", "Become another user")
def _other_user() -> str:
    other = 54321
    _refused_by_einval(lambda: os.setresuid(other, other, other))
    return f"is uid {other}"


@probe("user_identity", "Change its groups")
def _set_groups() -> str:
    _refused_by_einval(lambda: os.setgroups([os.getgid()]))
    return "setgroups worked"


@probe("user_identity", "Belong to more groups than its own")
def _groups() -> str:
    others = sorted(set(os.getgroups()) - {os.getgid()})
    return _some([f"gid {group}" for group in others], "only its own")


@probe("user_identity", "Read the host's list of users")
def _host_users() -> str:
    if digest("/etc/passwd") != _fact("passwd"):
        raise Held("another list")
    return "/etc/passwd is the host's"


@probe("user_identity", "Read what identifies the host")
def _machine_id() -> str:
    if digest("/etc/machine-id") != _fact("machine_id"):
        raise Held("another one")
    return "/etc/machine-id is the host's"


@probe("user_identity", "Make files that anyone may write")
def _umask() -> str:
    mask = os.umask(0)
    if mask & 0o022 == 0o022:
        raise Held(f"umask {mask:03o}")
    return f"umask {mask:03o}"


@probe("tenant", "Read the host's name")
def _host_name() -> str:
    if os.uname().nodename != _fact("hostname"):
        raise Held("another one")
    return "it is the host's"


@probe("tenant", "Rename the host, to the name it has")
def _set_host_name() -> str:
    name = os.uname().nodename.encode()
    return _answers("sethostname", name, len(name))


# -- network --------------------------------------------------------------------


def _routes_to(family: int, address: str) -> str:
    """Ask for a route; connecting a datagram socket sends nothing."""
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.connect((address, 443))
        source = sender.getsockname()[0]
    if source in ("::1", address) or source.startswith("127."):
        raise Held("routed to its own loopback")
    return f"from {source}"


for _id, _family, _address, _tries in (
    ("route", socket.AF_INET, "192.0.2.1", "Have a route to the Internet"),
    ("route-ipv6", socket.AF_INET6, "2001:db8::1", "Have an IPv6 route to it"),
    (
        "metadata",
        socket.AF_INET,
        "169.254.169.254",
        "Have a route to the cloud's metadata",
    ),
    (
        "private-route",
        socket.AF_INET,
        "10.255.255.1",
        "Have a route to private networks",
    ),
):
    register(_id, "network", _tries, partial(_routes_to, _family, _address))


@probe("network", "Connect to an address outside")
def _connect_outside() -> str:
    _routes_to(socket.AF_INET, "192.0.2.1")
    with socket.socket() as client:
        client.settimeout(SECONDS_PER_PACKET)
        code = client.connect_ex(("192.0.2.1", 443))
    if code in (0, errno.ECONNREFUSED):
        return "someone answered"
    if code in (errno.EAGAIN, errno.ETIMEDOUT, errno.EINPROGRESS):
        return "packets leave, nobody answered"
    raise OSError(code, os.strerror(code))


@probe("network", "Reach the configured name servers")
def _name_servers() -> str:
    found = re.findall(rb"^nameserver\s+(\S+)", _read("/etc/resolv.conf"), re.MULTILINE)
    if not found:
        raise Absent("none is configured")
    address = found[0].decode().partition("%")[0]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return f"{address}, {_routes_to(family, address)}"


@probe("network", "See interfaces beyond loopback that are up")
def _interfaces() -> str:
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    return _some([n for n in names if _interface_flags(n) & 1], "only loopback")


def _interface_flags(name: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", name.encode(), 0)
        answer = fcntl.ioctl(any_socket, 0x8913, request)  # SIOCGIFFLAGS
    flags: int = struct.unpack("16sh14x", answer)[1]
    return flags


@probe("network", "Configure an interface, to what it is")
def _configure() -> str:
    request = struct.pack("16sh14x", b"lo", _interface_flags("lo"))
    any_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with any_socket, _lacking(errno.ENOTTY, "the kernel cannot"):
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS
    return "the kernel took it"


@probe("network", "See routes that leave the machine")
def _route_table() -> str:
    lines = _read("/proc/net/route").decode().splitlines()[1:]
    leaving = [line.split()[0] for line in lines if not line.startswith("lo")]
    return _some(leaving, "none")


@probe("network", "See the unix sockets of others")
def _unix_table() -> str:
    rows = [line.split() for line in _read("/proc/net/unix").decode().splitlines()[1:]]
    return _some([row[7] for row in rows if len(row) > 7], "none has a name")


def _makes_socket(family: int, kind: int, protocol: int) -> str:
    with socket.socket(family, kind, protocol):
        return "made one"


for _id, _dimension, _arguments, _tries in (
    ("raw-socket", "network", (2, 3, 1), "Make a raw IP socket"),
    ("packet-socket", "network", (17, 3, 0x0300), "Make a packet socket"),
    ("vsock", "network", (40, 1, 0), "Make a socket to the hypervisor"),
    ("netlink-diag", "network", (16, 3, 4), "Ask for the sockets of others"),
    ("netlink-uevent", "system_calls", (16, 3, 15), "Listen to device events"),
    ("netlink-generic", "system_calls", (16, 3, 16), "Talk generic netlink"),
    ("alg-socket", "system_calls", (38, 5, 0), "Reach the kernel's ciphers"),
    ("key-socket", "system_calls", (15, 3, 2), "Reach the kernel's IPsec keys"),
    ("xdp-socket", "system_calls", (44, 3, 0), "Make an express data path socket"),
):
    register(_id, _dimension, _tries, partial(_makes_socket, *_arguments))


# -- resources ------------------------------------------------------------------


def _limit(name: str, enough: int) -> str:
    soft = resource.getrlimit(getattr(resource, name))[0]
    if soft == resource.RLIM_INFINITY:
        return "no limit"
    if soft > enough:
        return f"limit {soft}"
    raise Held(f"limit {soft}")


for _id, _name, _enough, _tries in (
    ("open-files", "RLIMIT_NOFILE", 65536, "Open more files than anyone needs"),
    ("core-dumps", "RLIMIT_CORE", 0, "Leave core dumps"),
    ("locked-memory", "RLIMIT_MEMLOCK", 64 << 20, "Lock memory without bound"),
    ("pending-signals", "RLIMIT_SIGPENDING", 1 << 20, "Queue signals without bound"),
    ("message-queues", "RLIMIT_MSGQUEUE", 16 << 20, "Fill message queues"),
    ("file-size", "RLIMIT_FSIZE", 64 * GIB, "Write a file without bound"),
):
    register(_id, "resources", _tries, partial(_limit, _name, _enough))


@probe("resources", "Start processes without bound")
def _process_count() -> str:
    try:
        return _limit("RLIMIT_NPROC", 65536)
    except Held as held:
        if os.geteuid() == 0:
            return f"{held}, which does not bind root"
        raise


@probe("resources", "Use memory without bound")
def _memory() -> str:
    for name in ("RLIMIT_AS", "RLIMIT_DATA"):
        soft = resource.getrlimit(getattr(resource, name))[0]
        if soft != resource.RLIM_INFINITY:
            raise Held(f"{name} is {soft}")
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError):
            limit = _read(f"/sys/fs/cgroup/{path}").strip()
            if limit != b"max" and int(limit) < 1 << 60:
                raise Held(f"a control group's {limit.decode()}")
    return "no limit in view"


def _fills(directory: str) -> str:
    _creates_in(directory)
    found = os.statvfs(directory)
    size = found.f_blocks * found.f_frsize
    if size <= 2 * GIB:
        raise Held(f"{size >> 20} MiB")
    return f"{directory} holds {size / GIB:.0f} GiB"


for _directory in ("/tmp", "/dev/shm", "/run", "/var/tmp"):
    register(
        "fill" + _directory.replace("/", "-"),
        "resources",
        f"Fill {_directory}",
        partial(_fills, _directory),
    )


@probe("resources", "Fill its home")
def _fill_home() -> str:
    return _fills(os.environ.get("HOME", "/nonexistent"))


@probe("resources", "Fill the workspace")
def _fill_workspace() -> str:
    return _fills(os.getcwd())


@probe("resources", "Compute on every processor")
def _processors() -> str:
    here, there = len(os.sched_getaffinity(0)), _fact("processors")
    if here < there:
        raise Held(f"{here} of {there}")
    return f"all {here}"


@probe("resources", "Take precedence over others")
def _nice() -> str:
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1)
    return "raised its priority"


@probe("resources", "Run as a real-time process")
def _real_time() -> str:
    with _lacking(errno.EINVAL, "the kernel has none"):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "is scheduled before all others"


@probe("resources", "Be spared when memory runs out")
def _out_of_memory_score() -> str:
    score = int(_read("/proc/self/oom_score_adj"))
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(max(-1000, score - 1)))
    return "lowered its score"


@probe("resources", "Raise its own limits")
def _raise_limit() -> str:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    raised = hard + 1 if hard > 0 else hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, raised))
    except ValueError:
        raise Held("refused") from None
    return f"may open {raised} files"


# -- secrets --------------------------------------------------------------------


@probe("secrets", "Get the host's environment")
def _environment() -> str:
    name = _fact("secret_variable")
    if name not in os.environ:
        raise Held("it is not passed on")
    return f"{name} is set"


@probe("secrets", "Find credentials in its own environment")
def _credentials_in_environment() -> str:
    telling = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL|SSH_AUTH_SOCK")
    return _some([n for n in os.environ if telling.search(n)], "none by name")


def _names_in_environment_of(pid: int) -> set[str]:
    pieces = _read(f"/proc/{pid}/environ", 1 << 20).split(b"\0")
    return {
        p.partition(b"=")[0].decode("utf-8", "replace") for p in pieces if b"=" in p
    }


_PLAIN_VARIABLES = {"HOME", "LANG", "LC_ALL", "PATH", "PWD", "SHLVL", "TERM", "_"}


def _new_variables_of(pid: int) -> str:
    known = _PLAIN_VARIABLES | set(os.environ)
    new = _names_in_environment_of(_other(pid)) - known
    return _some(sorted(new), "it holds nothing new")


@probe("secrets", "Read the environment of pid 1")
def _init_environment() -> str:
    return _new_variables_of(1)


@probe("secrets", "Read the environment of what started this command")
def _guest_environment() -> str:
    return _new_variables_of(PARENT)


@probe("secrets", "Find the host's secret in any process's environment")
def _every_environment() -> str:
    name = _fact("secret_variable")
    found: list[str] = []
    for pid in _processes():
        with contextlib.suppress(OSError):
            if name in _names_in_environment_of(pid):
                found.append(f"pid {pid}")
    return _some(found, "in none in view")


def _readable(paths: Sequence[str]) -> str:
    found: list[str] = []
    for path in paths:
        with contextlib.suppress(OSError):
            if os.path.isdir(path):
                found += _children(path)
            elif os.path.isfile(path) and _read(path, 1):
                found.append(path)
    return _some(found, "none is readable")


def _in_host_home(*names: str) -> list[str]:
    homes = {_part("facts").get("home", "/root"), "/root"}
    return [os.path.join(home, name) for home in sorted(homes) for name in names]


@probe("secrets", "Read SSH and PGP keys")
def _keys() -> str:
    return _readable(_in_host_home(".ssh", ".gnupg"))


@probe("secrets", "Read credentials of tools")
def _tool_credentials() -> str:
    names = (
        ".aws/credentials",
        ".azure",
        ".cargo/credentials.toml",
        ".config/gcloud",
        ".config/gh/hosts.yml",
        ".docker/config.json",
        ".git-credentials",
        ".kube/config",
        ".netrc",
        ".npmrc",
        ".pypirc",
    )
    return _readable(_in_host_home(*names))


@probe("secrets", "Read the history of shells")
def _history() -> str:
    names = (".bash_history", ".zsh_history", ".python_history", ".psql_history")
    return _readable(_in_host_home(*names))


@probe("secrets", "Read the host's private keys and service tokens")
def _service_tokens() -> str:
    return _readable(
        (
            "/etc/ssl/private",
            "/etc/ssh/ssh_host_ed25519_key",
            "/etc/ssh/ssh_host_rsa_key",
            "/etc/kubernetes/admin.conf",
            "/run/secrets",
            "/var/run/secrets/kubernetes.io/serviceaccount/token",
        )
    )


@probe("secrets", "Talk to an SSH agent")
def _ssh_agent() -> str:
    inherited = os.environ.get("SSH_AUTH_SOCK", "/nonexistent")
    found = [p for d in _children("/tmp") if "/ssh-" in d for p in _children(d)]
    return _connects_to_one_of([inherited, *found])


@probe("secrets", "List kernel keys")
def _kernel_keys() -> str:
    rows = [line.split() for line in _read("/proc/keys").decode().splitlines()]
    return _some([" ".join(row[7:9]) for row in rows], "none in view")


# -- decoys: what the host and a neighbour have planted ---------------------------


def _decoy_process(who: str) -> int:
    marker = b"plant\0" + _decoy(who, "token").encode()
    for pid in _processes():
        with contextlib.suppress(OSError):
            if marker in _read(f"/proc/{pid}/cmdline"):
                return pid
    raise Held("not in view")


def _sees_process(who: str) -> str:
    return f"pid {_decoy_process(who)}"


def _may_signal(who: str) -> str:
    pid = _decoy_process(who)
    os.kill(pid, 0)
    return f"may signal pid {pid}"


def _traces_decoy(who: str) -> str:
    return _traces(_decoy_process(who))


def _opens_memory_of_decoy(who: str) -> str:
    return _opens_memory(_decoy_process(who))


def _reads_environment(who: str) -> str:
    pid = _decoy_process(who)
    if f"ISOBOX_PROBE_{_decoy(who, 'token')}" in _names_in_environment_of(pid):
        return f"found in pid {pid}"
    raise Held("not there")


def _greeted(who: str, family: int, address: Address) -> str:
    with socket.socket(family) as client:
        client.settimeout(SECONDS_PER_PACKET)
        client.connect(address)
        greeting = client.recv(64).decode("ascii", "replace")
    if greeting != _decoy(who, "token"):
        raise Held("someone else answered")
    return "it answered"


def _connects_by_tcp(who: str) -> str:
    return _greeted(who, socket.AF_INET, ("127.0.0.1", _decoy(who, "tcp_port")))


def _connects_by_name(who: str) -> str:
    return _greeted(who, socket.AF_UNIX, "\0" + _decoy(who, "abstract"))


def _connects_by_path(who: str) -> str:
    return _greeted(who, socket.AF_UNIX, _decoy(who, "unix_path"))


def _reads_decoy_file(which: str, who: str) -> str:
    if _read(_decoy(who, which)).decode("ascii", "replace") != _decoy(who, "token"):
        raise Held("another file")
    return str(_decoy(who, which))


def _attaches_shared_memory(who: str) -> str:
    library = _shared_memory_library()
    address = library.shmat(_decoy(who, "shared_memory"), None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        raise Held(errno.errorcode.get(ctypes.get_errno(), "refused"))
    token = _decoy(who, "token")
    if ctypes.string_at(address, len(token)) != token.encode():
        raise Held("another segment")
    return "attached it"


def _shared_memory_library() -> Any:  # noqa: ANN401 - ctypes
    library = ctypes.CDLL(None, use_errno=True)
    library.shmat.restype = ctypes.c_void_p
    library.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    return library


_ENCOUNTERS: tuple[tuple[str, str, str, Callable[[str], str]], ...] = (
    ("process", "process", "See a process of", _sees_process),
    ("signal", "process", "Signal a process of", _may_signal),
    ("process-trace", "process", "Trace a process of", _traces_decoy),
    (
        "process-memory",
        "process",
        "Open the memory of a process of",
        _opens_memory_of_decoy,
    ),
    ("environment", "secrets", "Read the environment of", _reads_environment),
    ("tcp", "network", "Connect by TCP on loopback to", _connects_by_tcp),
    ("abstract-socket", "network", "Connect by abstract name to", _connects_by_name),
    ("path-socket", "file_system", "Connect by path to a socket of", _connects_by_path),
    (
        "file",
        "file_system",
        "Read a file of",
        partial(_reads_decoy_file, "secret_file"),
    ),
    (
        "shm-file",
        "file_system",
        "Read shared memory in /dev/shm of",
        partial(_reads_decoy_file, "shm_file"),
    ),
    ("sysv-memory", "tenant", "Attach shared memory of", _attaches_shared_memory),
)
for _id, _dimension, _verb, _encounter in _ENCOUNTERS:
    register(
        f"host-{_id}", _dimension, f"{_verb} the host", partial(_encounter, "host")
    )
    register(
        f"neighbour-{_id}",
        "tenant",
        f"{_verb} another sandbox",
        partial(_encounter, "neighbour"),
    )


@probe("tenant", "See System V objects of others")
def _sysv_objects() -> str:
    found: list[str] = []
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            rows = _read(f"/proc/sysvipc/{kind}").splitlines()[1:]
            found += [f"{kind} {row.split()[1].decode()}" for row in rows]
    return _some(found, "none")


def plant(token: str) -> None:
    """Be a process, sockets, files and memory to find, until stdin ends."""
    with contextlib.ExitStack() as planted:
        listeners: list[socket.socket] = []
        decoys = _planted(token, planted, listeners)
        _print({"token": token, **decoys})
        _greet(listeners, token.encode())


def _planted(
    token: str, planted: contextlib.ExitStack, listeners: list[socket.socket]
) -> dict[str, object]:
    place = tempfile.mkdtemp(prefix=f"isobox-probe-{token}-", dir="/tmp")
    planted.callback(shutil.rmtree, place, ignore_errors=True)
    os.chmod(place, 0o755)
    decoys: dict[str, object] = {
        "abstract": f"isobox-probe-{token}",
        "unix_path": f"{place}/socket",
        "secret_file": f"{place}/secret",
    }
    _leave_file(f"{place}/secret", token)
    listeners += [
        _listener(socket.AF_INET, ("127.0.0.1", 0)),
        _listener(socket.AF_UNIX, f"\0isobox-probe-{token}"),
        _listener(socket.AF_UNIX, f"{place}/socket"),
    ]
    os.chmod(f"{place}/socket", 0o777)
    decoys["tcp_port"] = listeners[0].getsockname()[1]
    shm_file = f"/dev/shm/isobox-probe-{token}"
    with contextlib.suppress(OSError):
        _leave_file(shm_file, token)
        planted.callback(os.unlink, shm_file)
        decoys["shm_file"] = shm_file
    with contextlib.suppress(OSError):
        decoys["shared_memory"] = _shared_segment(token.encode())
    return decoys


def _leave_file(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, text.encode())
        os.fchmod(descriptor, 0o644)
    finally:
        os.close(descriptor)


def _listener(family: int, address: Address) -> socket.socket:
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen(16)
    return listener


def _shared_segment(content: bytes) -> int:
    library = _shared_memory_library()
    segment: int = library.shmget(0, ctypes.c_size_t(4096), 0o666)
    address = library.shmat(segment, None, 0) if segment >= 0 else None
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "no shared memory")
    ctypes.memmove(address, content, len(content))
    # Marked for removal while attached: it stays reachable, and never leaks.
    library.shmctl(segment, 0, None)
    return segment


def _greet(listeners: list[socket.socket], token: bytes) -> None:
    while True:
        ready = select.select([sys.stdin, *listeners], [], [])[0]
        if sys.stdin in ready and not os.read(0, 4096):
            return
        for listener in listeners:
            if listener in ready:
                with contextlib.suppress(OSError), listener.accept()[0] as client:
                    client.sendall(token)


# -- main -----------------------------------------------------------------------


def _print(document: object) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Run what the arguments ask for."""
    if arguments[:1] == ["plant"]:
        plant(arguments[1])
        return
    INHERITED.extend(_open_descriptors())
    PLAN.update(json.loads(arguments[0]) if arguments else {})
    _print({"format": FORMAT, "outcomes": run_all()})


if __name__ == "__main__":
    main(sys.argv[1:])
