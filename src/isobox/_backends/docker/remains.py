"""What is left in a container's control group when the engine cannot kill it."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

from isobox._linux.syscalls import pidfd_kill, pidfd_open

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOUNTED: Final = "/sys/fs/cgroup"
#: The length of a container's id, as engines give it.
_ID: Final = 64
#: Seconds that killing may take, and between two looks at what is left.
_PATIENCE: Final = 5.0
_PAUSE: Final = 0.02


def kill(container: str, pid: int) -> bool:
    """Kill all processes of a container that runs on this machine.

    An engine kills the first process, with which the others go; a first process
    that is never given a processor does not end, however.

    Args:
        container: Its id.
        pid: Its first process.

    Returns:
        Whether none is left; False where this machine does not have them, or they
        are not ours to kill.
    """
    group = _group(container, pid)
    if group is None:
        return False
    with contextlib.suppress(OSError):
        _write(f"{group}/cgroup.kill", b"1")
    deadline = time.monotonic() + _PATIENCE
    while left := _members(group):
        if time.monotonic() > deadline:
            return False
        for each in left:
            _strike(each, container)
        time.sleep(_PAUSE)
    return True


def processes(container: str, pid: int) -> list[int]:
    """Return the processes of a container that runs on this machine, the first first.

    There are none where this machine does not have them.
    """
    if not any(container in line for line in _lines(f"/proc/{pid}/cgroup")):
        return []
    group = _group(container, pid)
    others = [] if group is None else _members(group)
    return [pid, *(each for each in others if each != pid)]


def _group(container: str, pid: int) -> str | None:
    """Return the directory of the control group that all of a container is in."""
    if len(container) < _ID:
        return None
    found = (_directory(line) for line in _lines(f"/proc/{pid}/cgroup"))
    ours = (path for path in found if container in path and os.path.isdir(path))
    return next(ours, None)


def _directory(line: str) -> str:
    controllers, _, path = line.partition(":")[2].partition(":")
    return f"{_MOUNTED}/{controllers}{path}" if controllers else f"{_MOUNTED}{path}"


def _members(group: str) -> list[int]:
    return [pid for path, _, _ in os.walk(group) for pid in _listed(path)]


def _listed(path: str) -> Iterator[int]:
    for line in _lines(f"{path}/cgroup.procs"):
        # A process that this pid namespace does not see is called 0.
        if line.isdigit() and int(line) > 1:
            yield int(line)


def _strike(pid: int, container: str) -> None:
    with contextlib.suppress(OSError):
        handle = pidfd_open(pid)
        try:
            # SAFETY: the number may have become another process's meanwhile; now
            # that we hold one, it cannot be exchanged any more.
            if any(container in line for line in _lines(f"/proc/{pid}/cgroup")):
                pidfd_kill(handle)
        finally:
            os.close(handle)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
