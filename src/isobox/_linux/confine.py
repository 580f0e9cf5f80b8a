"""Take rights away from a program with Landlock and seccomp, then run it.

Stands alone: run as `python3 -I -S confine.py FD`. It ends in `execve` with an
empty environment, or with exit status 126 and one line `isobox-confine: STEP:
REASON` on standard error.

FD is read to its end. It holds fields, each ended by a NUL; a field that names a
directive is followed by that many more:

    join FD                     FD is `cgroup.procs` of a control group to enter
                                before anything else
    keep PARENT UID             stay behind as a keeper: the program runs as a
                                child, and when it ends, or the process PARENT
                                that is our parent dies, the keeper kills all that
                                descends from it; and if UID is not 0, all that is
                                of this user, whom nobody else is
    user UID GID                whom to become; no other group is kept
    landlock FILES NET SCOPES   the rights that Landlock takes, as bits
    allow RIGHTS PATH           rights that are kept at PATH and below
    enter PATH                  a directory that the program must reach by name
    seccomp FD                  a filter: an array of `struct sock_filter`
    exec FILE ARGUMENT...       the rest of the list: `argv` from its first

Only `exec` is always there. The keeper is outside of what it confines: the
program can neither trace nor signal it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446
PATH_BENEATH = 1
PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2

#: Of the rights, those that a rule for a file may name: execute, write, read,
#: truncate, ioctl.
OF_FILES = 0x1 | 0x2 | 0x4 | 0x4000 | 0x8000

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class Ruleset(ctypes.Structure):
    """The kernel's `struct landlock_ruleset_attr`."""

    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


class PathBeneath(ctypes.Structure):
    """The kernel's `struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


class Program(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("count", ctypes.c_ushort), ("code", ctypes.c_char_p))


class Step:
    """What is being done, for the one line that says what failed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            fail(f"{self.name}: {os.strerror(error.errno or 0)}")
        if isinstance(error, (ValueError, StopIteration)):
            fail(f"{self.name}: {str(error) or 'incomplete'}")


class Spec:
    """What the fields ask for."""

    def __init__(self, fields: list[bytes]) -> None:
        self.groups: list[int] = []
        self.parent = 0
        self.own_user = 0
        self.user: tuple[int, int] | None = None
        self.landlock: tuple[int, int, int] | None = None
        self.allowed: list[tuple[int, bytes]] = []
        self.enter = b""
        self.seccomp: list[int] = []
        self.argv: list[bytes] = []
        self._take(fields)
        if not self.argv:
            raise ValueError("exec must be there")
        if self.user is not None and min(self.user) < 1:
            raise ValueError("user must not be 0")

    def _take(self, fields: list[bytes]) -> None:
        rest = iter(fields)
        for name in rest:
            if name == b"join":
                self.groups.append(int(next(rest)))
            elif name == b"keep":
                self.parent, self.own_user = int(next(rest)), int(next(rest))
            elif name == b"user":
                self.user = int(next(rest)), int(next(rest))
            elif name == b"landlock":
                self.landlock = int(next(rest)), int(next(rest)), int(next(rest))
            elif name == b"allow":
                self.allowed.append((int(next(rest)), next(rest)))
            elif name == b"enter":
                self.enter = next(rest)
            elif name == b"seccomp":
                self.seccomp.append(int(next(rest)))
            elif name == b"exec":
                self.argv = list(rest)
            else:
                raise ValueError(f"unknown directive {name!r}")


def main() -> None:
    """Do what the spec in the descriptor `argv[1]` asks; never returns."""
    with Step("read the spec"):
        spec = Spec(read_fields(int(sys.argv[1])))
    for group in spec.groups:
        with Step("enter the control group"):
            os.write(group, b"0")  # whoever writes it
            os.close(group)
    if spec.parent:
        stay_behind(spec.parent, spec.own_user)
    filters = [read_all(fd) for fd in spec.seccomp]
    rules = ruleset(spec)
    if spec.user is not None:
        become(*spec.user)
    if spec.parent:
        die_with(os.getppid())
    if spec.enter:
        with Step(f"enter {os.fsdecode(spec.enter)} as user {os.geteuid()}"):
            os.chdir(spec.enter)
            os.chdir("/")
    restrict(rules, filters)
    execute(spec.argv)


def read_fields(fd: int) -> list[bytes]:
    text = read_all(fd)
    if not text.endswith(b"\0"):
        raise ValueError("the last field has no end")
    return text[:-1].split(b"\0")


def read_all(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


# -- the keeper ----------------------------------------------------------------------


def stay_behind(parent: int, own_user: int) -> None:
    """Return in a child; the keeper ends here, with the child's exit status."""

    def end(*_: object, status: int = 0) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if own_user:
            kill_user(own_user)
        kill_descendants()
        os._exit(status & 0xFF)

    with Step("become a keeper"):
        check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
        check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0))
        signal.signal(signal.SIGTERM, end)
        if os.getppid() != parent:
            raise ValueError(f"process {parent} is not the parent")
        child = os.fork()
    if child:
        end(status=await_end(child))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def await_end(child: int) -> int:
    # The program's end of the channel must be the only one.
    os.closerange(0, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def kill_user(uid: int) -> None:
    """Kill all that runs as a user, at one instant: nothing can multiply."""
    if uid < 1:
        raise ValueError("root's processes are not one sandbox's")
    child = os.fork()
    if child:
        # As that user it can be stopped by those whom it is to kill.
        while not os.waitpid(child, os.WNOHANG)[0]:
            os.kill(child, signal.SIGCONT)
            time.sleep(0.001)
        return
    os.setresuid(uid, uid, uid)
    # SAFETY: -1 is everything that we may signal. Without any capability that is
    # what runs as the same user, and nothing else.
    if os.getresuid() == (uid, uid, uid) and not has_capabilities():
        os.kill(-1, signal.SIGKILL)
    os._exit(0)


def has_capabilities() -> bool:
    with open("/proc/self/status", "rb") as file:
        lines = dict(line.split(b":", 1) for line in file if b":" in line)
    return int(lines[b"CapEff"], 16) != 0


def kill_descendants() -> None:
    """Kill what descends from here until nothing does."""
    while reap():
        # Stopped first: what is still cannot multiply.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid, parent in descendants(os.getpid()):
                strike(pid, parent, number)


def reap() -> bool:
    """Wait for what has ended; returns whether a child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def descendants(root: int) -> list[tuple[int, int]]:
    """Return the processes below `root`, and the parent of each."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(parent_of(int(name)), []).append(int(name))
    found: list[tuple[int, int]] = []
    todo = [root]
    while todo:
        parent = todo.pop()
        below = children.get(parent, [])
        found += [(pid, parent) for pid in below]
        todo += below
    return found


def parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            # The name is in parentheses and may itself hold any of them.
            return int(file.read(4096).rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def strike(pid: int, parent: int, number: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # SAFETY: the number may have become another process's meanwhile; now
        # that we hold one, it cannot be exchanged any more.
        if parent_of(pid) == parent:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass
    finally:
        os.close(handle)


# -- the program ---------------------------------------------------------------------


def ruleset(spec: Spec) -> int | None:
    """Return a Landlock ruleset, made while the caller can still open paths."""
    if spec.landlock is None:
        return None
    files, network, scopes = spec.landlock
    with Step("make a Landlock ruleset"):
        taken = Ruleset(files, network, scopes)
        size = ctypes.sizeof(taken)
        rules = syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(taken), size, 0)
    for rights, path in spec.allowed:
        with Step(f"allow {os.fsdecode(path)}"):
            allow(rules, rights & files, path)
    return rules


def allow(rules: int, rights: int, path: bytes) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_mode & 0o170000 != 0o040000:
            rights &= OF_FILES
        rule = PathBeneath(rights, fd)
        syscall(LANDLOCK_ADD_RULE, rules, PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)


def become(uid: int, gid: int) -> None:
    with Step(f"become user {uid}, group {gid}"):
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def die_with(keeper: int) -> None:
    # A change of user clears the signal, so it is asked for after that.
    with Step("tie to the keeper"):
        check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        if os.getppid() != keeper:
            raise ValueError("the keeper is gone")


def restrict(rules: int | None, filters: list[bytes]) -> None:
    with Step("give up new privileges"):
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if rules is not None:
        with Step("restrict itself with Landlock"):
            syscall(LANDLOCK_RESTRICT_SELF, rules, 0)
    for code in filters:
        with Step("filter system calls"):
            program = ctypes.byref(Program(len(code) // 8, code))
            check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0))


def execute(argv: list[bytes]) -> None:
    # Python ignores these two, and what is ignored stays so in the workload.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    with Step(f"execute {os.fsdecode(argv[0])}"):
        os.execve(argv[0], argv, {})  # noqa: S606 - no shell is the point


def syscall(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return check(libc.syscall(ctypes.c_long(number), *words))


def check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def fail(line: str) -> None:
    os.write(2, f"isobox-confine: {line}\n".encode(errors="replace"))
    sys.exit(126)


if __name__ == "__main__":
    main()
