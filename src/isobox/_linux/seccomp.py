"""Which system calls a workload may make, as a filter for the kernel.

A list of what is refused, with a ceiling: calls that are newer than this list
answer ENOSYS, so that the workload falls back and nothing new is let in unseen.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, Literal, get_args

from isobox._linux.seccomp_program import (
    IF_ANY_BIT,
    IF_EQUAL,
    MASK,
    Program,
    Step,
    argument,
)
from isobox._linux.sparing import spare_others, spare_the_first
from isobox._linux.syscalls import architecture
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from isobox._linux.syscalls import Arch

Profile = Literal["standard", "strict"]

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

_NEW_NAMESPACES: Final = 0x7E020000
_INJECTIONS: Final = (0x5412, 0x541C, 0x5423)  # TIOCSTI, TIOCLINUX, TIOCSETD
_SET_ID: Final = 0o6000
_CREATES: Final = 0o100 | 0o20000000  # O_CREAT, and O_TMPFILE without O_DIRECTORY

# By the argument that holds the mode.
_MODES: Final = {
    1: ("chmod", "creat", "fchmod", "mkdir", "mknod"),
    2: ("fchmodat", "fchmodat2", "mkdirat", "mknodat"),
}

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE: Final = 0
_SOCK_TYPE: Final = 0xF
_SOCK_DGRAM: Final = 2


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
    program = Program.alone(arch or architecture())
    _check_modes(program)
    _check_namespaces_and_terminals(program)
    _check_personality(program, debug=debug)
    _check_sockets(program, strict=profile == "strict")
    spare_others(program)
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
    program = Program.alone(arch or architecture())
    program.refuse(("socket",), errno.EAFNOSUPPORT)
    program.when(
        ("socketpair",),
        [
            argument(1),
            Step(MASK, _SOCK_TYPE),
            # A datagram socket reaches any other by its name, paired or not.
            Step(IF_EQUAL, _SOCK_DGRAM, hit="refuse"),
        ],
        errno.EAFNOSUPPORT,
    )
    program.refuse(_SHARED_BY_ID, errno.ENOSYS)
    program.refuse(_LABELS, errno.EOPNOTSUPP)
    program.refuse(_OF_OTHERS, errno.EPERM)
    myself = Step(IF_EQUAL, 0, miss="refuse")
    program.when(_OF_ONE_PROCESS, [argument(0), myself])
    program.when(("setpriority",), [argument(0), myself, argument(1), myself])
    return program.finish()


def sparing_the_first(*, arch: Arch | None = None) -> bytes:
    """Return a filter, on top of `build`, for a kernel that guards no process 1.

    Args:
        arch: The architecture to build for; None is this machine's.

    Raises:
        BackendUnavailableError: This machine is neither x86_64 nor aarch64.
    """
    program = Program.alone(arch or architecture())
    spare_the_first(program)
    return program.finish()


def _check_modes(program: Program) -> None:
    set_id = Step(IF_ANY_BIT, _SET_ID, hit="refuse")
    # Without these flags the mode is not an argument: the register holds anything.
    creates = Step(IF_ANY_BIT, _CREATES, miss="allow")
    program.when(("openat",), [argument(2), creates, argument(3), set_id])
    program.when(("open",), [argument(1), creates, argument(2), set_id])
    for mode, names in _MODES.items():
        program.when(names, [argument(mode), set_id])


def _check_namespaces_and_terminals(program: Program) -> None:
    new_namespace = Step(IF_ANY_BIT, _NEW_NAMESPACES, hit="refuse")
    program.when(("clone",), [argument(0), new_namespace])
    # SAFETY: the kernel looks at 32 bits of the request, and so must we.
    injections = [Step(IF_EQUAL, request, hit="refuse") for request in _INJECTIONS]
    program.when(("ioctl",), [argument(1), *injections])


def _check_personality(program: Program, *, debug: bool) -> None:
    allowed = [*_PERSONALITIES, *([_NO_RANDOM_ADDRESSES] if debug else [])]
    *harmless, last = allowed
    program.when(
        ("personality",),
        [
            argument(0),
            *(Step(IF_EQUAL, persona, hit="allow") for persona in harmless),
            Step(IF_EQUAL, last, hit="allow", miss="refuse"),
        ],
    )


def _check_sockets(program: Program, *, strict: bool) -> None:
    families = (_AF_INET, _AF_INET6) if strict else (_AF_UNIX, _AF_INET, _AF_INET6)
    program.when(
        ("socket",),
        [
            argument(0),
            *(Step(IF_EQUAL, family, hit="allow") for family in families),
            Step(IF_EQUAL, _AF_NETLINK, miss="refuse"),
            argument(2),
            Step(IF_EQUAL, _NETLINK_ROUTE, miss="refuse"),
        ],
        errno.EAFNOSUPPORT,
    )
    no_datagrams = [
        argument(1),
        Step(MASK, _SOCK_TYPE),
        Step(IF_EQUAL, _SOCK_DGRAM, hit="refuse"),
    ]
    program.when(
        ("socketpair",),
        [
            argument(0),
            Step(IF_EQUAL, _AF_UNIX, miss="refuse"),
            *(no_datagrams if strict else ()),
        ],
        errno.EAFNOSUPPORT,
    )
