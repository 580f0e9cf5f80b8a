"""What is being deleted: gone by its name, and removed as far as it can be."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from typing import Final

import anyio.to_thread

from isobox._workdir import sweep_tree
from isobox.errors import PathError

_log = logging.getLogger("isobox.manager")

_NAME: Final = ".trash"
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Seconds for which another who removes the same tree is waited for, and between
#: two looks.
_PATIENCE, _LOOK = 10.0, 0.05


def path(basedir: str) -> str:
    """Return where it is."""
    return f"{basedir}/{_NAME}"


def check(basedir: str) -> None:
    """Be a directory of this user's: what is in it is removed.

    Raises:
        PathError: It is none, or a link to one.
    """
    try:
        found = os.lstat(path(basedir))
    except OSError as error:
        raise _none(basedir) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise _none(basedir)


async def removed(trashed: str) -> PathError | None:
    """Remove a tree that is in the trash; returns what could not be, if anything."""
    return await _removed(trashed, waits=True)


async def empty(basedir: str) -> None:
    """Remove what is in the trash; what cannot be removed stays there.

    Raises:
        PathError: It is no directory, or a link to one.
    """
    for name in _names(basedir):
        left = await _removed(f"{path(basedir)}/{name}", waits=False)
        if left is not None:
            _log.warning("%s", left)


async def _removed(trashed: str, *, waits: bool) -> PathError | None:
    swept = await anyio.to_thread.run_sync(_sweep, trashed, waits)
    if not swept or not os.path.lexists(trashed):
        return None
    return PathError(
        f"what is left in {trashed!r} cannot be removed by this user: change its "
        "owner, mode and attributes, or remove it; it is tried again by and by",
        path=trashed,
    )


def _sweep(trashed: str, waits: bool) -> bool:
    """Remove a tree; False if somebody else does, who is not waited for."""
    try:
        lock = os.open(trashed, _FLAGS)
    except FileNotFoundError:
        return True
    except OSError:
        sweep_tree(trashed)
        return True
    try:
        # Two at once move directories from under each other, and some stay.
        alone = _is_alone(lock, _PATIENCE if waits else 0)
        if alone or waits:
            sweep_tree(trashed)
        return alone or waits
    finally:
        os.close(lock)


def _is_alone(lock: int, patience: float) -> bool:
    """Lock a directory; False if somebody else, who may stand still, keeps it."""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK)
        except OSError:
            # Not every file system has locks.
            return True
        else:
            return True


def _names(basedir: str) -> list[str]:
    try:
        directory = os.open(path(basedir), _FLAGS)
    except OSError as error:
        raise _none(basedir) from error
    try:
        return os.listdir(directory)
    finally:
        os.close(directory)


def _none(basedir: str) -> PathError:
    return PathError(
        f"{path(basedir)!r} is no directory of this user's, and what is in it is "
        "removed: move it away, an empty one is made instead",
        path=path(basedir),
    )
