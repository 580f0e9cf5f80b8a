"""Which processes belong to a command, and their end."""

from __future__ import annotations

import asyncio
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._channel.deadline import deadline
from isobox._shell.exec import MARK
from isobox.errors import ProtocolError, SandboxLostError

if TYPE_CHECKING:
    from isobox._shell.operators import Operator

#: A process may call itself anything of 15 bytes, a part of such a line as well: the
#: name ends at the last parenthesis that can be its end. The number of threads is the
#: 20th field.
_STAT: Final = re.compile(
    rb"^(\d{1,9}) \((?s:.{0,15})\) ([A-Za-z]) (\d{1,9}) (-?\d{1,9}) (-?\d{1,9}) "
    rb"(?:(?:-?\d{1,20} ){13}(\d{1,9}) )?",
    re.MULTILINE,
)
_LINE: Final = re.compile(
    rb"^(?:==> /proc/(\d{1,9})/environ <==|(" + MARK.encode() + rb"=[0-9a-f]*))\n",
    re.MULTILINE,
)
#: SAFETY: longer than what a process may call itself.
_TURN: Final = b"==/== environments ==/==\n"
#: One program each, however many processes there are. Of the environments, which
#: may be large, little more than the marks comes out.
_LOOK: Final = b"""\
cat /proc/[0-9]*/stat
echo '==/== environments ==/=='
head -c 262144 /proc/[0-9]*/environ /dev/null | tr '\\000' '\\n' |
  grep -F -e '==> /proc/' -e %b= | cut -b 1-64""" % MARK.encode()
#: Bytes of the processes' lines, which are kept, and of all, which is only read.
_MOST, _MOST_READ = 64 << 20, 4 << 30
_LONGEST_LINE: Final = 1 << 16
#: Seconds that the kernel has to end what was killed.
_GRACE: Final = 5.0
_ROUNDS: Final = 64


@dataclass(frozen=True, slots=True)
class Seen:
    """A process, as /proc shows it.

    Attributes:
        pid: Its number.
        state: A letter.
        parent: Its parent's number.
        group: Its process group.
        marked: Whether it bears a mark, of whatever.
        ours: Whether it bears the mark that was looked for.
    """

    pid: int
    state: str
    parent: int
    group: int
    marked: bool
    ours: bool

    @property
    def alive(self) -> bool:
        """Whether it may still do something."""
        return self.state not in "ZX"


class Sight:
    """Takes in what `_LOOK` prints, piece by piece, and keeps a little of it."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._read = bytearray()
        self._stats: dict[int, re.Match[bytes]] | None = None
        self._size = self._of = 0
        self._marked: set[int] = set()
        self._ours: set[int] = set()

    def add(self, piece: bytes) -> None:
        """Take in a piece.

        Raises:
            ProtocolError: It is more than can be.
        """
        self._read += piece
        self._size += len(piece)
        if self._stats is None:
            self._turn(len(piece))
        if self._stats is not None:
            self._note(self._stats)
        longest = _MOST if self._stats is None else _LONGEST_LINE
        # SAFETY: what the workload can make a shell print is without end.
        if len(self._read) > longest or self._size > _MOST_READ:
            raise ProtocolError("the shell inside says more than can be")

    def _turn(self, fresh: int) -> None:
        at = self._read.find(_TURN, max(0, len(self._read) - fresh - len(_TURN)))
        if at >= 0:
            stats = _STAT.finditer(bytes(self._read[:at]))
            self._stats = {int(found[1]): found for found in stats}
            del self._read[: at + len(_TURN)]

    def _note(self, stats: dict[int, re.Match[bytes]]) -> None:
        whole = self._read.rfind(b"\n") + 1
        for found in _LINE.finditer(bytes(self._read[:whole])):
            pid, mark = found.groups()
            if pid is not None:
                self._of = int(pid)
            # SAFETY: a value may have as many headings as it likes.
            if pid is not None or self._of not in stats:
                continue
            self._marked.add(self._of)
            if mark == self._mark:
                self._ours.add(self._of)
        del self._read[:whole]

    def seen(self) -> dict[int, Seen]:
        """Return the processes, by their numbers.

        Raises:
            ProtocolError: There is none, not even what looked.
        """
        # SAFETY: who is not seen is taken to have ended.
        if not self._stats:
            raise ProtocolError("the shell inside does not see itself")
        return {seen.pid: seen for seen in map(self._described, self._stats.values())}

    def _described(self, found: re.Match[bytes]) -> Seen:
        pid, state, parent, group, _, threads = found.groups()
        # Other threads go on when the first has ended.
        goes_on = state == b"Z" and int(threads or b"1") > 1
        return Seen(
            int(pid),
            "R" if goes_on else state.decode(),
            int(parent),
            int(group),
            marked=int(pid) in self._marked,
            ours=int(pid) in self._ours,
        )


def members(seen: dict[int, Seen], pid: int) -> set[int]:
    """Return who belongs to a command: by its mark, or by descent from `pid`.

    The mark is found in who has left the family, descent in who hides the mark.
    """
    found = {each.pid for each in seen.values() if each.ours}
    if pid in seen:
        found.add(pid)
    while more := {each.pid for each in seen.values() if each.parent in found} - found:
        found |= more
    return found - {0, 1}


def stopped_servants(seen: dict[int, Seen]) -> set[int]:
    """Return who was stopped and is no command's: what is around commands."""
    return {
        each.pid for each in seen.values() if each.state in "Tt" and not each.marked
    }


async def look(operator: Operator, mark: str) -> dict[int, Seen]:
    """Return the processes inside, and who of them bears a mark."""
    sight = Sight(mark)
    async for piece in operator.pieces(_LOOK):
        sight.add(piece)
    return sight.seen()


async def running(operator: Operator, mark: str, pid: int) -> set[int]:
    """Return which processes of a command are alive."""
    seen = await look(operator, mark)
    return {each for each in members(seen, pid) if seen[each].alive}


async def strike(operator: Operator, mark: str, pid: int, number: int) -> None:
    """Send a signal to the process group of a command."""
    seen = await look(operator, mark)
    if pid in seen:
        group = seen[pid].group
        them = {each for each in members(seen, pid) if seen[each].group == group}
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
    await _signal(
        operator, stopped_servants(await look(operator, mark)), signal.SIGCONT
    )


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
