"""The file of a store, which is its owner's alone."""

from __future__ import annotations

import contextlib
import os
import stat

from isobox.errors import StoreError


def prepare(path: str) -> None:
    """Make the file, unless it is there, so that only its owner can open it.

    Raises:
        StoreError: It cannot be made, or somebody else could change or read it.
    """
    try:
        _directory(os.path.dirname(path))
        _file(path)
    except StoreError:
        raise
    except (OSError, ValueError) as error:
        raise StoreError(f"the store {path}: {error}") from error


def _directory(path: str) -> None:
    os.makedirs(path, mode=0o700, exist_ok=True)
    about = os.stat(path)
    _ours(path, about)
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StoreError(
            f"the store's directory {path} can be written by others: "
            f"chmod go-w {path}, or name another"
        )


def _file(path: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # Not opened: a close would end the locks that SQLite has in this process.
    about = os.lstat(path)
    if not stat.S_ISREG(about.st_mode):
        raise StoreError(f"the store {path} is no regular file; name another")
    _ours(path, about)
    if about.st_mode & 0o077:
        raise StoreError(
            f"the store {path} is open to others: chmod 600 {path}, or name another"
        )


def _ours(path: str, about: os.stat_result) -> None:
    if about.st_uid not in (0, os.geteuid()):
        raise StoreError(
            f"the store's {path} belongs to user {about.st_uid}; name one of your own"
        )
