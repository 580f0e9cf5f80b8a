"""Which system calls a workload may make, as a filter for the kernel.

A list of what is refused, with a ceiling: calls that are newer than this list
answer ENOSYS, so that the workload falls back and nothing new is let in unseen.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from isobox._linux.syscall_numbers import AUDIT_ARCH, CEILING, NUMBERS
from isobox._linux.syscalls import architecture
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from isobox._linux.syscalls import Arch

Profile = Literal["standard", "strict"]

_Target = Literal["next", "refuse", "allow"]

_LOAD: Final = 0x20  # a word of `struct seccomp_data`
_MASK: Final = 0x54
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

_NUMBER: Final = 0
_ARCH: Final = 4
_ARGUMENTS: Final = 16

_ALLOW: Final = 0x7FFF0000
_KILL_PROCESS: Final = 0x80000000
_ERRNO: Final = 0x00050000

# libc and runtimes fall back from these when they seem not to exist. openat2
# is here because a filter cannot read the mode behind its pointer, and a set-id
# file on an id-mapped mount belongs to the host's owner of the directory.
_ABSENT: Final = (
    "clone3",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "openat2",
)

_DEBUGGING: Final = ("process_vm_readv", "process_vm_writev", "ptrace")

_FORBIDDEN: Final = (
    "_sysctl",
    "acct",
    "add_key",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "get_kernel_syms",
    "init_module",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "migrate_pages",
    "modify_ldt",
    "mount",
    "move_pages",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "query_module",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "sysfs",
    "syslog",
    "umount2",
    "unshare",
    "uselib",
    "userfaultfd",
    "ustat",
    "vhangup",
)

_STRICT: Final = (
    "cachestat",
    "fanotify_mark",
    "io_cancel",
    "io_destroy",
    "io_getevents",
    "io_pgetevents",
    "io_setup",
    "io_submit",
    "listmount",
    "mbind",
    "memfd_secret",
    "process_madvise",
    "process_mrelease",
    "remap_file_pages",
    "set_mempolicy",
    "set_mempolicy_home_node",
    "statmount",
    "vmsplice",
)

# The native one, 32 bits, an old release's name, and the question which it is.
# Others map memory executable or at fixed places, which exploits are fond of.
_PERSONALITIES: Final = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
_NO_RANDOM_ADDRESSES: Final = 0x40000

_SHARED_BY_ID: Final = (
    "mq_open",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "shmat",
    "shmctl",
    "shmget",
)

# Landlock does not look at these, nor at what they are asked of.
_LABELS: Final = (
    "file_setattr",
    "lremovexattr",
    "lsetxattr",
    "removexattr",
    "removexattrat",
    "setxattr",
    "setxattrat",
)
_OF_OTHERS: Final = (
    "bind",
    "connect",
    "ioprio_set",
    "listen",
    "listmount",
    "statmount",
)
_OF_ONE_PROCESS: Final = (
    "prlimit64",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
)

_SIGNALLING: Final = (
    "kill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "tgkill",
    "tkill",
)

_NEW_NAMESPACES: Final = 0x7E020000
_INJECTIONS: Final = (0x5412, 0x541C, 0x5423)  # TIOCSTI, TIOCLINUX, TIOCSETD
_SET_ID: Final = 0o6000
_CREATES: Final = 0o100 | 0o20000000  # O_CREAT, and O_TMPFILE without O_DIRECTORY

# The argument that holds the mode.
_MODES: Final = {
    "chmod": 1,
    "creat": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "mkdir": 1,
    "mkdirat": 2,
    "mknod": 1,
    "mknodat": 2,
}

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE: Final = 0
_SOCK_TYPE: Final = 0xF
_SOCK_DGRAM: Final = 2


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction of a rule; its jumps lead on or to one of the rule's ends."""

    code: int
    value: int
    hit: _Target = "next"
    miss: _Target = "next"


def build(
    profile: Profile = "standard", *, arch: Arch | None = None, debug: bool = False
) -> bytes:
    """Return the filter as an array of `struct sock_filter`.

    Args:
        profile: `standard` runs what developers run. `strict` refuses, besides,
            UNIX sockets, datagram socket pairs and calls that few programs need.
        arch: The architecture to build for; None is this machine's.
        debug: Let processes trace one another and have addresses that are not
            random, as debuggers need.

    Raises:
        InvalidArgumentError: There is no such profile.
        BackendUnavailableError: This machine is neither x86_64 nor aarch64.
    """
    if profile not in get_args(Profile):
        raise InvalidArgumentError(
            f"no seccomp profile {profile!r}; there are standard and strict"
        )
    program = _Program(arch or architecture())
    program.start()
    _check_modes(program)
    _check_namespaces_and_terminals(program)
    _check_personality(program, debug=debug)
    _check_sockets(program, strict=profile == "strict")
    program.refuse(_ABSENT, errno.ENOSYS)
    program.refuse(_FORBIDDEN, errno.EPERM)
    if not debug:
        program.refuse(_DEBUGGING, errno.EPERM)
    if profile == "strict":
        program.refuse(_STRICT, errno.EPERM)
    return program.finish()


def without_namespaces(*, arch: Arch | None = None) -> bytes:
    """Return a filter that stands in for namespaces, on top of `build`.

    No sockets but connected pairs, no System V or POSIX queues and segments,
    and no reach for other processes' limits, priorities and processors.

    Args:
        arch: The architecture to build for; None is this machine's.

    Raises:
        BackendUnavailableError: This machine is neither x86_64 nor aarch64.
    """
    program = _Program(arch or architecture())
    program.start()
    program.refuse(("socket",), errno.EAFNOSUPPORT)
    program.when(
        "socketpair",
        [
            _argument(1),
            _Step(_MASK, _SOCK_TYPE),
            # A datagram socket reaches any other by its name, paired or not.
            _Step(_IF_EQUAL, _SOCK_DGRAM, hit="refuse"),
        ],
        errno.EAFNOSUPPORT,
    )
    program.refuse(_SHARED_BY_ID, errno.ENOSYS)
    program.refuse(_LABELS, errno.EOPNOTSUPP)
    program.refuse(_OF_OTHERS, errno.EPERM)
    for name in _OF_ONE_PROCESS:
        program.when(name, [_argument(0), _Step(_IF_EQUAL, 0, miss="refuse")])
    myself = _Step(_IF_EQUAL, 0, miss="refuse")
    program.when("setpriority", [_argument(0), myself, _argument(1), myself])
    return program.finish()


def sparing_the_first(*, arch: Arch | None = None) -> bytes:
    """Return a filter, on top of `build`, for a kernel that guards no process 1.

    Linux lets nobody in a pid namespace kill or stop its first process; gVisor does.

    Args:
        arch: The architecture to build for; None is this machine's.

    Raises:
        BackendUnavailableError: This machine is neither x86_64 nor aarch64.
    """
    program = _Program(arch or architecture())
    program.start()
    for name in _SIGNALLING:
        program.when(name, [_argument(0), _Step(_IF_EQUAL, 1, hit="refuse")])
    return program.finish()


def _check_modes(program: _Program) -> None:
    set_id = _Step(_IF_ANY_BIT, _SET_ID, hit="refuse")
    # Without these flags the mode is not an argument: the register holds anything.
    creates = _Step(_IF_ANY_BIT, _CREATES, miss="allow")
    program.when("openat", [_argument(2), creates, _argument(3), set_id])
    program.when("open", [_argument(1), creates, _argument(2), set_id])
    for name, mode in _MODES.items():
        program.when(name, [_argument(mode), set_id])


def _check_namespaces_and_terminals(program: _Program) -> None:
    new_namespace = _Step(_IF_ANY_BIT, _NEW_NAMESPACES, hit="refuse")
    program.when("clone", [_argument(0), new_namespace])
    # SAFETY: the kernel looks at 32 bits of the request, and so must we.
    injections = [_Step(_IF_EQUAL, request, hit="refuse") for request in _INJECTIONS]
    program.when("ioctl", [_argument(1), *injections])


def _check_personality(program: _Program, *, debug: bool) -> None:
    allowed = [*_PERSONALITIES, *([_NO_RANDOM_ADDRESSES] if debug else [])]
    *harmless, last = allowed
    program.when(
        "personality",
        [
            _argument(0),
            *(_Step(_IF_EQUAL, persona, hit="allow") for persona in harmless),
            _Step(_IF_EQUAL, last, hit="allow", miss="refuse"),
        ],
    )


def _check_sockets(program: _Program, *, strict: bool) -> None:
    families = (_AF_INET, _AF_INET6) if strict else (_AF_UNIX, _AF_INET, _AF_INET6)
    program.when(
        "socket",
        [
            _argument(0),
            *(_Step(_IF_EQUAL, family, hit="allow") for family in families),
            _Step(_IF_EQUAL, _AF_NETLINK, miss="refuse"),
            _argument(2),
            _Step(_IF_EQUAL, _NETLINK_ROUTE, miss="refuse"),
        ],
        errno.EAFNOSUPPORT,
    )
    no_datagrams = [
        _argument(1),
        _Step(_MASK, _SOCK_TYPE),
        _Step(_IF_EQUAL, _SOCK_DGRAM, hit="refuse"),
    ]
    program.when(
        "socketpair",
        [
            _argument(0),
            _Step(_IF_EQUAL, _AF_UNIX, miss="refuse"),
            *(no_datagrams if strict else ()),
        ],
        errno.EAFNOSUPPORT,
    )


def _argument(index: int) -> _Step:
    # The low half: both architectures are little-endian, and every argument
    # that is looked at is one of 32 bits to the kernel.
    return _Step(_LOAD, _ARGUMENTS + 8 * index)


class _Program:
    """A filter under construction: after the head, one rule after the other."""

    def __init__(self, arch: Arch) -> None:
        self._arch: Arch = arch
        self._code: list[tuple[int, int, int, int]] = []

    def start(self) -> None:
        """Kill on a foreign architecture; answer ENOSYS to numbers not known.

        The numbers of x32 start far above, so the ceiling covers them.
        """
        self._code += [
            (_LOAD, 0, 0, _ARCH),
            (_IF_EQUAL, 1, 0, AUDIT_ARCH[self._arch]),
            (_RETURN, 0, 0, _KILL_PROCESS),
            (_LOAD, 0, 0, _NUMBER),
            (_IF_AT_LEAST, 0, 1, CEILING),
            (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        ]

    def refuse(self, names: Iterable[str], code: int) -> None:
        """Answer `code` to calls whatever their arguments are."""
        numbers = self._numbers(names)
        self._compare(numbers, skip=1)
        self._code.append((_RETURN, 0, 0, _ERRNO | code))

    def when(self, name: str, steps: Sequence[_Step], code: int = errno.EPERM) -> None:
        """Answer `code` to a call if `steps` say so, and let it through if not."""
        numbers = self._numbers([name])
        if not numbers:
            return
        self._compare(numbers, skip=len(steps) + 2)
        for left, step in zip(range(len(steps) - 1, -1, -1), steps, strict=True):
            ends = {"next": 0, "allow": left, "refuse": left + 1}
            self._code.append((step.code, ends[step.hit], ends[step.miss], step.value))
        self._code.append((_RETURN, 0, 0, _ALLOW))
        self._code.append((_RETURN, 0, 0, _ERRNO | code))

    def finish(self) -> bytes:
        """Let everything else through and return the code."""
        self._code.append((_RETURN, 0, 0, _ALLOW))
        return b"".join(struct.pack("<HBBI", *line) for line in self._code)

    def _numbers(self, names: Iterable[str]) -> list[int]:
        known = NUMBERS[self._arch]
        return [known[name] for name in names if name in known]

    def _compare(self, numbers: Sequence[int], *, skip: int) -> None:
        """Go on if the call is one of `numbers`, else skip so many instructions."""
        for left, number in zip(range(len(numbers) - 1, -1, -1), numbers, strict=True):
            self._code.append((_IF_EQUAL, left, 0 if left else skip, number))
