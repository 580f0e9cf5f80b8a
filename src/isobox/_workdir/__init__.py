"""Host directories that become workspaces: checked before anything starts."""

from __future__ import annotations

import os
import stat
import sys

from isobox._core.paths import within
from isobox._linux import trees
from isobox.errors import (
    InvalidArgumentError,
    PathAccessError,
    PathMissingError,
    PathNotDirectoryError,
)

#: A workspace that is, holds or lies in one of these would overlap with what a
#: sandbox itself is made of.
_SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin",
    "/sys", "/usr",
)  # fmt: skip


def opened(path: str) -> int:
    """Return a descriptor of a directory that may become a workspace.

    The directory is opened component by component from the root, so that no
    symlink is followed: an earlier run may have planted one (CVE-2024-42472).

    Raises:
        PathMissingError: There is nothing at the path.
        PathNotDirectoryError: It is not a directory.
        InvalidArgumentError: It is or goes through a symlink, or it overlaps
            with the system or with the user's PATH.
        PathAccessError: The caller may not write there.
    """
    _refuse_overlaps(path)
    try:
        fd = walked(path)
    except FileNotFoundError:
        raise PathMissingError(
            f"the workspace's directory {path!r} does not exist; create it first",
            path=path,
        ) from None
    except NotADirectoryError:
        raise _no_directory(path) from None
    except PermissionError:
        raise _no_access(path) from None
    if not os.access(path, os.W_OK | os.X_OK):
        os.close(fd)
        raise _no_access(path)
    return fd


def walked(path: str) -> int:
    """Return a descriptor of a directory, opened without following any link.

    Raises:
        OSError: There is none, or a link is on the way.
    """
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/", flags | getattr(os, "O_PATH", os.O_RDONLY))
    for name in filter(None, path.split("/")):
        try:
            below = os.open(name, flags | getattr(os, "O_PATH", os.O_RDONLY), dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def _no_directory(path: str) -> InvalidArgumentError | PathNotDirectoryError:
    real = os.path.realpath(path)
    if real != path:
        return InvalidArgumentError(
            f"the workspace's directory {path!r} is, or lies below, a symlink; "
            f"name where it leads: {real}",
            path=path,
        )
    return PathNotDirectoryError(
        f"the workspace's directory {path!r} is not a directory", path=path
    )


def _no_access(path: str) -> PathAccessError:
    return PathAccessError(
        f"the workspace's directory {path!r} is not writable for user "
        f"{os.geteuid()}; choose another, or change its owner or mode",
        path=path,
    )


def _refuse_overlaps(path: str) -> None:
    if path == "/":
        raise InvalidArgumentError(
            "the workspace cannot be the whole file system; name a directory",
            path=path,
        )
    for system in _SYSTEM:
        if within(path, system):
            raise InvalidArgumentError(
                f"the workspace {path!r} overlaps with the system's {system}; "
                "choose a directory of your own",
                path=path,
            )
    for entry in os.environ.get("PATH", "").split(":"):
        if entry.startswith("/") and within(path, os.path.normpath(entry)):
            raise InvalidArgumentError(
                f"the workspace {path!r} is on your PATH: what is written there "
                "would run as your own commands; choose another directory",
                path=path,
            )


def owner(fd: int) -> tuple[int, int]:
    """Return the uid and gid that own a directory."""
    found = os.fstat(fd)
    return found.st_uid, found.st_gid


def sweep_tree(path: str) -> None:
    """Remove a tree that a sandbox has written, without following any link.

    Every step goes by a descriptor of the directory above, so that a link that
    appears in between leads nowhere. What cannot be removed stays.
    """
    parent = os.open(os.path.dirname(path), os.O_DIRECTORY | os.O_CLOEXEC)
    remove = trees.remove if sys.platform.startswith("linux") else _sweep
    try:
        remove(parent, os.path.basename(path))
    finally:
        os.close(parent)


def _sweep(parent: int, name: str) -> None:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
            return
        # SAFETY: the sandbox made this tree; O_NOFOLLOW keeps us inside it.
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = _openable(name, parent, flags)
    except OSError:
        return
    try:
        for child in os.listdir(fd):
            _sweep(fd, child)
    except OSError:
        pass
    finally:
        os.close(fd)
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return


def _openable(name: str, parent: int, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=True)
        return os.open(name, flags, dir_fd=parent)
