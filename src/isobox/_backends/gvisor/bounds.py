"""What a sandbox may use of the host: a control group around gVisor's processes."""

from __future__ import annotations

import resource
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from isobox._core.results import Usage
from isobox._linux import space
from isobox._linux.cgroups import ControlGroup, ControlGroups, GroupLimits, GroupUsage
from isobox.errors import BackendUnavailableError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from isobox._core.results import Exit
    from isobox.abc import Limits, SandboxSpec

MiB: Final = 1024 * 1024
GROUPS: Final = ControlGroups()

#: gVisor itself, with nothing running in it.
_OWN_MEMORY: Final = 128 * MiB
_OWN_TASKS: Final = 256
#: Tasks of the host that a process inside may take: it is one there, and its
#: threads run on as many as gVisor has processors for.
_TASKS_EACH: Final = 8
_NOTHING: Final = GroupUsage(memory=None, cpu=None, pids=None)


class Bounds:
    """What holds a sandbox's use of the host.

    Attributes:
        held: What the control group holds; None where nobody asked, or where it
            cannot.
        reason: Why there is no control group; empty if there is one.
    """

    def __init__(self, spec: SandboxSpec, until: ExitStack) -> None:
        _refuse_what_nobody_watches(spec.limits)
        self.limits = spec.limits
        self.held = GroupLimits()
        self.reason = ""
        self._group: ControlGroup | None = None
        for wanted in _wanted(spec.limits):
            made = GROUPS.create(f"{spec.id[:180]}-{secrets.token_hex(4)}", wanted)
            if isinstance(made, ControlGroup):
                self._group, self.held = made, wanted
                until.callback(made.close)
                return
            self.reason = self.reason or made.reason
        self._refuse_what_is_not_held()

    def _refuse_what_is_not_held(self) -> None:
        if self.limits.memory is not None or self.limits.cpus is not None:
            raise BackendUnavailableError(
                "gVisor's memory and processors are held by a control group, and there "
                f"is none: {self.reason}",
                fix="start isobox as root or where control groups are delegated, or "
                "leave limits.memory and limits.cpus out",
                backend="gvisor",
            )

    @property
    def grouped(self) -> bool:
        """Whether there is a control group."""
        return self._group is not None

    def entrances(self) -> list[int]:
        """Return descriptors by which the first process enters the group.

        The caller closes them.

        Raises:
            OSError: The kernel refused.
        """
        return [] if self._group is None else self._group.entrances()

    def of_the_host(self) -> dict[int, tuple[int, int]]:
        """Return the limits of gVisor's own processes, by number of `resource`."""
        tasks = _tasks(self.limits)
        if tasks is None or self.held.pids is not None:
            return {}
        # Counted for each user namespace: other processes of the user do not count.
        return {resource.RLIMIT_NPROC: (tasks, tasks)}

    def rlimits(self) -> dict[str, int]:
        """Return the limits of each process inside, by setrlimit's name."""
        limits = self.limits
        wanted = {
            "nofile": limits.open_files,
            "fsize": limits.file_size,
            "core": 0,
        }
        return {name: value for name, value in wanted.items() if value is not None}

    def struck(self) -> str:
        """Return what the end of a sandbox may be owed to; empty if nothing is."""
        group = self._group
        if group is None:
            return ""
        if self.held.memory is not None and group.oom_kills():
            return f"it used more than limits.memory={self.limits.memory} allows"
        if self.held.pids is not None and group.refused_forks():
            return f"it started more than limits.processes={self.limits.processes}"
        return ""

    def usage(self, workdir: int) -> Usage:
        """Return what the sandbox uses now."""
        group = _NOTHING if self._group is None else self._group.usage()
        used = space.used(workdir)
        return Usage(memory=group.memory, cpu=group.cpu, disk=used)


def explained(end: Exit) -> Exit:
    """Return how a command ended, with the limit that it ran into."""
    limit = {152: "cpu", 153: "file_size"}.get(end.exit_code or 0)
    return end if limit is None or end.timed_out else replace(end, limit=limit)


def fitted(limits: Limits) -> int:
    """Return the bytes of a private place that does not fill the memory alone."""
    if limits.memory is None:
        return limits.tmp
    return min(limits.tmp, max(limits.memory // 6, MiB))


def _refuse_what_nobody_watches(limits: Limits) -> None:
    if limits.disk is not None:
        raise UnsupportedError(
            "the gvisor backend does not watch how large the directory grows; leave "
            "limits.disk out, or give it a directory on a file system of its own",
            backend="gvisor",
        )


def _tasks(limits: Limits) -> int | None:
    """Return how many tasks of the host so many processes inside may take."""
    if limits.processes is None:
        return None
    return limits.processes * _TASKS_EACH + _OWN_TASKS


def _wanted(limits: Limits) -> Iterator[GroupLimits]:
    """Yield what a group should hold; without asking for more, what it can."""
    memory = None if limits.memory is None else limits.memory + _OWN_MEMORY
    everything = GroupLimits(memory=memory, pids=_tasks(limits), cpus=limits.cpus)
    yield everything
    if memory is None and limits.cpus is None:
        yield GroupLimits()
