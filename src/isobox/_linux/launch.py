"""Start bubblewrap over directories that are id-mapped, or seen as private views.

Stands alone: run as `python3 -I -S launch.py FD`, by root, who becomes an
ordinary user, or by an ordinary user, who stays who they are. It takes a mount
namespace of its own (an ordinary user needs a user namespace for that), so that
nothing it mounts exists for the host, and ends in
`execve` with an empty environment, or with exit status 126 and one line
`isobox-launch: STEP: REASON` on standard error.

FD is read to its end. It holds fields, each ended by a NUL; a field that names a
directive is followed by that many more:

    parent PID                  be killed when process PID, the parent, dies
    user UID GID                whom to become; no other group is kept
    join FD                     FD is `tasks` or `cgroup.procs` of a control group
                                to enter before anything else; it is closed
    stage PATH                  directory that is covered, in the own namespace
                                only, by what holds the id-mapped mounts
    idmap FD UID GID            FD is a directory whose files belong to UID and
                                GID; from then on the same number is that
                                directory with `user` as the owner of its files
    tree FD                     FD is a directory or file that `user` may not reach
                                by name; the same number then is a copy of its
                                mount that it may, which is seen at `stage`/FD
    overlay FD STATE            FD, as `idmap` left it, becomes a private view of
                                that directory: what changes goes to `upper` in
                                the directory STATE, which has a `work` as well
    scratch FD SIZE FILES MODE  FD becomes an empty private place of `user`, which
                                holds so many bytes and files at most
    open FD ROOT PATH           FD becomes what is at PATH below the directory
                                ROOT, as `idmap` or `tree` left it; no link is
                                followed
    show FD                     what `open` has found is seen at `stage`/FD as well
    rlimit RESOURCE SOFT HARD   numbers of `setrlimit`; -1 is without limit
    oom_score_adj N             who is killed first when memory ends; 1000 is
    exec FILE ARGUMENT...       the rest of the list: `argv` from its first

`parent`, `user` and `exec` are always there, `stage` where `idmap`, `tree`,
`scratch` or `show` is.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# `signal`, `struct` and their like cost more than all the work done here.

AT_EMPTY_PATH = 0x1000
AT_FDCWD = -100
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_IDMAP = 0x00100000
MOVE_MOUNT_F_EMPTY_PATH = 0x4
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REC = 0x4000
MS_PRIVATE = 0x40000
OPEN_TREE_CLONE = 0x1
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
SIGKILL = 9

# Newer than 2018: the same number on every architecture.
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_OPENAT2 = 437
SYS_MOUNT_SETATTR = 442

# RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS
CONFINED = 0x8 | 0x4 | 0x2

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class MountAttributes(ctypes.Structure):
    """The kernel's `struct mount_attr`."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class OpenHow(ctypes.Structure):
    """The kernel's `struct open_how`."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class Step:
    """What is being done, for the one line that says what failed."""

    def __init__(self, name: str, hint: str = "") -> None:
        self.name = name
        self.hint = hint

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            fail(f"{self.name}: {os.strerror(error.errno or 0)}{self.hint}")
        if isinstance(error, (ValueError, StopIteration)):
            fail(f"{self.name}: {str(error) or 'incomplete'}")


class Spec:
    """What the fields ask for."""

    def __init__(self, fields: list[bytes]) -> None:
        self.parent = 0
        self.uid = 0
        self.gid = 0
        self.stage = b""
        self.groups: list[int] = []
        self.idmaps: list[tuple[int, int, int]] = []
        self.trees: list[int] = []
        self.openings: list[tuple[int, int, bytes]] = []
        self.shown: list[int] = []
        self.overlays: list[tuple[int, int]] = []
        self.scratches: list[tuple[int, int, int, bytes]] = []
        self.rlimits: list[tuple[int, int, int]] = []
        self.oom_score_adj: int | None = None
        self.argv: list[bytes] = []
        self._take(fields)
        # SAFETY: below host uid 0, /proc/sys is writable whatever bwrap does.
        if min(self.parent, self.uid, self.gid) < 1 or not self.argv:
            raise ValueError("parent, user and exec must be there, and none be 0")

    def _take(self, fields: list[bytes]) -> None:
        rest = iter(fields)
        for name in rest:
            if name == b"parent":
                self.parent = int(next(rest))
            elif name == b"user":
                self.uid, self.gid = int(next(rest)), int(next(rest))
            elif name == b"stage":
                self.stage = next(rest)
            elif name == b"oom_score_adj":
                self.oom_score_adj = int(next(rest))
            elif name == b"exec":
                self.argv = list(rest)
            else:
                self._add(name, rest)

    def _add(self, name: bytes, rest: Iterator[bytes]) -> None:
        """Take what may be there more than once."""
        if name == b"join":
            self.groups.append(int(next(rest)))
        elif name == b"idmap":
            self.idmaps.append((int(next(rest)), int(next(rest)), int(next(rest))))
        elif name == b"tree":
            self.trees.append(int(next(rest)))
        elif name == b"open":
            self.openings.append((int(next(rest)), int(next(rest)), next(rest)))
        elif name == b"show":
            self.shown.append(int(next(rest)))
        elif name == b"overlay":
            self.overlays.append((int(next(rest)), int(next(rest))))
        elif name == b"scratch":
            place = int(next(rest)), int(next(rest)), int(next(rest)), next(rest)
            self.scratches.append(place)
        elif name == b"rlimit":
            self.rlimits.append((int(next(rest)), int(next(rest)), int(next(rest))))
        else:
            raise ValueError(f"unknown directive {name!r}")


def main() -> None:
    """Do what the spec in the descriptor `argv[1]` asks; never returns."""
    with Step("read the spec"):
        spec = Spec(read_fields(int(sys.argv[1])))
    os.chdir("/")
    for group in spec.groups:
        join(group)
    # The descriptors belong to the host's mount namespace: copy them in there.
    trees = [(clone_tree(idmap[0]), *idmap) for idmap in spec.idmaps]
    ordinary = os.geteuid() != 0
    plain = [] if ordinary else [(clone_tree(fd), fd) for fd in spec.trees]
    if trees or spec.trees or spec.overlays or spec.scratches:
        leave_host_mounts()
        cover(spec.stage)
    if ordinary:
        # Who is not root may copy only what the own namespace has.
        plain = [(clone_tree(reopen(fd)), fd) for fd in spec.trees]
    namespaces: dict[tuple[int, int], int] = {}
    for tree, fd, uid, gid in trees:
        if (uid, gid) not in namespaces:
            namespaces[uid, gid] = mapping_namespace((uid, spec.uid), (gid, spec.gid))
        give_to_user(tree, fd, namespaces[uid, gid])
        attach(tree, fd, spec.stage)
    for tree, fd in plain:
        attach(tree, fd, spec.stage)
    for fd, state in spec.overlays:
        overlay(fd, state, spec.stage)
    fill_descriptors(spec)
    limit(spec)
    become(spec.uid, spec.gid)
    die_with(spec.parent)
    execute(spec.argv)


def fill_descriptors(spec: Spec) -> None:
    """Give numbers what is made, or found, once the directories are mounted."""
    for fd, size, files, mode in spec.scratches:
        scratch(fd, size, files, mode, spec)
    for fd, root, path in spec.openings:
        open_beneath(fd, root, path)
    for fd in spec.shown:
        attach(clone_tree(fd), fd, spec.stage)


def read_fields(fd: int) -> list[bytes]:
    with open(fd, "rb") as file:
        text = file.read()
    if not text.endswith(b"\0"):
        raise ValueError("the last field has no end")
    return text[:-1].split(b"\0")


def join(group: int) -> None:
    with Step("enter the control group"):
        # 0 is whoever writes it.
        os.write(group, b"0")
        os.close(group)


def clone_tree(fd: int) -> int:
    with Step(f"copy the mount of descriptor {fd}"):
        flags = OPEN_TREE_CLONE | os.O_CLOEXEC
        return syscall(SYS_OPEN_TREE, fd, b"", flags | AT_EMPTY_PATH)


def leave_host_mounts() -> None:
    with Step("take a mount namespace"):
        take_mount_namespace()
    with Step("make the mounts private"):
        mount(b"none", b"/", b"none", MS_REC | MS_PRIVATE, None)


def take_mount_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    check(libc.unshare(CLONE_NEWNS if uid == 0 else CLONE_NEWNS | CLONE_NEWUSER))
    if uid:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{uid} {uid} 1")
        write("/proc/self/gid_map", f"{gid} {gid} 1")


def cover(stage: bytes) -> None:
    with Step(f"cover {os.fsdecode(stage)}"):
        flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
        mount(b"isobox", stage, b"tmpfs", flags, b"mode=0711,size=64k,nr_inodes=1024")


def mapping_namespace(uids: tuple[int, int], gids: tuple[int, int]) -> int:
    """Return a user namespace that shows the first id of each pair as the second."""
    with Step("make a user namespace for the id map"):
        pid, ready, release = fork_into_namespace()
        try:
            check_ready(ready)
            write(f"/proc/{pid}/uid_map", f"{uids[0]} {uids[1]} 1")
            write(f"/proc/{pid}/gid_map", f"{gids[0]} {gids[1]} 1")
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(ready)
            os.close(release)
            os.waitpid(pid, 0)


def fork_into_namespace() -> tuple[int, int, int]:
    ready, ready_end = os.pipe()
    release_end, release = os.pipe()
    pid = os.fork()
    if pid:
        os.close(ready_end)
        os.close(release_end)
        return pid, ready, release
    os.close(release)
    failed = libc.unshare(CLONE_NEWUSER)
    os.write(ready_end, bytes([ctypes.get_errno() if failed else 0]))
    os.read(release_end, 1)
    os._exit(0)


def check_ready(ready: int) -> None:
    code = os.read(ready, 1)[0]
    if code:
        raise OSError(code, os.strerror(code))


def give_to_user(tree: int, fd: int, namespace: int) -> None:
    hint = " (id-mapped mounts need Linux 5.12 and a file system that has them)"
    with Step(f"id-map descriptor {fd}", hint):
        # SAFETY: what the sandbox makes here belongs to the owner of the
        # directory, often root: no file of it may run set-id or be a device.
        attributes = MountAttributes(
            attr_set=MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
            userns_fd=namespace,
        )
        size = ctypes.sizeof(attributes)
        reference = ctypes.byref(attributes)
        syscall(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, reference, size)


def attach(tree: int, fd: int, stage: bytes) -> None:
    with Step(f"attach descriptor {fd}"):
        place = b"%s/%d" % (stage, fd)
        make_place(place, fd)
        syscall(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH)
        os.dup2(os.open(place, os.O_PATH), fd)


def make_place(place: bytes, fd: int) -> None:
    if os.fstat(fd).st_mode & 0o170000 == 0o040000:
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def overlay(fd: int, state: int, stage: bytes) -> None:
    with Step(f"overlay descriptor {fd}"):
        lower, layers = reopen(fd), reopen(state)
        place = b"%s/%d.view" % (stage, fd)
        os.mkdir(place)
        # SAFETY: what the layer says of other places of the directory is not
        # believed, and no file shares its content with one below it.
        # It goes with the sandbox, so nobody waits for a disk on its account.
        above = f"/proc/self/fd/{layers}"
        options = (
            f"lowerdir=/proc/self/fd/{lower},upperdir={above}/upper,"
            f"workdir={above}/work,redirect_dir=nofollow,metacopy=off,index=off,"
            "volatile"
        )
        if os.geteuid():
            options += ",userxattr"
        flags = MS_NOSUID | MS_NODEV
        mount(b"isobox", place, b"overlay", flags, options.encode())
        os.dup2(os.open(place, os.O_PATH), fd)
        os.close(state)


def scratch(fd: int, size: int, files: int, mode: bytes, spec: Spec) -> None:
    with Step(f"make a private place of descriptor {fd}"):
        place = b"%s/%d.place" % (spec.stage, fd)
        os.mkdir(place)
        options = b"size=%d,nr_inodes=%d,mode=%b,uid=%d,gid=%d"
        filled = options % (size, files, mode, spec.uid, spec.gid)
        mount(b"isobox", place, b"tmpfs", MS_NOSUID | MS_NODEV, filled)
        os.dup2(os.open(place, os.O_PATH), fd)


def reopen(fd: int) -> int:
    """Return what `fd` is as the own mount namespace has it."""
    path = os.readlink(f"/proc/self/fd/{fd}")
    found = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    # SAFETY: the path is only a hint; something else there is refused.
    if not os.path.samestat(os.fstat(fd), os.fstat(found)):
        raise ValueError(f"{path} is something else now")
    return found


def open_beneath(fd: int, root: int, path: bytes) -> None:
    with Step(f"open {os.fsdecode(path)}"):
        # SAFETY: an earlier sandbox may have left links here (CVE-2024-42472).
        how = OpenHow(flags=os.O_PATH | os.O_CLOEXEC, resolve=CONFINED)
        size = ctypes.sizeof(how)
        opened = syscall(SYS_OPENAT2, root, path, ctypes.byref(how), size)
        os.dup2(opened, fd)


def limit(spec: Spec) -> None:
    if spec.oom_score_adj is not None:
        with Step("set oom_score_adj"):
            write("/proc/self/oom_score_adj", str(spec.oom_score_adj))
    for number, soft, hard in spec.rlimits:
        with Step(f"set resource limit {number}"):
            resource.setrlimit(number, (soft, hard))


def become(uid: int, gid: int) -> None:
    with Step(f"become user {uid}, group {gid}"):
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        if (os.geteuid(), os.getegid()) != (uid, gid):
            raise ValueError("only root can become somebody else")
    with Step("give up new privileges"):
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def die_with(parent: int) -> None:
    # A change of user clears the signal, so it is asked for last.
    with Step("tie to the parent"):
        check(libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
        if os.getppid() != parent:
            raise ValueError(f"process {parent} is not the parent")


def execute(argv: list[bytes]) -> None:
    # Python ignores some, whoever started us perhaps others, and what is ignored
    # stays so in the workload.
    for number in range(1, 32):
        libc.signal(number, None)
    with Step(f"execute {os.fsdecode(argv[0])}"):
        os.execve(argv[0], argv, {})  # noqa: S606 - no shell is the point


def mount(
    source: bytes, target: bytes, kind: bytes, flags: int, data: bytes | None
) -> None:
    check(libc.mount(source, target, kind, ctypes.c_ulong(flags), data))


def syscall(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return check(libc.syscall(ctypes.c_long(number), *words))


def check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def write(path: str, text: str) -> None:
    with open(path, "wb", 0) as file:
        file.write(text.encode())


def fail(line: str) -> None:
    os.write(2, f"isobox-launch: {line}\n".encode(errors="replace"))
    sys.exit(126)


if __name__ == "__main__":
    main()
