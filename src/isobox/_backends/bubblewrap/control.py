"""Limits of a sandbox as a whole: held by a control group, else watched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from isobox._backends.bubblewrap import processes
from isobox._channel.ends import Tally, explained
from isobox._core.results import Usage
from isobox._linux import space, system
from isobox._linux.cgroups import (
    ControlGroup,
    ControlGroups,
    GroupLimits,
    GroupUsage,
)
from isobox.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

    from isobox._backends.bubblewrap.processes import Seen
    from isobox._core.ops import Spawn
    from isobox._core.results import Exit
    from isobox.abc import Limits, SandboxSpec

GROUPS: Final = ControlGroups()

#: Seconds between two looks; a look takes a tenth of the time at most.
_PERIOD: Final = 0.025
_SHARE: Final = 9
#: Seconds after which a directory is measured again though nothing tells of growth.
_STALE: Final = 5.0
#: Seconds that processes have to end when they are killed.
_END: Final = 10.0

_PRIVATE: Final = ("/tmp", "/var/tmp", "/dev/shm", system.HOME)  # noqa: S108
_NOTHING: Final = GroupUsage(memory=None, cpu=None, pids=None)


class Control:
    """What holds a sandbox's use of the host.

    Attributes:
        grouped: Whether there is a control group.
        held: What it holds; None where nobody asked, or where it cannot.
        reason: Why there is no control group, or not all of one.
    """

    def __init__(self, spec: SandboxSpec, workdir: int, held: ExitStack) -> None:
        self._limits = spec.limits
        self._group: ControlGroup | None = None
        self.grouped = False
        self.held = GroupLimits()
        self.reason = ""
        for limits in _wanted(spec.limits):
            made = GROUPS.create(f"{spec.id[:180]}-{secrets.token_hex(4)}", limits)
            if isinstance(made, ControlGroup):
                self._group, self.held, self.grouped = made, limits, True
                held.callback(made.close)
                break
            self.reason = self.reason or made.reason
        self._workdir = _Directory(workdir)
        held.callback(self._workdir.close)
        self._pid = self._born = 0
        self._memory_kills = 0
        self._disk_kills = 0
        self._full = False
        self._stopping = threading.Event()
        self._watch: asyncio.Task[None] | None = None

    # Before the start.

    def entrances(self) -> list[int]:
        """Return descriptors by which the first process enters the group.

        The caller closes them.

        Raises:
            OSError: The kernel refused.
        """
        return [] if self._group is None else self._group.entrances()

    def rlimits(self) -> dict[str, int]:
        """Return the limits of each process, by setrlimit's name in lower case."""
        limits = self._limits
        wanted = {
            "nofile": limits.open_files,
            "fsize": limits.file_size,
            "core": 0,
        }
        if limits.processes is not None:
            # The group counts what it refuses; it should strike first.
            spare = 0 if self.held.pids is None else 64
            wanted["nproc"] = limits.processes + spare
        if self._watches_memory and limits.memory is not None:
            # What one process can take between two looks.
            wanted["data"] = 2 * limits.memory
        return {name: value for name, value in wanted.items() if value is not None}

    @property
    def _watches_memory(self) -> bool:
        return self._limits.memory is not None and self.held.memory is None

    # While it runs.

    def begin(self, pid: int) -> None:
        """Watch over what descends from process `pid` what no group holds."""
        self._pid = pid
        self._born = processes.born(pid)
        if self._watches_memory or self._limits.disk is not None:
            self._watch = asyncio.create_task(self._keep_watching())

    async def end(self) -> None:
        """Stop watching."""
        self._stopping.set()
        if self._watch is not None:
            with anyio.CancelScope(shield=True), contextlib.suppress(OSError):
                await self._watch

    async def _keep_watching(self) -> None:
        while not self._stopping.is_set():
            spent = await anyio.to_thread.run_sync(self._look)
            await asyncio.sleep(max(_PERIOD, _SHARE * spent))

    def _look(self) -> float:
        """Look once; returns the processor seconds that it took."""
        # A workload that slows the machine down must not slow its watcher.
        began = time.thread_time()
        if self._watches_memory:
            self._mind_memory()
        if self._limits.disk is not None:
            self._mind_disk(self._limits.disk)
        return time.thread_time() - began

    def _mind_memory(self) -> None:
        limit = self._limits.memory or 0
        while not self._stopping.is_set():
            # A look at who shares what takes long: only where it matters.
            found = self._processes()
            if sum(seen.resident for seen in found) <= limit:
                return
            workload = _workload(found)
            if not workload or processes.memory(found) <= limit:
                return
            processes.kill(max(workload, key=lambda seen: seen.resident))
            self._memory_kills += 1

    def _mind_disk(self, limit: int) -> None:
        if not self._workdir.may_have_reached(limit):
            return
        self._full = self._measured() >= limit
        if self._full and self._members():
            self._disk_kills += 1
            processes.kill_all(self._members, _END)

    def _measured(self) -> int:
        pids = [seen.pid for seen in self._processes()]
        return self._workdir.measure(pids, lambda: not self._stopping.is_set())

    def _members(self) -> list[Seen]:
        return [] if self._stopping.is_set() else _workload(self._processes())

    def _processes(self) -> list[Seen]:
        found = processes.below(self._pid)
        # SAFETY: should the number be another process's by now, that is spared.
        return found if found and found[0].born == self._born else []

    async def admit(self) -> None:
        """Return if the workspace may grow.

        Raises:
            LimitError: Its directory holds more than `disk` allows.
        """
        limit = self._limits.disk
        if not self._full or limit is None:
            return
        used = await anyio.to_thread.run_sync(self._measured)
        self._full = used >= limit
        if self._full:
            raise LimitError(
                f"the workspace holds {used} bytes of the {limit} that it may "
                "(limits.disk); remove something first"
            )

    # Afterwards.

    def tally(self) -> Tally:
        """Return how often each limit has struck."""
        group = self._group
        return Tally(
            memory=self._memory_kills
            + (0 if group is None or self.held.memory is None else group.oom_kills()),
            processes=0
            if group is None or self.held.pids is None
            else group.refused_forks(),
            disk=self._disk_kills,
        )

    def explain(self, op: Spawn, before: Tally, end: Exit) -> Exit:
        """Return how a command ended, with the limit that it ran into.

        Args:
            op: The command.
            before: The tally when it started.
            end: What the guest says of its end.
        """
        return explained(op, before, self.tally(), end)

    def usage(self) -> Usage:
        """Return what the sandbox uses now."""
        group = _NOTHING if self._group is None else self._group.usage()
        found = self._processes()
        guest = found[min(1, len(found) - 1)].pid if found else 0
        memory = processes.memory(found) if group.memory is None else group.memory
        cpu = sum(seen.cpu for seen in found) if group.cpu is None else group.cpu
        disk = self._measured() + space.private(guest, _PRIVATE)
        return Usage(memory=memory, cpu=cpu, processes=len(found), disk=disk)


class _Directory:
    """The workspace's directory, and what is known of its size."""

    def __init__(self, fd: int) -> None:
        self._fd = os.dup(fd)
        self._used = 0
        self._free = 0
        self._measured = -_STALE
        self._cost = 0.0

    def close(self) -> None:
        os.close(self._fd)

    def may_have_reached(self, limit: int) -> bool:
        """Whether it is time to measure: by its age, or since space went."""
        age = time.monotonic() - self._measured
        if age < _SHARE * self._cost:
            return False
        # Whoever took the space: if it was us, we may be too large.
        gone = self._free - _free(self._fd)
        return age > _STALE or self._used + gone >= limit

    def measure(self, pids: list[int], going: Callable[[], bool]) -> int:
        began = time.thread_time()
        self._free = _free(self._fd)
        device = os.fstat(self._fd).st_dev
        self._used = space.used(self._fd, going) + space.nameless(pids, device)
        self._measured = time.monotonic()
        self._cost = time.thread_time() - began
        return self._used


def _free(fd: int) -> int:
    found = os.fstatvfs(fd)
    return found.f_bfree * found.f_frsize


def fitted(limits: Limits) -> Limits:
    """Return limits whose private places do not fill the memory alone.

    Files in them are memory: if they took all of it, every process would be
    killed for it and none could remove them.
    """
    if limits.memory is None:
        return limits
    return replace(limits, tmp=min(limits.tmp, max(limits.memory // 6, 1 << 20)))


def _wanted(limits: Limits) -> Iterator[GroupLimits]:
    """Yield what a group should hold, and less where that cannot be."""
    everything = GroupLimits(
        memory=limits.memory, pids=limits.processes, cpus=limits.cpus
    )
    slower = replace(everything, cpus=None)
    yield from dict.fromkeys((everything, slower, replace(slower, memory=None)))


def _workload(found: list[Seen]) -> list[Seen]:
    """Leave out what is ours: the first process, and the guest below it."""
    ours = {seen.pid for seen in found[:1]}
    return [seen for seen in found[1:] if seen.parent not in ours]
