"""What a host leaves when it is killed, and how the next one removes it.

A temporary directory is recorded before it is made. Its record is locked for as
long as its host lives, and lies where no sandbox reaches it. Only what a record
of a dead host names, and still is what it names, is ever removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
import tempfile
from typing import TYPE_CHECKING

import anyio.to_thread

from isobox import _workdir
from isobox._linux.cgroups import ControlGroups
from isobox._workdir import stand_ins
from isobox.errors import IsoboxError, StorageError

if TYPE_CHECKING:
    from contextlib import ExitStack

_PREFIX = "isobox-"
_done: set[int] = set()


async def once() -> None:
    """Remove what dead hosts left, the first time in this process."""
    if os.getpid() not in _done:
        _done.add(os.getpid())
        await anyio.to_thread.run_sync(sweep)


def sweep() -> None:
    """Remove directories, stand-ins and control groups of hosts that are dead.

    What cannot be removed stays for the next time; what a live host has is not
    touched.
    """
    for clean in (_sweep_directories, stand_ins.sweep, _sweep_groups):
        # A sweep that fails must not keep a new sandbox from starting.
        with contextlib.suppress(OSError, IsoboxError):
            clean()


def temporary(held: ExitStack, *, parent: str | None = None) -> str:
    """Make a private directory and return its path.

    It goes when `held` closes; a later `sweep` removes it if its host is killed.

    Args:
        held: What lives as long as the directory.
        parent: Where it is made; the system's place for temporary files if None.

    Raises:
        StorageError: Records cannot be kept safe from others.
        OSError: It cannot be made.
    """
    record = _Record.new()
    held.callback(record.close)
    folder = os.path.realpath(parent or tempfile.gettempdir())
    path = os.path.join(folder, _PREFIX + secrets.token_hex(6))
    record.write(path, None)
    os.mkdir(path, 0o700)
    record.write(path, _identity(os.lstat(path)))
    held.callback(_workdir.sweep_tree, path)
    return path


class _Record:
    """A locked file that names a directory."""

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    def new(cls) -> _Record:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            path = os.path.join(_records(), secrets.token_hex(8))
            fd = os.open(path, flags, 0o600)
            if _locked(fd, path):
                return cls(path, fd)
            # A sweeping host came between.
            os.close(fd)

    def write(self, path: str, identity: tuple[int, int] | None) -> None:
        content = json.dumps([path, identity]).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, content, 0)

    def close(self) -> None:
        os.unlink(self._path)
        os.close(self._fd)


def _sweep_directories() -> None:
    folder = _records()
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            _sweep_record(os.path.join(folder, name))


def _sweep_record(record: str) -> None:
    fd = os.open(record, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _locked(fd, record) and _removed(*_read(fd)):
            os.unlink(record)
    finally:
        os.close(fd)


def _locked(fd: int, path: str) -> bool:
    """Lock a record; False if a live host has it or it is not there any more."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _read(fd: int) -> tuple[str, list[int] | None]:
    try:
        path, identity = json.loads(os.pread(fd, 8192, 0))
    except (TypeError, ValueError):
        # Its host died while it wrote.
        return "", None
    return str(path), identity


def _removed(path: str, identity: list[int] | None) -> bool:
    """Remove the directory of a record; returns whether it is gone."""
    if not os.path.basename(path).startswith(_PREFIX):
        return True
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return True
    if identity is None:
        # Its host died in between: what it had just made is empty.
        os.rmdir(path)
    elif identity == [*_identity(found)]:
        _workdir.sweep_tree(path)
        return not os.path.lexists(path)
    return True


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _sweep_groups() -> None:
    ControlGroups().sweep()


def _records() -> str:
    """Return the directory of the records, which only the caller can enter.

    Raises:
        StorageError: It belongs to somebody else.
    """
    folder = _private(_base())
    return _private(os.path.join(folder, "directories"))


def _base() -> str:
    if os.geteuid() == 0:
        return "/run/isobox"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return os.path.join(runtime, "isobox")
    return os.path.join(tempfile.gettempdir(), f".isobox-{os.geteuid()}")


def _private(folder: str) -> str:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or stat.S_IMODE(found.st_mode) & 0o077:
        raise StorageError(
            f"{folder!r} must be a directory that only its owner, user "
            f"{os.geteuid()}, can enter; remove it",
            path=folder,
        )
    return folder
