"""A filter of system calls under construction: its rules become the kernel's code."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from isobox._linux.syscall_numbers import AUDIT_ARCH, CEILING, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from isobox._linux.syscalls import Arch

_Target = Literal["next", "refuse", "allow"]
_Line = tuple[int, int, int, int]

LOAD: Final = 0x20  # a word of `struct seccomp_data`
MASK: Final = 0x54
IF_EQUAL: Final = 0x15
IF_AT_LEAST: Final = 0x35
IF_ANY_BIT: Final = 0x45
RETURN: Final = 0x06

_NUMBER: Final = 0
_ARCH: Final = 4
_ARGUMENTS: Final = 16

_ALLOW: Final = 0x7FFF0000
_KILL_PROCESS: Final = 0x80000000
_ERRNO: Final = 0x00050000

#: A number of x32 is one of x86_64 with this bit.
_X32: Final = 0x40000000


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a rule; its jumps lead on or to one of the rule's ends."""

    code: int
    value: int
    hit: _Target = "next"
    miss: _Target = "next"


def argument(index: int) -> Step:
    """Look at an argument.

    It is the low half: all architectures are little-endian, and the kernel reads
    32 bits of every argument that rules look at, except pointers.
    """
    return Step(LOAD, _ARGUMENTS + 8 * index)


def high_half(index: int) -> Step:
    """Look at the other half of an argument."""
    return Step(LOAD, _ARGUMENTS + 8 * index + 4)


class Program:
    """Rules for one architecture, one after the other."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self._code: list[_Line] = []

    @classmethod
    def alone(cls, arch: Arch) -> Program:
        """Begin a filter that stands alone.

        It kills on a foreign architecture and answers ENOSYS to numbers that are
        not known. Those of x32 start far above, so the ceiling covers them.
        """
        program = cls(NUMBERS[arch])
        program._code += [
            (LOAD, 0, 0, _ARCH),
            (IF_EQUAL, 1, 0, AUDIT_ARCH[arch]),
            (RETURN, 0, 0, _KILL_PROCESS),
            (LOAD, 0, 0, _NUMBER),
            (IF_AT_LEAST, 0, 1, CEILING),
            (RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        ]
        return program

    @classmethod
    def part(cls, numbers: Mapping[str, int]) -> Program:
        """Begin one of several that `either` puts together."""
        program = cls(numbers)
        program._code += [(LOAD, 0, 0, _NUMBER), (MASK, 0, 0, 0xFFFFFFFF ^ _X32)]
        return program

    def refuse(self, names: Iterable[str], code: int) -> None:
        """Answer `code` to calls whatever their arguments are."""
        numbers = self._known(names)
        self._compare(numbers, skip=1)
        self._code.append((RETURN, 0, 0, _ERRNO | code))

    def when(
        self, names: Iterable[str], steps: Sequence[Step], code: int = errno.EPERM
    ) -> None:
        """Answer `code` to calls if `steps` say so, and let them through if not."""
        numbers = self._known(names)
        if not numbers:
            return
        self._compare(numbers, skip=len(steps) + 2)
        for left, step in zip(range(len(steps) - 1, -1, -1), steps, strict=True):
            ends = {"next": 0, "allow": left, "refuse": left + 1}
            self._code.append((step.code, ends[step.hit], ends[step.miss], step.value))
        self._code.append((RETURN, 0, 0, _ALLOW))
        self._code.append((RETURN, 0, 0, _ERRNO | code))

    def finish(self) -> bytes:
        """Let everything else through and return the code."""
        return _packed(self.lines())

    def lines(self) -> list[_Line]:
        """Return the instructions, which let everything else through."""
        return [*self._code, (RETURN, 0, 0, _ALLOW)]

    def _known(self, names: Iterable[str]) -> list[int]:
        return [self._numbers[name] for name in names if name in self._numbers]

    def _compare(self, numbers: Sequence[int], *, skip: int) -> None:
        """Go on if the call is one of `numbers`, else skip so many instructions."""
        for left, number in zip(range(len(numbers) - 1, -1, -1), numbers, strict=True):
            self._code.append((IF_EQUAL, left, 0 if left else skip, number))


def either(parts: Mapping[int, Program]) -> bytes:
    """Return a filter that has rules for several architectures, none for others.

    Args:
        parts: The rules, by what the kernel calls the architecture.
    """
    code: list[_Line] = [(LOAD, 0, 0, _ARCH)]
    for arch, program in parts.items():
        lines = program.lines()
        code += [(IF_EQUAL, 0, len(lines), arch), *lines]
    return _packed([*code, (RETURN, 0, 0, _ALLOW)])


def _packed(code: Iterable[_Line]) -> bytes:
    return b"".join(struct.pack("<HBBI", *line) for line in code)
