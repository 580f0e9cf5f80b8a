"""A control group for each sandbox: limits, accounting and an end for all in it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import select
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from io import FileIO
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from typing_extensions import override

from isobox._linux.syscalls import pidfd_kill, pidfd_open
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Generator,
        Iterable,
        Iterator,
        Mapping,
    )

_PREFIX: Final = "isobox-"
_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,199}")
_BATCH: Final = 256  # descriptors held at once
_PERIOD: Final = 100_000  # microseconds
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIMITED: Final = ("memory", "pids", "cpu")
_V1: Final = (*_LIMITED, "cpuacct")
#: Without a limit these still count, or share fairly between groups.
_ALWAYS: Final = frozenset(("pids", "cpu", "cpuacct"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Limits of all processes of a group together; None is without limit.

    Attributes:
        memory: Bytes, swap and files on tmpfs included.
        pids: Processes and threads.
        cpus: CPUs' worth of time; 0.5 is half of one.
    """

    memory: int | None = None
    pids: int | None = None
    cpus: float | None = None

    @property
    def controllers(self) -> frozenset[str]:
        """The controllers that enforce what is limited."""
        values = zip(_LIMITED, (self.memory, self.pids, self.cpus), strict=True)
        return frozenset(name for name, value in values if value is not None)

    @property
    def quota(self) -> int | None:
        """Microseconds of CPU time in each period."""
        return None if self.cpus is None else max(1000, round(self.cpus * _PERIOD))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUsage:
    """What a group uses; None is not accounted on this machine.

    Attributes:
        memory: Bytes now.
        cpu: Seconds since the group was made.
        pids: Processes and threads now.
    """

    memory: int | None
    cpu: float | None
    pids: int | None


@dataclass(frozen=True, slots=True)
class NoControlGroup:
    """Why there is no control group."""

    reason: str


class ControlGroup(ABC):
    """One sandbox's group, which nobody else sweeps away while it is open."""

    _entrance = "cgroup.procs"

    def __init__(self, nodes: Mapping[str, _Node]) -> None:
        self._nodes: Mapping[str, _Node] = nodes

    def add(self, pid: int) -> None:
        """Move process `pid` in; what it starts from then on is in as well.

        Raises:
            ProcessLookupError: There is no such process.
            OSError: The kernel refused.
        """
        for node in self._every_node():
            node.write("cgroup.procs", pid)

    def entrances(self) -> list[int]:
        """Return open descriptors; a process that writes `0` to each is in.

        It has one thread only. The caller closes them.

        Raises:
            OSError: The kernel refused.
        """
        opened: list[int] = []
        try:
            opened.extend(
                node.open(self._entrance, os.O_WRONLY) for node in self._every_node()
            )
        except OSError:
            for fd in opened:
                os.close(fd)
            raise
        return opened

    @abstractmethod
    def usage(self) -> GroupUsage:
        """Return what the group uses now."""

    @abstractmethod
    def oom_kills(self) -> int:
        """Return how many processes were killed because memory ran out."""

    def refused_forks(self) -> int:
        """Return how often a process could not start another for the limit."""
        return self._count("pids", "pids.events", "max")

    def kill(self, timeout: float = 10.0) -> None:
        """Kill every process; none is left when the call returns.

        Raises:
            TimeoutError: Some were left after `timeout` seconds.
            OSError: The kernel refused.
        """
        deadline = time.monotonic() + timeout
        self._stop_forks()
        while members := self._members():
            _kill_and_await(members, self._members, deadline)

    def close(self) -> None:
        """Kill what is in the group and remove it; a second call does nothing.

        Raises:
            TimeoutError: Some process cannot be killed; the group is kept.
            OSError: The kernel refused.
        """
        if not self._nodes:
            return
        self.kill()
        for node in self._every_node():
            node.remove()
        self._nodes = {}

    @abstractmethod
    def _stop_forks(self) -> None:
        """See that the group does not grow while it is killed."""

    def _members(self) -> list[int]:
        node = next(iter(self._every_node()))
        # 0 stands for a process outside our pid namespace.
        pids = map(int, node.read("cgroup.procs").split())
        return [pid for pid in pids if pid]

    def _every_node(self) -> Iterable[_Node]:
        return {node.path: node for node in self._nodes.values()}.values()

    def _number(self, controller: str, file: str) -> int | None:
        node = self._nodes.get(controller)
        return None if node is None else int(node.read(file))

    def _count(self, controller: str, file: str, key: str) -> int:
        node = self._nodes.get(controller)
        return 0 if node is None else node.count(file, key)


class ControlGroups:
    """Where this process may make groups.

    A group is made below this process's own, so that its limits hold too.

    Args:
        root: Where control groups are mounted.
        membership: The file that names the groups of this process.
    """

    def __init__(
        self, root: str = "/sys/fs/cgroup", membership: str = "/proc/self/cgroup"
    ) -> None:
        self._root = root
        self._membership = membership

    def create(
        self, workspace_id: str, limits: GroupLimits
    ) -> ControlGroup | NoControlGroup:
        """Make the group of a workspace, or say why it cannot be.

        There is a group only if it enforces all of `limits`. An empty one that a
        dead host left under the same name is replaced.

        Raises:
            InvalidArgumentError: The id is not lower-case letters, digits and `-`.
        """
        if not _ID.fullmatch(workspace_id):
            raise InvalidArgumentError(f"{workspace_id!r} cannot name a control group")
        try:
            if self._unified:
                return _create_v2(self._v2_parents(), _PREFIX + workspace_id, limits)
            return _create_v1(self._v1_parents(), _PREFIX + workspace_id, limits)
        except OSError as error:
            where = str(error.filename).partition(f"/{_PREFIX}{workspace_id}")[0]
            return NoControlGroup(f"{where}: {error.strerror}")

    def sweep(self) -> list[str]:
        """Remove empty groups whose host is gone and return their paths."""
        parents = self._v2_parents() if self._unified else self._v1_parents().values()
        return [path for parent in parents for path in _sweep(parent)]

    @property
    def _unified(self) -> bool:
        return os.path.exists(f"{self._root}/cgroup.controllers")

    def _v2_parents(self) -> list[str]:
        own = self._inside(self._root, self._memberships().get("", "/"))
        # Where processes are, limits for groups below cannot be switched on.
        above = own if own == self._root else os.path.dirname(own)
        return list(dict.fromkeys([own, above]))

    def _v1_parents(self) -> dict[str, str]:
        memberships = self._memberships()
        return {
            controller: self._inside(
                f"{self._root}/{controller}", memberships[controller]
            )
            for controller in _V1
            if controller in memberships and os.path.isdir(f"{self._root}/{controller}")
        }

    def _memberships(self) -> dict[str, str]:
        with open(self._membership, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
        return {name: path for _, names, path in lines for name in names.split(",")}

    @staticmethod
    def _inside(mounted: str, path: str) -> str:
        # In a container the mount may begin at what `path` names.
        own = (mounted + path).rstrip("/")
        return own if os.path.isdir(own) else mounted


class _Node:
    """A directory of a control group file system, held against sweeping."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = _made_and_held(path)
        self._counters: dict[str, int] = {}

    def has(self, file: str) -> bool:
        return os.access(file, os.F_OK, dir_fd=self._fd)

    def open(self, file: str, flags: int) -> int:
        return os.open(file, flags | os.O_CLOEXEC, dir_fd=self._fd)

    def read(self, file: str) -> str:
        with os.fdopen(self.open(file, os.O_RDONLY), encoding="utf-8") as opened:
            return opened.read()

    def write(self, file: str, value: object) -> None:
        fd = self.open(file, os.O_WRONLY)
        with os.fdopen(fd, "wb", buffering=0) as opened:
            opened.write(str(value).encode())

    def count(self, file: str, key: str) -> int:
        # Counters are read around every command: their files stay open.
        if file not in self._counters:
            self._counters[file] = self.open(file, os.O_RDONLY)
        text = os.pread(self._counters[file], 4096, 0).decode()
        pairs = (line.split() for line in text.splitlines())
        return next((int(pair[1]) for pair in pairs if pair[0] == key), 0)

    def remove(self) -> None:
        for fd in self._counters.values():
            os.close(fd)
        self._counters.clear()
        _remove_once_empty(self.path)
        os.close(self._fd)


class _GroupV1(ControlGroup):
    # A thread that moves itself waits for nobody; a process waits for all forks
    # of the machine to pause, which takes milliseconds.
    _entrance = "tasks"

    @override
    def usage(self) -> GroupUsage:
        nanoseconds = self._number("cpuacct", "cpuacct.usage")
        return GroupUsage(
            memory=self._number("memory", "memory.usage_in_bytes"),
            cpu=None if nanoseconds is None else nanoseconds / 1e9,
            pids=self._number("pids", "pids.current"),
        )

    @override
    def oom_kills(self) -> int:
        return self._count("memory", "memory.oom_control", "oom_kill")

    @override
    def _stop_forks(self) -> None:
        if "pids" in self._nodes:
            self._nodes["pids"].write("pids.max", 0)


class _GroupV2(ControlGroup):
    @override
    def usage(self) -> GroupUsage:
        return GroupUsage(
            memory=self._number("memory", "memory.current"),
            cpu=self._count("cgroup", "cpu.stat", "usage_usec") / 1e6,
            pids=self._number("pids", "pids.current"),
        )

    @override
    def oom_kills(self) -> int:
        return self._count("memory", "memory.events", "oom_kill")

    @override
    def _stop_forks(self) -> None:
        node = self._nodes["cgroup"]
        if node.has("cgroup.kill"):
            node.write("cgroup.kill", 1)
        elif "pids" in self._nodes:
            node.write("pids.max", 0)


def _create_v1(
    parents: Mapping[str, str], name: str, limits: GroupLimits
) -> ControlGroup | NoControlGroup:
    if lacking := _lacking(limits, parents):
        return lacking
    if not parents:
        return NoControlGroup("no control group controllers are mounted")
    nodes: dict[str, _Node] = {}
    with _undone(nodes):
        for controller in _ALWAYS.union(limits.controllers).intersection(parents):
            nodes[controller] = _Node(f"{parents[controller]}/{name}")
        _limit_v1(nodes, limits)
    return _GroupV1(nodes)


def _limit_v1(nodes: Mapping[str, _Node], limits: GroupLimits) -> None:
    if limits.memory is not None:
        nodes["memory"].write("memory.limit_in_bytes", limits.memory)
        if nodes["memory"].has("memory.memsw.limit_in_bytes"):
            nodes["memory"].write("memory.memsw.limit_in_bytes", limits.memory)
    if limits.pids is not None:
        nodes["pids"].write("pids.max", limits.pids)
    if limits.quota is not None:
        nodes["cpu"].write("cpu.cfs_period_us", _PERIOD)
        nodes["cpu"].write("cpu.cfs_quota_us", limits.quota)


def _create_v2(
    parents: Iterable[str], name: str, limits: GroupLimits
) -> ControlGroup | NoControlGroup:
    lacking = NoControlGroup("no control group may be made here")
    for parent in parents:
        enabled = _enabled(parent)
        missing = _lacking(limits, enabled) or _closed(parent)
        if missing is None:
            return _make_v2(f"{parent}/{name}", enabled, limits)
        lacking = missing
    return lacking


def _make_v2(path: str, enabled: Iterable[str], limits: GroupLimits) -> ControlGroup:
    nodes: dict[str, _Node] = {}
    with _undone(nodes):
        node = nodes["cgroup"] = _Node(path)
        nodes.update(dict.fromkeys(enabled, node))
        _limit_v2(node, limits)
    return _GroupV2(nodes)


def _limit_v2(node: _Node, limits: GroupLimits) -> None:
    if limits.memory is not None:
        node.write("memory.max", limits.memory)
        if node.has("memory.swap.max"):
            node.write("memory.swap.max", 0)
    if limits.pids is not None:
        node.write("pids.max", limits.pids)
    if limits.quota is not None:
        node.write("cpu.max", f"{limits.quota} {_PERIOD}")


def _enabled(parent: str) -> list[str]:
    """Switch the controllers on for groups below `parent` and return which are."""
    for controller in _LIMITED:
        with contextlib.suppress(OSError), _control(parent, "wb") as file:
            file.write(f"+{controller}".encode())
    with _control(parent, "rb") as file:
        on = file.read().decode().split()
    return [controller for controller in _LIMITED if controller in on]


def _control(parent: str, mode: Literal["rb", "wb"]) -> FileIO:
    return FileIO(f"{parent}/cgroup.subtree_control", mode)


def _lacking(limits: GroupLimits, present: Collection[str]) -> NoControlGroup | None:
    missing = sorted(limits.controllers.difference(present))
    if not missing:
        return None
    names = " and ".join(missing)
    return NoControlGroup(f"no control group controller for {names} may be used here")


def _closed(parent: str) -> NoControlGroup | None:
    """Say whether we may not move a process between groups below `parent`."""
    procs = f"{parent}/cgroup.procs"
    if os.access(procs, os.W_OK):
        return None
    return NoControlGroup(f"{procs}: no process may be moved here")


@contextlib.contextmanager
def _undone(nodes: Mapping[str, _Node]) -> Generator[None]:
    """Remove what was made if the rest cannot be."""
    try:
        yield
    except OSError:
        for node in {node.path: node for node in nodes.values()}.values():
            node.remove()
        raise


def _made_and_held(path: str) -> int:
    while True:
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            _remove_abandoned(path)
            continue
        fd = os.open(path, _DIRECTORY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        # A sweeping host may have come between.
        if _is_at(fd, path):
            return fd
        os.close(fd)


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _remove_abandoned(path: str) -> None:
    """Remove a group that no live host holds; OSError if one does, or if in use."""
    fd = os.open(path, _DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rmdir(path)
    except BlockingIOError as error:
        reason = "another process has this control group"
        raise OSError(errno.EBUSY, reason, path) from error
    finally:
        os.close(fd)


def _sweep(parent: str) -> list[str]:
    swept: list[str] = []
    for name in os.listdir(parent):
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError):
                _remove_abandoned(f"{parent}/{name}")
                swept.append(f"{parent}/{name}")
    return swept


def _remove_once_empty(path: str) -> None:
    # The kernel may hold on to a group for a moment after its last process.
    for _ in range(500):
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.002)
        else:
            return
    raise TimeoutError(errno.ETIMEDOUT, "the control group does not empty", path)


def _kill_and_await(
    pids: Iterable[int], members: Callable[[], list[int]], deadline: float
) -> None:
    with contextlib.ExitStack() as stack:
        opened = dict(_open_each(islice(pids, _BATCH), stack))
        # SAFETY: a pid may be another process's by now; one that is a member
        # while we hold its descriptor is the one that we kill.
        present = set(members())
        dying = [fd for pid, fd in opened.items() if pid in present]
        for fd in dying:
            pidfd_kill(fd)
        _await_ends(dying, deadline)


def _open_each(
    pids: Iterable[int], stack: contextlib.ExitStack
) -> Iterator[tuple[int, int]]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            fd = pidfd_open(pid)
            stack.callback(os.close, fd)
            yield pid, fd


def _await_ends(pidfds: Iterable[int], deadline: float) -> None:
    for pidfd in pidfds:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        left = max(0.0, deadline - time.monotonic())
        if not poll.poll(left * 1000):
            raise TimeoutError("a process of the control group does not end")
