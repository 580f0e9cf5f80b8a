"""The filter, rule by rule, on both architectures: run by an interpreter of BPF."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from isobox._linux.seccomp import Profile, build, without_namespaces
from isobox._linux.syscall_numbers import AUDIT_ARCH, CEILING, NUMBERS
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from isobox._linux.syscalls import Arch

ARCHES: tuple[Arch, ...] = ("x86_64", "aarch64")
PROFILES: tuple[Profile, ...] = ("standard", "strict")
HEADERS: dict[Arch, Path] = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
HIGH = 0xDEADBEEF << 32
KILL, ALLOW = 0x80000000, 0x7FFF0000


def words(text: str) -> list[str]:
    return text.split()


def answer(code: int) -> int:
    return 0x00050000 | code


def run(
    code: bytes, number: int, arguments=(), arch: int = AUDIT_ARCH["x86_64"]
) -> int:
    """Interpret the filter as the kernel does and return its verdict."""
    words = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack(
        "<iIQ6Q", struct.unpack("<i", struct.pack("<I", number))[0], arch, 0, *words
    )
    lines = list(struct.iter_unpack("<HBBI", code))
    accumulator, at = 0, 0
    while True:
        operation, hit, miss, value = lines[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                at += hit if accumulator == value else miss
            case 0x35:
                at += hit if accumulator >= value else miss
            case 0x45:
                at += hit if accumulator & value else miss
            case 0x06:
                return int(value)
            case _:
                pytest.fail(f"unknown operation {operation:#x}")


def verdict(arch, name, *arguments, profile="standard", debug=False) -> int:
    code = build(profile, arch=arch, debug=debug)
    return run(code, NUMBERS[arch][name], arguments, AUDIT_ARCH[arch])


ABSENT = words("""
    clone3 io_uring_setup io_uring_enter io_uring_register open_tree
    open_tree_attr
    move_mount fsopen fsconfig fsmount fspick mount_setattr openat2
""")

FORBIDDEN = words("""
    unshare setns mount umount2 pivot_root chroot add_key request_key keyctl
    bpf
    perf_event_open userfaultfd kexec_load kexec_file_load init_module finit_module
    delete_module open_by_handle_at name_to_handle_at kcmp pidfd_getfd quotactl
    quotactl_fd acct swapon swapoff reboot sethostname setdomainname vhangup syslog
    nfsservctl lookup_dcookie settimeofday clock_settime clock_adjtime move_pages
    migrate_pages fanotify_init ptrace process_vm_readv process_vm_writev
""")

FORBIDDEN_ON_X86_64 = words("""
    create_module query_module get_kernel_syms iopl ioperm uselib
    ustat
    sysfs _sysctl modify_ldt
""")

STRICT = words("""
    vmsplice process_madvise process_mrelease mbind set_mempolicy
    set_mempolicy_home_node fanotify_mark remap_file_pages memfd_secret io_setup
    io_submit io_destroy io_getevents io_pgetevents io_cancel statmount listmount
    cachestat
""")

EPERM, ENOSYS, EAF = errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT

# call, arguments, answer (0: let through); on both architectures and profiles.
BOTH = [
    *((name, (), ENOSYS) for name in ABSENT),
    *((name, (), EPERM) for name in FORBIDDEN),
    ("clone", (17,), 0),
    ("clone", (0x003D0F00,), 0),  # a thread
    ("clone", (HIGH | 17,), 0),
    *(
        ("clone", (flag | 17,), EPERM)
        for flag in (0x20000, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30)
    ),
    ("clone", (HIGH | 0x10000000,), EPERM),
    ("ioctl", (0, 0x5401), 0),
    ("ioctl", (0, 0x5412), EPERM),
    ("ioctl", (0, HIGH | 0x5412), EPERM),
    ("ioctl", (0, 0x541C), EPERM),
    ("ioctl", (0, HIGH | 0x541C), EPERM),
    ("ioctl", (0, 0x5423), EPERM),
    ("socket", (2, 1, 0), 0),
    ("socket", (2, 2, 17), 0),
    ("socket", (10, 1, 6), 0),
    ("socket", (HIGH | 10, 1, 6), 0),
    ("socket", (16, 3, 0), 0),
    ("socket", (16, 3, HIGH), 0),
    ("socket", (16, 3, 12), EAF),  # netfilter
    ("socket", (16, 3, 15), EAF),  # uevents
    ("socket", (HIGH | 40, 1, 0), EAF),  # vsock
    ("socket", (17, 3, 0), EAF),  # packet
    ("socket", (38, 5, 0), EAF),  # alg
    ("socket", (0, 1, 0), EAF),
    ("socketpair", (1, 1, 0), 0),
    ("socketpair", (1, 1 | 0o2000000, 0), 0),
    ("socketpair", (1, 5, 0), 0),
    ("socketpair", (2, 1, 0), EAF),
    ("fchmod", (3, 0o755), 0),
    ("fchmod", (3, 0o1777), 0),
    ("fchmod", (3, 0o4755), EPERM),
    ("fchmod", (3, 0o2755), EPERM),
    ("fchmod", (3, HIGH | 0o4000), EPERM),
    ("fchmodat", (3, 0, 0o644), 0),
    ("fchmodat", (3, 0, 0o4755), EPERM),
    ("fchmodat2", (3, 0, 0o755, 0x1000), 0),
    ("fchmodat2", (3, 0, 0o2000, 0x1000), EPERM),
    ("mknodat", (3, 0, 0o100644, 0), 0),
    ("mknodat", (3, 0, 0o104755, 0), EPERM),
    ("mkdirat", (3, 0, 0o1777), 0),
    ("mkdirat", (3, 0, 0o2755), EPERM),
    ("openat", (3, 0, 0, 0o6000), 0),
    ("openat", (3, 0, 0o101, 0o644), 0),
    ("openat", (3, 0, 0o101, 0o4755), EPERM),
    ("openat", (3, 0, 0o101, 0o2755), EPERM),
    ("openat", (3, 0, 0o20200002, 0o4755), EPERM),
    ("openat", (3, 0, HIGH | 0o100, HIGH | 0o4755), EPERM),
    *(("personality", (persona,), 0) for persona in (0, 8, 0x20000, 0x20008)),
    ("personality", (0xFFFFFFFF,), 0),  # which one it is
    ("personality", (HIGH,), 0),
    ("personality", (1,), EPERM),
    ("personality", (0x400000,), EPERM),  # READ_IMPLIES_EXEC
    ("personality", (0x400008,), EPERM),
    ("personality", (0x100000,), EPERM),  # MMAP_PAGE_ZERO
    ("personality", (0x200000,), EPERM),  # ADDR_COMPAT_LAYOUT
    ("personality", (0x40000,), EPERM),  # ADDR_NO_RANDOMIZE
    ("personality", (HIGH | 0x400000,), EPERM),
]

X86_64 = [
    *((name, (), EPERM) for name in FORBIDDEN_ON_X86_64),
    ("chmod", (0, 0o755), 0),
    ("chmod", (0, 0o4755), EPERM),
    ("creat", (0, 0o644), 0),
    ("creat", (0, 0o4755), EPERM),
    ("mkdir", (0, 0o755), 0),
    ("mkdir", (0, 0o2755), EPERM),
    ("mknod", (0, 0o10644, 0), 0),
    ("mknod", (0, 0o102755, 0), EPERM),
    ("open", (0, 0, 0o6000), 0),
    ("open", (0, 0o102, 0o600), 0),
    ("open", (0, 0o102, 0o4600), EPERM),
    ("open", (0, 0o20200001, 0o2600), EPERM),
]

BY_PROFILE = [
    ("socket", (1, 1, 0), 0, EAF),
    ("socket", (1, 2, 0), 0, EAF),
    ("socketpair", (1, 2, 0), 0, EAF),
    ("socketpair", (1, 2 | 0o2004000, 0), 0, EAF),
    *((name, (), 0, EPERM) for name in STRICT),
]


def expected(code: int) -> int:
    return answer(code) if code else ALLOW


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("arch", ARCHES)
def test_rules_of_both_architectures(arch, profile):
    wrong = [
        (name, arguments)
        for name, arguments, code in BOTH
        if verdict(arch, name, *arguments, profile=profile) != expected(code)
    ]
    assert wrong == []


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("name", "arguments", "code"), X86_64)
def test_rules_of_old_calls(profile, name, arguments, code):
    assert verdict("x86_64", name, *arguments, profile=profile) == expected(code)
    assert name not in NUMBERS["aarch64"]


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("name", "arguments", "standard", "strict"), BY_PROFILE)
def test_rules_by_profile(arch, name, arguments, standard, strict):
    assert verdict(arch, name, *arguments) == expected(standard)
    assert verdict(arch, name, *arguments, profile="strict") == expected(strict)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("arch", ARCHES)
def test_debug_lets_processes_be_traced_and_no_more(arch, profile):
    for name in FORBIDDEN:
        traces = name in ("ptrace", "process_vm_readv", "process_vm_writev")
        found = verdict(arch, name, profile=profile, debug=True)
        assert found == (ALLOW if traces else answer(EPERM)), name


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("arch", ARCHES)
def test_debug_lets_addresses_be_fixed_and_no_more(arch, profile):
    found = {
        persona: verdict(arch, "personality", persona, profile=profile, debug=True)
        for persona in (0, 0xFFFFFFFF, 0x40000, 0x440000, 0x400000, 0x40008)
    }
    let_through = {persona for persona, answered in found.items() if answered == ALLOW}
    assert let_through == {0, 0xFFFFFFFF, 0x40000}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("arch", ARCHES)
def test_every_other_number_is_let_through_up_to_the_ceiling(arch, profile):
    code = build(profile, arch=arch)
    named = set(NUMBERS[arch].values())
    for number in range(CEILING):
        if number not in named:
            assert run(code, number, arch=AUDIT_ARCH[arch]) == ALLOW, number


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    "number", [CEILING, 548, 0x3FFFFFFF, 0x40000000, 0x40000029, 0xFFFFFFFF]
)
def test_numbers_from_the_ceiling_on_do_not_exist(arch, number):
    assert run(build(arch=arch), number, arch=AUDIT_ARCH[arch]) == answer(ENOSYS)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("foreign", [0x40000003, 0x40000028, 0xC000003E, 0xC00000B7, 0])
def test_a_foreign_architecture_is_killed(arch, foreign):
    wanted = ALLOW if foreign == AUDIT_ARCH[arch] else KILL
    # 221 is fadvise64 on one and execve on the other.
    assert run(build(arch=arch), 221, arch=foreign) == wanted


@pytest.mark.parametrize("arch", ARCHES)
def test_numbers_are_those_of_the_kernels_headers(arch):
    if not HEADERS[arch].exists():
        pytest.skip("no kernel headers here")
    text = HEADERS[arch].read_text()
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)
    headers = {name: int(number) for name, number in found}
    newer = {name for name in NUMBERS[arch] if name not in headers}
    assert newer <= {
        "cachestat",
        "fchmodat2",
        "file_setattr",
        "listmount",
        "open_tree_attr",
        "removexattrat",
        "setxattrat",
        "statmount",
    }
    for name in NUMBERS[arch].keys() - newer:
        assert NUMBERS[arch][name] == headers[name], name


def test_an_architecture_lacks_only_what_its_headers_lack():
    header = HEADERS["aarch64"]
    if not header.exists():
        pytest.skip("no kernel headers here")
    for name in NUMBERS["x86_64"].keys() - NUMBERS["aarch64"].keys():
        assert not re.search(rf"__NR(3264)?_{name}\s", header.read_text()), name


def test_an_unknown_profile_is_refused():
    with pytest.raises(InvalidArgumentError, match="standard and strict"):
        build("lax")


@pytest.mark.parametrize("profile", PROFILES)
def test_the_filter_is_small_and_well_formed(profile):
    for arch in ARCHES:
        lines = list(struct.iter_unpack("<HBBI", build(profile, arch=arch)))
        assert len(lines) < 200
        for at, (operation, hit, miss, _) in enumerate(lines):
            if operation in (0x15, 0x35, 0x45):
                assert at + 1 + max(hit, miss) < len(lines)


ALONE = [
    *((name, (), EAF) for name in ["socket"]),
    *(("socketpair", (1, kind), EAF) for kind in (2, 0x802, 0x80002)),
    *(("socketpair", (1, kind), 0) for kind in (1, 5, 0x801)),
    *(
        (name, (), ENOSYS)
        for name in words("""
            shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv
            msgctl mq_open mq_unlink
        """)
    ),
    *(
        (name, (), errno.EOPNOTSUPP)
        for name in words("""
            setxattr lsetxattr removexattr lremovexattr setxattrat removexattrat
            file_setattr
        """)
    ),
    *((name, (), EPERM) for name in words("bind connect listen ioprio_set statmount")),
    *(
        call
        for name in words("""
            prlimit64 sched_setaffinity sched_setattr sched_setparam
            sched_setscheduler
        """)
        for call in ((name, (0, 1), 0), (name, (77, 1), EPERM), (name, (HIGH,), 0))
    ),
    ("setpriority", (0, 0, 5), 0),
    ("setpriority", (0, 77, 5), EPERM),
    ("setpriority", (2, 0, 5), EPERM),  # everybody of the user
]


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("name", "arguments", "wanted"), ALONE)
def test_what_stands_in_for_namespaces(arch, name, arguments, wanted):
    code = without_namespaces(arch=arch)
    found = run(code, NUMBERS[arch][name], arguments, AUDIT_ARCH[arch])
    assert found == (answer(wanted) if wanted else ALLOW)


@pytest.mark.parametrize("arch", ARCHES)
def test_what_stands_in_for_namespaces_lets_all_else_through(arch):
    code = without_namespaces(arch=arch)
    named = {NUMBERS[arch][name] for name, _, _ in ALONE} | {458}
    for number in range(CEILING):
        if number not in named:
            assert run(code, number, arch=AUDIT_ARCH[arch]) == ALLOW, number
    assert run(code, CEILING, arch=AUDIT_ARCH[arch]) == answer(ENOSYS)
    assert run(code, 0, arch=3) == KILL
