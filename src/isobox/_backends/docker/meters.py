"""What a container uses, and how often its limits have struck."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._backends.docker.engine import part
from isobox._channel.ends import Tally
from isobox._core.results import Usage

if TYPE_CHECKING:
    from isobox._backends.docker.engine import Answer

_MOUNTED: Final = "/sys/fs/cgroup"
_LARGEST: Final = 65536


@dataclass(frozen=True, slots=True)
class Groups:
    """The files in which the kernel counts for a container.

    Attributes:
        memory: Where it counts kills.
        processes: Where it counts forks that it refused.
    """

    memory: str | None = None
    processes: str | None = None

    @classmethod
    def of(cls, container: str, pid: int) -> Groups:
        """Find those of a container by its first process on this machine.

        They are not found where the engine runs in a machine of its own.
        """
        memory = processes = None
        for line in _lines(f"/proc/{pid}/cgroup"):
            controllers, _, path = line.partition(":")[2].partition(":")
            # SAFETY: the number may be another machine's; the path tells whose.
            if container not in path or len(container) < 12:
                continue
            names = controllers.split(",")
            if controllers == "":
                memory = memory or f"{_MOUNTED}{path}/memory.events"
                processes = processes or f"{_MOUNTED}{path}/pids.events"
            elif "memory" in names:
                memory = f"{_MOUNTED}/memory{path}/memory.oom_control"
            elif "pids" in names:
                processes = f"{_MOUNTED}/pids{path}/pids.events"
        return cls(memory, processes)

    def tally(self) -> Tally:
        """Return how often each limit has struck."""
        return Tally(
            memory=_count(self.memory, "oom_kill"),
            processes=_count(self.processes, "max"),
        )


def usage(stats: Answer, disk: int | None) -> Usage:
    """Read what the engine says that a container uses."""
    memory = part(stats, "memory_stats")
    return Usage(
        memory=_without_cache(memory),
        cpu=_seconds(part(stats, "cpu_stats", "cpu_usage").get("total_usage")),
        processes=_whole(part(stats, "pids_stats").get("current")),
        disk=disk,
    )


def _without_cache(memory: Answer) -> int | None:
    used = _whole(memory.get("usage"))
    stats = part(memory, "stats")
    # What the kernel gives back when it is asked: the names of v1 and of v2.
    cache = _whole(stats.get("total_inactive_file", stats.get("inactive_file"))) or 0
    return None if used is None else max(used - cache, 0)


def _whole(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _seconds(nanoseconds: object) -> float | None:
    whole = _whole(nanoseconds)
    return None if whole is None else whole / 1e9


def _count(path: str | None, name: str) -> int:
    for line in [] if path is None else _lines(path):
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            return file.read(_LARGEST).decode("ascii", "replace").splitlines()
    return []
