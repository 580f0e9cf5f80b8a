"""Rules that keep commands from disarming, starving and ending the guest.

A process may change the limits and the scheduling of all others of its user. Without
descriptors the guest could start nothing, and without a processor end nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from isobox._linux.seccomp_program import (
    IF_EQUAL,
    Program,
    Step,
    argument,
    either,
    high_half,
)
from isobox._linux.syscall_numbers import AUDIT_ARCH, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Calls of 32 bits: what a 64-bit kernel makes of an old program, and of `int 0x80`.
_I386: Final = {
    "ioprio_set": 289,
    "kill": 37,
    "prlimit64": 340,
    "rt_sigqueueinfo": 178,
    "rt_tgsigqueueinfo": 335,
    "sched_setaffinity": 241,
    "sched_setattr": 351,
    "sched_setparam": 154,
    "sched_setscheduler": 156,
    "setpriority": 97,
    "tgkill": 270,
    "tkill": 238,
}
_ARM: Final = {
    "ioprio_set": 314,
    "kill": 37,
    "prlimit64": 369,
    "rt_sigqueueinfo": 178,
    "rt_tgsigqueueinfo": 363,
    "sched_setaffinity": 241,
    "sched_setattr": 380,
    "sched_setparam": 154,
    "sched_setscheduler": 156,
    "setpriority": 97,
    "tgkill": 268,
    "tkill": 238,
}
_NUMBERS: Final[Mapping[int, Mapping[str, int]]] = {
    AUDIT_ARCH["x86_64"]: NUMBERS["x86_64"],
    0x40000003: _I386,
    AUDIT_ARCH["aarch64"]: NUMBERS["aarch64"],
    0x40000028: _ARM,
}

_SIGNALLING: Final = (
    "kill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "tgkill",
    "tkill",
)
_SCHEDULERS: Final = ("sched_setattr", "sched_setparam", "sched_setscheduler")
_GUEST: Final = 1
_PRIO_PROCESS: Final = 0
_IOPRIO_WHO_PROCESS: Final = 1

_MINE: Final = Step(IF_EQUAL, 0, miss="refuse")


def spare_others(program: Program) -> None:
    """Let a process change limits, priority and scheduler of itself alone.

    It names itself by 0; with its number it would be refused, which a filter
    cannot tell from another's. The processors are another matter: programs choose
    some for each thread, by number. There only the guest, as the first process,
    is spared; what it starts anew begins with the guest's.
    """
    program.when(
        ("prlimit64",),
        [
            argument(0),
            Step(IF_EQUAL, 0, hit="allow"),
            # To ask is free: no new limits are given.
            argument(2),
            Step(IF_EQUAL, 0, miss="refuse"),
            high_half(2),
            Step(IF_EQUAL, 0, miss="refuse"),
        ],
    )
    program.when(_SCHEDULERS, [argument(0), _MINE])
    program.when(
        ("sched_setaffinity",), [argument(0), Step(IF_EQUAL, _GUEST, hit="refuse")]
    )
    for name, kind in (
        ("setpriority", _PRIO_PROCESS),
        ("ioprio_set", _IOPRIO_WHO_PROCESS),
    ):
        this = Step(IF_EQUAL, kind, miss="refuse")
        program.when((name,), [argument(0), this, argument(1), _MINE])


def spare_the_first(program: Program) -> None:
    """Refuse signals to the first process.

    Linux lets nobody in a pid namespace kill or stop its first process; gVisor does.
    """
    program.when(_SIGNALLING, [argument(0), Step(IF_EQUAL, _GUEST, hit="refuse")])


@functools.cache
def everywhere() -> bytes:
    """Return a filter of these rules alone, whatever a container's programs are for.

    It knows x86_64, x32 and i386, aarch64 and arm, and lets all else through.
    """
    parts: dict[int, Program] = {}
    for arch, numbers in _NUMBERS.items():
        parts[arch] = Program.part(numbers)
        spare_others(parts[arch])
        spare_the_first(parts[arch])
    return either(parts)
