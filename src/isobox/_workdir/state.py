"""What is remembered of a directory, in files that its sandboxes never see."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from isobox._core.paths import within
from isobox.errors import InvalidArgumentError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

#: Bytes of one file.
_LARGEST: Final = 8 << 20
#: Seconds to wait for another process that writes the same file.
_PATIENCE: Final = 5.0
_OPEN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class State:
    """One JSON file about a directory, beyond the life of a workspace.

    It is in `$XDG_STATE_HOME/isobox/<kind>`, by default below `~/.local/state`;
    its owner alone reads and writes it.

    Args:
        kind: What is kept, which names the folder.
        directory: The directory's path on the host.
        empty: What is read, and changed, where nothing is kept.
    """

    def __init__(
        self, kind: str, directory: str | os.PathLike[str], *, empty: object = None
    ) -> None:
        self._empty = empty
        self._directory = os.path.realpath(directory)
        name = hashlib.sha256(os.fsencode(self._directory)).hexdigest()[:32]
        self._home = os.path.join(home(), kind)
        self.path = os.path.join(self._home, f"{name}.json")

    def read(self) -> object:
        """Return what is kept, or what stands for nothing.

        Raises:
            ValueError: The file is too large, or no JSON.
            OSError: It cannot be read, or somebody else could have written it.
        """
        try:
            with self._opened() as folder:
                return self._read(folder)
        except FileNotFoundError:
            return self._empty

    def change(self, change: Callable[[object], object]) -> None:
        """Replace what is kept by what `change` makes of it.

        What other processes change meanwhile stays: one at a time is let in.
        Readers see the old or the new, whole.

        Raises:
            ValueError: The file is too large, or no JSON.
            OSError: It cannot be written, or somebody else could write it.
        """
        self._refuse_inside()
        os.makedirs(self._home, mode=0o700, exist_ok=True)
        with self._opened() as folder, _locked(folder, self._name(".lock")):
            before = self._empty
            with contextlib.suppress(FileNotFoundError):
                before = self._read(folder)
            self._write(folder, json.dumps(change(before), indent=1).encode("ascii"))

    @contextlib.contextmanager
    def _opened(self) -> Generator[int]:
        """Open the folder, if it is nobody else's.

        Raises:
            OSError: It is missing, or another could write there.
        """
        self._refuse_inside()
        folder = os.open(self._home, os.O_DIRECTORY | _OPEN)
        try:
            _check(os.fstat(folder), self._home)
            yield folder
        finally:
            os.close(folder)

    def _refuse_inside(self) -> None:
        # SAFETY: what works in the directory could write it. By identity and not
        # by name: a directory can have several.
        for above in (Path(self.path), *Path(os.path.realpath(self.path)).parents):
            with contextlib.suppress(FileNotFoundError):
                if above.samefile(self._directory):
                    raise PermissionError(
                        f"{self.path} is inside the workspace's directory; set "
                        "XDG_STATE_HOME to a directory elsewhere"
                    )

    def _read(self, folder: int) -> object:
        fd = os.open(self._name(".json"), os.O_RDONLY | _OPEN, dir_fd=folder)
        with open(fd, "rb") as file:
            _check(os.fstat(fd), self.path)
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError("it is too large")
        try:
            return cast("object", json.loads(data))
        except RecursionError:
            raise ValueError("it is no JSON of ours") from None

    def _write(self, folder: int, data: bytes) -> None:
        if len(data) > _LARGEST:
            raise ValueError("it would be too large")
        name = self._name(f".{os.urandom(8).hex()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.replace(name, self._name(".json"), src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise

    def _name(self, suffix: str) -> str:
        return Path(self.path).stem + suffix


def home() -> str:
    """Return the directory of everything that is remembered."""
    given = os.environ.get("XDG_STATE_HOME", "")
    # A relative one is invalid, says the XDG Base Directory Specification.
    state = given if os.path.isabs(given) else os.path.expanduser("~/.local/state")
    return os.path.join(state, "isobox")


def beneath(directory: str | os.PathLike[str]) -> str | None:
    """Return what is remembered, as a path below a directory that holds it.

    None if the directory does not.
    """
    root, place = os.path.realpath(directory), os.path.realpath(home())
    return os.path.relpath(place, root) if within(place, root) else None


def made_beneath(directory: str | os.PathLike[str]) -> str | None:
    """Return the same, once it exists: who could make it could fill it.

    Raises:
        InvalidArgumentError: The directory is where isobox remembers.
        StorageError: It cannot be made.
    """
    if within(os.path.realpath(directory), os.path.realpath(home())):
        raise InvalidArgumentError(
            f"the workspace's directory is in {home()}, where isobox keeps what "
            "commands must not write; choose another"
        )
    path = beneath(directory)
    if path is not None:
        try:
            os.makedirs(os.path.join(directory, path), mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{home()} is below the workspace's directory, and cannot be made: "
                f"{error.strerror}; set XDG_STATE_HOME to a directory elsewhere",
                code=error.errno or 0,
            ) from error
    return path


def _check(found: os.stat_result, path: str) -> None:
    """Raise unless it is ours, and nobody else could have written it."""
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to user {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others can write {path}; run: chmod go-w {path}")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise PermissionError(f"{path} is no file")


@contextlib.contextmanager
def _locked(folder: int, name: str) -> Generator[None]:
    flags = os.O_RDWR | os.O_CREAT | _OPEN
    fd = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        _lock(fd, time.monotonic() + _PATIENCE)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError("another process holds the file") from None
            time.sleep(0.02)
        else:
            return
