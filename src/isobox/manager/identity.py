"""The file in which a base directory says of which deployment it is."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import Final

from isobox.errors import PathError
from isobox.manager import keys

_FILE: Final = ".deployment"
_LARGEST: Final = 64


def path(basedir: str) -> str:
    """Return where it is."""
    return f"{basedir}/{_FILE}"


def read(basedir: str) -> str | None:
    """Return what a directory says; None if it says nothing.

    Raises:
        PathError: It says what no manager writes.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(path(basedir), flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _broken(basedir, str(error.strerror)) from error
    try:
        return _identity(basedir, file)
    finally:
        os.close(file)


def _identity(basedir: str, file: int) -> str:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise _broken(basedir, "it is no regular file")
    try:
        said = os.read(file, _LARGEST).decode("ascii", "replace").strip()
    except OSError as error:
        raise _broken(basedir, str(error.strerror)) from error
    if not keys.is_identity(said):
        raise _broken(basedir, f"it says {said!a}")
    return said


def make(basedir: str, identity: str) -> str:
    """Let a directory say of which deployment it is, for good.

    Returns:
        What it says now: another's, if that was first.

    Raises:
        PathError: It cannot say anything, or says what no manager writes.
    """
    if (said := read(basedir)) is not None:
        return said
    try:
        _write(basedir, identity)
    except OSError as error:
        raise PathError(
            f"{path(basedir)!r} cannot be written: {error.strerror}; name another "
            "`basedir`",
            path=path(basedir),
        ) from error
    return read(basedir) or identity


def _write(basedir: str, identity: str) -> None:
    """Make the file with all that it says, unless there is one."""
    passing = f"{path(basedir)}.{secrets.token_hex(4)}"
    _write_new(passing, identity)
    try:
        # Unlike a rename, it replaces nothing.
        os.link(passing, path(basedir))
    except FileExistsError:
        pass
    except OSError:
        # Not every file system has links.
        with contextlib.suppress(FileExistsError):
            _write_new(path(basedir), identity)
    finally:
        os.unlink(passing)


def _write_new(name: str, identity: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600), "w", encoding="ascii") as written:
        written.write(f"{identity}\n")
        written.flush()
        os.fsync(written.fileno())


def _broken(basedir: str, why: str) -> PathError:
    return PathError(
        f"{path(basedir)!r} does not say to which store the directory belongs: {why}; "
        "put it back from a backup, or remove it: it is made again if the store's "
        "workspaces are there",
        path=path(basedir),
    )
