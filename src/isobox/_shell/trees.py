"""Which processes belong to a command, and their end."""

from __future__ import annotations

import asyncio
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._channel.deadline import deadline
from isobox._shell.exec import MARK
from isobox.errors import SandboxLostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._shell.operators import Operator

#: A process may call itself anything of 15 bytes; who forges the line of another
#: process has that killed as itself could.
_STAT: Final = re.compile(
    rb"^(\d{1,9}) \((?s:.{0,64}?)\) ([A-Za-z]) (\d{1,9}) (-?\d{1,9}) (-?\d{1,9}) ",
    re.MULTILINE,
)
_NAMED: Final = re.compile(rb"==> /proc/(\d{1,9})/environ <==\n")
#: One program each, however many processes there are.
_LOOK: Final = b"""\
cat /proc/[0-9]*/stat
echo ==/==
head -c 262144 /proc/[0-9]*/environ /dev/null"""
_MOST: Final = 64 << 20
#: Seconds that the kernel has to end what was killed.
_GRACE: Final = 5.0
_ROUNDS: Final = 64


@dataclass(frozen=True, slots=True)
class Seen:
    """A process, as /proc shows it."""

    pid: int
    state: str
    parent: int
    group: int
    marks: frozenset[bytes]

    @property
    def alive(self) -> bool:
        """Whether it may still do something."""
        return self.state not in "ZX"


def parsed(answer: bytes) -> dict[int, Seen]:
    """Return the processes that an answer describes, by their ids."""
    stats, _, environments = answer.partition(b"==/==\n")
    pieces = _NAMED.split(environments)
    marks = {
        int(pid): frozenset(text.split(b"\0"))
        for pid, text in zip(pieces[1::2], pieces[2::2], strict=True)
    }
    return {seen.pid: seen for seen in _seen(stats, marks)}


def _seen(stats: bytes, marks: dict[int, frozenset[bytes]]) -> Iterator[Seen]:
    for found in _STAT.finditer(stats):
        pid, state, parent, group, _ = found.groups()
        yield Seen(
            int(pid),
            state.decode(),
            int(parent),
            int(group),
            marks.get(int(pid), frozenset()),
        )


def members(seen: dict[int, Seen], mark: str, pid: int) -> set[int]:
    """Return who belongs to a command: by its mark, or by descent from `pid`.

    The mark is found in who has left the family, descent in who hides the mark.
    """
    wanted = mark.encode()
    found = {each.pid for each in seen.values() if wanted in each.marks}
    if pid in seen:
        found.add(pid)
    while more := {each.pid for each in seen.values() if each.parent in found} - found:
        found |= more
    return found - {0, 1}


def stopped_servants(seen: dict[int, Seen]) -> set[int]:
    """Return who was stopped and is no command's: what is around commands."""
    marked = f"{MARK}=".encode()
    return {
        each.pid
        for each in seen.values()
        if each.state in "Tt" and not any(of.startswith(marked) for of in each.marks)
    }


async def look(operator: Operator) -> dict[int, Seen]:
    """Return the processes inside."""
    return parsed(await operator.ask(_LOOK, most=_MOST))


async def running(operator: Operator, mark: str, pid: int) -> set[int]:
    """Return which processes of a command are alive."""
    seen = await look(operator)
    return {each for each in members(seen, mark, pid) if seen[each].alive}


async def strike(operator: Operator, mark: str, pid: int, number: int) -> None:
    """Send a signal to the process group of a command."""
    seen = await look(operator)
    if pid in seen:
        group = seen[pid].group
        them = {each for each in members(seen, mark, pid) if seen[each].group == group}
        await _signal(operator, them, number)


async def kill(operator: Operator, mark: str, pid: int = 0) -> None:
    """Kill a command with every descendant; they are gone when this returns.

    They are stopped first, until no new one is seen: so none can flee. What a
    command has stopped around commands goes on.

    Raises:
        SandboxLostError: They do not die.
    """
    stopped: set[int] = set()
    for _ in range(_ROUNDS):
        fresh = await running(operator, mark, pid) - stopped
        if not fresh:
            break
        await _signal(operator, fresh, signal.SIGSTOP)
        stopped |= fresh
    try:
        async with deadline(_GRACE):
            await _end(operator, mark, pid, stopped)
    except TimeoutError:
        raise SandboxLostError("a command inside does not die") from None
    await _signal(operator, stopped_servants(await look(operator)), signal.SIGCONT)


async def _end(operator: Operator, mark: str, pid: int, them: set[int]) -> None:
    pause = 0.002
    while them:
        await _signal(operator, them, signal.SIGKILL)
        await asyncio.sleep(pause)
        pause = min(0.1, pause * 2)
        them = await running(operator, mark, pid)


async def _signal(operator: Operator, them: set[int], number: int) -> None:
    if them:
        pids = " ".join(map(str, sorted(them)))
        await operator.ask(f"kill -{int(number)} {pids}".encode())
