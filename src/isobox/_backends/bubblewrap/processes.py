"""The processes of a sandbox as the host's /proc shows them."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._linux.syscalls import pidfd_kill, pidfd_open

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Seen:
    """A process at one moment.

    Attributes:
        pid: Its number on the host.
        parent: Its parent's.
        born: When it started; with `pid` this names it for good.
        cpu: Seconds that it and the children it waited for have used.
        resident: Bytes of memory, shared ones included.
    """

    pid: int
    parent: int
    born: int
    cpu: float
    resident: int


def below(root: int) -> list[Seen]:
    """Return process `root` and all that descend from it, parents first."""
    table = {seen.pid: seen for seen in map(_seen, _pids()) if seen is not None}
    children: dict[int, list[Seen]] = {}
    for seen in table.values():
        children.setdefault(seen.parent, []).append(seen)
    found = [table[root]] if root in table else []
    for seen in found:
        found.extend(children.get(seen.pid, ()))
    return found


def born(pid: int) -> int:
    """Return when a process started, 0 if there is none."""
    seen = _seen(pid)
    return 0 if seen is None else seen.born


def child(pid: int) -> int:
    """Return the first child of a process, 0 if there is none."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            found = file.read().split()
    except FileNotFoundError:  # not every kernel lists them
        return next((seen.pid for seen in below(pid)[1:]), 0)
    return int(found[0]) if found else 0


def memory(processes: Iterable[Seen]) -> int:
    """Return the bytes that processes use; what they share counts once."""
    return sum(_proportional(seen) for seen in processes)


def kill(seen: Seen) -> None:
    """Kill a process, unless it is gone."""
    with contextlib.suppress(ProcessLookupError):
        fd = pidfd_open(seen.pid)
        try:
            # SAFETY: the number may be another process's by now.
            now = _seen(seen.pid)
            if now is not None and now.born == seen.born:
                pidfd_kill(fd)
        finally:
            os.close(fd)


def kill_all(members: Callable[[], list[Seen]], timeout: float) -> bool:
    """Kill until `members` finds nobody; returns whether it came to that."""
    deadline = time.monotonic() + timeout
    while left := members():
        if time.monotonic() > deadline:
            return False
        for seen in left:
            kill(seen)
        time.sleep(0.001)
    return True


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _seen(pid: int) -> Seen | None:
    fields = _stat(f"/proc/{pid}/stat")
    alive = fields
    if _looks_dead(fields):
        # A process may go on without its first thread.
        alive = _thread(pid) if fields and int(fields[17]) > 1 else []
    if not alive:
        return None
    return Seen(
        pid=pid,
        parent=int(fields[1]),
        born=int(fields[19]),
        cpu=sum(map(int, fields[11:15])) / _TICK,
        resident=int(alive[21]) * _PAGE,
    )


def _thread(pid: int) -> list[bytes]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for thread in threads:
        fields = _stat(f"/proc/{pid}/task/{thread}/stat")
        if not _looks_dead(fields):
            return fields
    return []


def _stat(path: str) -> list[bytes]:
    """Return the fields after the name, none if the process is gone."""
    try:
        with open(path, "rb", buffering=0) as file:
            # The name is in parentheses and may itself hold any of them.
            return file.read(4096).rpartition(b")")[2].split()
    except OSError:
        return []


def _looks_dead(fields: list[bytes]) -> bool:
    return not fields or fields[0] in (b"Z", b"X")


def _proportional(seen: Seen) -> int:
    try:
        with open(f"/proc/{seen.pid}/smaps_rollup", "rb", buffering=0) as file:
            for line in file.read().splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return seen.resident
