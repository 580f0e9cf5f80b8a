"""Commands are kept from the guest's limits and scheduling, on any architecture."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest
from tests.unit._linux.test_seccomp import ALLOW, HIGH, PROFILES, answer, run

from isobox._linux.seccomp import build
from isobox._linux.sparing import _NUMBERS, everywhere
from isobox._linux.syscall_numbers import AUDIT_ARCH, NUMBERS

I386, X32 = 0x40000003, 0x40000000
HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_32.h")
SCHEDULERS = ("sched_setattr", "sched_setparam", "sched_setscheduler")

# call, arguments, whether it is let through
RULES = [
    ("prlimit64", (0, 7, 4096, 0), True),
    ("prlimit64", (0, 7, HIGH | 4096, 0), True),
    ("prlimit64", (HIGH, 7, 4096, 0), True),
    ("prlimit64", (1, 7, 0, 4096), True),  # a question
    ("prlimit64", (1, 7, 4096, 0), False),
    ("prlimit64", (77, 7, 4096, 0), False),
    ("prlimit64", (1, 7, 0x7F0000000000, 0), False),
    ("prlimit64", (HIGH | 1, 7, 4096, 0), False),
    *(
        (name, arguments, allowed)
        for name in SCHEDULERS
        for arguments, allowed in (
            ((0, 1), True),
            ((HIGH, 1), True),
            ((1, 1), False),
            ((77, 0), False),
        )
    ),
    ("sched_setaffinity", (0, 8, 4096), True),
    ("sched_setaffinity", (77, 8, 4096), True),
    ("sched_setaffinity", (1, 8, 4096), False),
    ("sched_setaffinity", (HIGH | 1, 8, 4096), False),
    ("setpriority", (0, 0, 5), True),
    ("setpriority", (0, 1, 5), False),
    ("setpriority", (1, 0, 5), False),  # a group
    ("setpriority", (2, 0, 5), False),  # everybody of the user
    ("ioprio_set", (1, 0, 5), True),
    ("ioprio_set", (1, 1, 5), False),
    ("ioprio_set", (2, 0, 5), False),
    ("ioprio_set", (3, 0, 5), False),
]
SIGNALS = [
    (name, arguments, allowed)
    for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
    for arguments, allowed in (
        ((1, 9), False),
        ((HIGH | 1, 9), False),
        ((77, 9), True),
        ((0xFFFFFFFF, 9), True),  # all there are
    )
]


def wanted(allowed: bool) -> int:
    return ALLOW if allowed else answer(errno.EPERM)


@pytest.mark.parametrize("arch", _NUMBERS, ids=hex)
@pytest.mark.parametrize(("name", "arguments", "allowed"), [*RULES, *SIGNALS])
def test_everywhere(arch, name, arguments, allowed):
    number = _NUMBERS[arch][name]
    assert run(everywhere(), number, arguments, arch) == wanted(allowed)


@pytest.mark.parametrize(("name", "arguments", "allowed"), RULES)
def test_calls_of_x32_are_no_way_around(name, arguments, allowed):
    number = X32 | NUMBERS["x86_64"][name]
    assert run(everywhere(), number, arguments) == wanted(allowed)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("name", "arguments", "allowed"), RULES)
def test_the_usual_filters_have_the_same_rules(profile, arch, name, arguments, allowed):
    code = build(profile, arch=arch)
    found = run(code, NUMBERS[arch][name], arguments, AUDIT_ARCH[arch])
    assert found == wanted(allowed)


@pytest.mark.parametrize("arch", [*_NUMBERS, 0x80000016], ids=hex)
def test_everything_else_is_let_through(arch):
    named = {_NUMBERS.get(arch, {}).get(name) for name, _, _ in [*RULES, *SIGNALS]}
    for number in range(600):
        if number not in named:
            assert run(everywhere(), number, (1, 1, 1), arch) == ALLOW, number


def test_numbers_of_32_bits_are_those_of_the_kernels_headers():
    if not HEADER.exists():
        pytest.skip("no kernel headers here")
    pairs = re.findall(r"#define __NR_(\w+)\s+(\d+)", HEADER.read_text())
    headers = {name: int(number) for name, number in pairs}
    assert {name: headers[name] for name in _NUMBERS[I386]} == _NUMBERS[I386]
