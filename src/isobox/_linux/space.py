"""How many bytes a tree occupies, measured from outside the sandbox."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final

from isobox._linux.syscalls import (
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
    openat2,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_BLOCK: Final = 512
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_CONFINED: Final = (
    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
)
#: The kernel takes paths of 4096 bytes; deeper directories get a new start.
_LONGEST: Final = 3000


def used(root: int, going: Callable[[], bool] = lambda: True) -> int:
    """Return the bytes of files at and below a directory, as `du` counts them.

    A file with several names counts once; other file systems do not count, nor
    do directories that the caller may not read.

    Args:
        root: A descriptor of the directory.
        going: Asked now and then; the walk ends early once it says no.
    """
    walk = _Walk(root)
    while going() and walk.step():
        pass
    walk.close()
    return walk.total


class _Walk:
    def __init__(self, root: int) -> None:
        self.total = 0
        self._seen: set[tuple[int, int]] = set()
        #: Directories to come: below which descriptor, and where. A None stands
        #: where a descriptor is not needed any more.
        self._todo: list[tuple[int, str | None]] = [(root, ".")]

    def step(self) -> bool:
        if not self._todo:
            return False
        start, path = self._todo.pop()
        if path is None:
            os.close(start)
            return True
        # SAFETY: the workload changes this tree while we walk; a directory that
        # became a link, or moved out, is not entered.
        with contextlib.suppress(OSError):
            self._enter(start, path)
        return True

    def close(self) -> None:
        for start, path in self._todo:
            if path is None:
                os.close(start)

    def _enter(self, start: int, path: str) -> None:
        fd = openat2(start, path, _DIRECTORY, resolve=_CONFINED)
        if len(os.fsencode(path)) > _LONGEST:
            self._todo.append((fd, None))
            self._list(fd, fd, "")
            return
        try:
            self._list(fd, start, path + "/")
        finally:
            os.close(fd)

    def _list(self, fd: int, start: int, prefix: str) -> None:
        with os.scandir(fd) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    self._count(found)
                    if stat.S_ISDIR(found.st_mode):
                        self._todo.append((start, prefix + entry.name))

    def _count(self, found: os.stat_result) -> None:
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if (found.st_dev, found.st_ino) in self._seen:
                return
            self._seen.add((found.st_dev, found.st_ino))
        self.total += found.st_blocks * _BLOCK


def nameless(pids: Iterable[int], device: int) -> int:
    """Return the bytes of files that processes hold open and that have no name.

    Args:
        pids: The processes.
        device: The file system that is looked at.
    """
    sizes: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    # SAFETY: a stat opens nothing, whatever the link leads to.
                    found = os.stat(f"/proc/{pid}/fd/{fd}")
                    if found.st_nlink == 0 and found.st_dev == device:
                        sizes[found.st_ino] = found.st_blocks * _BLOCK
    return sum(sizes.values())


def private(pid: int, paths: Iterable[str]) -> int:
    """Return the bytes used on file systems that only process `pid` sees.

    Args:
        pid: A process of the sandbox.
        paths: Where they are mounted there.
    """
    total = 0
    try:
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        if os.path.samestat(os.fstat(root), os.stat("/")):
            return 0
        for path in paths:
            with contextlib.suppress(OSError):
                total += _filled(root, path)
    finally:
        os.close(root)
    return total


def _filled(root: int, path: str) -> int:
    # SAFETY: this is the sandbox's own root; no link in it is followed.
    no_links = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
    fd = openat2(root, path.lstrip("/"), os.O_PATH | os.O_DIRECTORY, resolve=no_links)
    try:
        found = os.fstatvfs(fd)
    finally:
        os.close(fd)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
