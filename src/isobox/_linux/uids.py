"""A host user of its own for each sandbox that root starts."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self

from isobox._linux.syscalls import RESOLVE_NO_SYMLINKS, openat2
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from types import TracebackType

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LEASE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class UidLease:
    """A host uid that no other sandbox of this machine has.

    It ends with `close()`, or when the process that holds it dies.

    Attributes:
        uid: The user; the group of the same number is leased with it.
    """

    def __init__(self, uid: int, fd: int, lock: str) -> None:
        self.uid = uid
        self._fd = fd
        self._lock = lock

    def close(self) -> None:
        """Give the uid back; a second call does nothing."""
        if self._fd >= 0:
            # While it is locked: whoever then waits for it finds that it is gone.
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(self._lock), os.fstat(self._fd)):
                    os.unlink(self._lock)
            # A forked child may hold the descriptor: closing alone would not do.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class UidRange:
    """Host uids set aside for sandboxes.

    Attributes:
        base: The first.
        size: How many.
        run: Directory whose `isobox/uids` holds one lock for each uid in use.
    """

    base: int = 0x70000000
    size: int = 65536
    run: str = "/run"

    def lease(self, workspace_id: str) -> UidLease:
        """Return a uid that is free, near a place of the workspace's own.

        Raises:
            BackendUnavailableError: All are taken, the caller is not root, or
                somebody else could write to the locks' directory.
        """
        if os.geteuid() != 0:
            raise BackendUnavailableError(
                "only root can give a sandbox a user of its own"
            )
        try:
            return self._first_free(self._start(workspace_id))
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise _unsafe(f"{self.run}/isobox/uids") from error

    def _start(self, workspace_id: str) -> int:
        digest = sha256(workspace_id.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.size

    def _first_free(self, start: int) -> UidLease:
        directory = _locks(self.run)
        try:
            for step in range(self.size):
                index = (start + step) % self.size
                fd = _locked(directory, str(index))
                if fd is not None:
                    lock = f"{self.run}/isobox/uids/{index}"
                    return UidLease(self.base + index, fd, lock)
        finally:
            os.close(directory)
        raise BackendUnavailableError(
            f"all {self.size} user ids for sandboxes are taken; close some workspaces"
        )


HOST_UIDS: Final = UidRange()


def _locked(directory: int, name: str) -> int | None:
    fd = os.open(name, _LEASE, 0o600, dir_fd=directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    if not os.fstat(fd).st_nlink:
        os.close(fd)  # who had it has just removed it; the next is another
        return _locked(directory, name)
    return fd


def _locks(run: str) -> int:
    directory = openat2(-1, run, _DIRECTORY, resolve=RESOLVE_NO_SYMLINKS)
    for name in ("isobox", "uids"):
        directory = _enter_private(directory, name)
    return directory


def _enter_private(parent: int, name: str) -> int:
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        directory = os.open(name, _DIRECTORY, dir_fd=parent)
    finally:
        os.close(parent)
    if not _only_root_enters(directory):
        os.close(directory)
        raise _unsafe(name)
    return directory


def _only_root_enters(directory: int) -> bool:
    found = os.fstat(directory)
    return found.st_uid == 0 and stat.S_IMODE(found.st_mode) == 0o700


def _unsafe(directory: str) -> BackendUnavailableError:
    return BackendUnavailableError(
        f"{directory} must be a directory that only root can enter",
        fix="remove it, or chown root:root and chmod 700 it",
    )
