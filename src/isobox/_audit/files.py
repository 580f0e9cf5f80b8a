"""The files of an audit log: descriptors that are closed, and a lock with an end."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from typing import Final

#: Seconds that a lock is waited for. It is held for microseconds; whoever holds it
#: longer was stopped.
_PATIENCE: Final = 5.0
_LONGEST_NAP: Final = 0.005
#: Of a status, the inode and its device.
_INODE: Final = slice(stat.ST_INO, stat.ST_DEV + 1)


class Descriptor:
    """An open regular file, closed at the latest when nobody has it any more.

    Raises:
        OSError: It cannot be opened, is a link, or no regular file.
    """

    def __init__(self, path: str, flags: int) -> None:
        # Nobody at the other end of a FIFO would keep us waiting.
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self.number = os.open(path, flags, 0o600)
        status = os.fstat(self.number)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "an audit file must be a regular file", path)
        self._identity = status[_INODE]

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return os.fstat(self.number).st_size

    def is_that(self, status: os.stat_result) -> bool:
        """Whether a status is of this file."""
        return self._identity == status[_INODE]

    def close(self) -> None:
        """Close it; safe to call again."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            self.close()


def status_of(path: str) -> os.stat_result | None:
    """Return the status of what is at a path, None if nothing is."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def missing(path: str) -> FileNotFoundError:
    """Return the error that there is no such file, or which directory is missing."""
    above = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(above):
        return FileNotFoundError(errno.ENOENT, "there is no such audit log", path)
    return FileNotFoundError(
        errno.ENOENT, "the directory of the audit log is missing; make it", above
    )


def lock(descriptor: int, kind: int, path: str) -> None:
    """Take a lock on a file.

    Raises:
        TimeoutError: Somebody held it for five seconds.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        _wait(descriptor, kind, path)


def unlock(descriptor: int) -> None:
    """Give a lock back."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _wait(descriptor: int, kind: int, path: str) -> None:
    deadline, nap = time.monotonic() + _PATIENCE, 0.0001
    while time.monotonic() < deadline:
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP)
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
    raise TimeoutError(
        errno.ETIMEDOUT, "another process holds the audit file; is it stopped?", path
    )
