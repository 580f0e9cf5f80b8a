"""Empty directories that stand in for protected names that are absent."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from typing import TYPE_CHECKING, Final

from isobox import _workdir
from isobox._core.protected import ABSENT
from isobox.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable


#: Bytes of a record, written at once: a path and every name there is.
_RECORD: Final = 8192


class StandIns:
    """Empty directories for names that are absent, while sandboxes live.

    Sandboxes of several processes may share a directory: each holds a shared
    lock on one record of it, and the last one removes what was made. A record
    that nobody holds is of a host that crashed; `sweep` does what it left.
    """

    def __init__(self, root: int, wanted: Iterable[str]) -> None:
        self._root = os.dup(root)
        found = os.fstat(root)
        self._record = os.path.join(_records(), f"{found.st_dev}-{found.st_ino}")
        self._lock = _shared(self._record)
        try:
            # Under the lock: until then another may take its stand-ins away.
            present = set(os.listdir(f"/proc/self/fd/{root}"))
            self._make(sorted({*wanted} - present))
        except BaseException:
            self.release()
            raise

    def _make(self, names: list[str]) -> None:
        where = os.readlink(f"/proc/self/fd/{self._root}")
        recorded = _read(self._lock)
        made = set(recorded[1] if recorded else ())
        wanted = sorted(made.union(names))
        # Recorded first: what is made is known even if we end in between.
        _write(self._lock, where, wanted)
        for name in names:
            try:
                os.mkdir(name, 0o755, dir_fd=self._root)
            except FileExistsError:
                continue
            except OSError as error:
                raise StorageError(
                    f"{name!r} cannot be held: {error.strerror}",
                    code=error.errno or 0,
                    path=name,
                ) from error
            self._own(name)

    def _own(self, name: str) -> None:
        found = os.fstat(self._root)
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):
                os.chown(
                    name,
                    found.st_uid,
                    found.st_gid,
                    dir_fd=self._root,
                    follow_symlinks=False,
                )

    def release(self) -> None:
        """Let go; the last one to do so removes the stand-ins."""
        if self._root < 0:
            return
        _remove_if_last(self._lock, self._root, self._record)
        os.close(self._lock)
        os.close(self._root)
        self._root = -1


def _shared(record: str) -> int:
    """Return a record with a shared lock, and still under its name.

    Who let go last may have removed it while we waited for the lock.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        lock = os.open(record, flags, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.lstat(record)):
                return lock
        os.close(lock)


def sweep() -> None:
    """Remove the stand-ins that hosts left which have crashed."""
    folder = _records()
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _sweep_one(lock, path, name)
            finally:
                os.close(lock)


def _sweep_one(lock: int, path: str, name: str) -> None:
    recorded = _read(lock)
    if recorded is None:
        return
    try:
        root = _workdir.walked(recorded[0])
    except OSError:
        os.unlink(path)
        return
    try:
        found = os.fstat(root)
        if name == f"{found.st_dev}-{found.st_ino}":
            _remove_if_last(lock, root, path)
    finally:
        os.close(root)


def _remove_if_last(lock: int, root: int, record: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    recorded = _read(lock)
    for name in recorded[1] if recorded else ():
        # SAFETY: rmdir removes empty directories only, and follows no link.
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=root)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record)


def _read(lock: int) -> tuple[str, list[str]] | None:
    raw = os.pread(lock, 1 << 16, 0)
    try:
        where, names = json.loads(raw)
    except ValueError:
        return None
    return str(where), [name for name in names if name in ABSENT]


def _write(lock: int, where: str, names: list[str]) -> None:
    # Others may read or write it at the same time: it is never seen half.
    os.pwrite(lock, json.dumps([where, names]).encode().ljust(_RECORD), 0)


def _records() -> str:
    """Return the directory of the records, private to the caller."""
    if os.geteuid() == 0:
        folder = "/run/isobox/held"
    else:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        base = runtime if runtime and os.path.isdir(runtime) else tempfile.gettempdir()
        folder = os.path.join(base, f"isobox-held-{os.geteuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    private = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    if not private or not stat.S_ISDIR(found.st_mode):
        raise StorageError(f"{folder!r} belongs to somebody else", path=folder)
    return folder
