"""Trees of files by descriptor: confined to a directory, and through no link."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from typing import TYPE_CHECKING, Final

from isobox._linux.syscalls import (
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
    architecture,
    openat2,
    syscall,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._core.results import Kind

_CONFINED: Final = (
    RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV
)
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_REGULAR: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
_FICLONE: Final = 0x40049409
_PIECE: Final = 1 << 20
_RENAMEAT2: Final = {"x86_64": 316, "aarch64": 276}
_NOREPLACE, _EXCHANGE = 1, 2


def kind_of(mode: int) -> Kind:
    """Return what `st_mode` says that something is."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "symlink"
    if stat.S_ISFIFO(mode):
        return "fifo"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def directory(root: int, path: str) -> int:
    """Return a descriptor of a directory below `root`; "" is `root` itself.

    Raises:
        OSError: It is not there, a link is on the way, or another file system.
    """
    return openat2(root, path or ".", _DIRECTORY, resolve=_CONFINED)


def regular(root: int, path: str) -> int:
    """Return a descriptor of a regular file below `root`, open for reading.

    It never waits for a FIFO.

    Raises:
        OSError: It is not there, not a regular file, or a link is on the way.
    """
    fd = openat2(root, path, _REGULAR, resolve=_CONFINED)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def entries(folder: int) -> dict[str, os.stat_result]:
    """Return what a directory holds by name, links as links, sorted."""
    found: dict[str, os.stat_result] = {}
    with os.scandir(folder) as names:
        for entry in names:
            with contextlib.suppress(FileNotFoundError):
                found[entry.name] = entry.stat(follow_symlinks=False)
    return dict(sorted(found.items()))


def walk(root: int, path: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield what is below a directory, parents first; what cannot be is left out."""
    todo = [path]
    while todo:
        folder = todo.pop()
        try:
            fd = directory(root, folder)
        except OSError:
            continue
        try:
            held = entries(fd)
        finally:
            os.close(fd)
        for name, found in held.items():
            below = join(folder, name)
            yield below, found
            if stat.S_ISDIR(found.st_mode):
                todo.append(below)


def join(folder: str, name: str) -> str:
    """Return the path of a name in a directory; the top one is ""."""
    return f"{folder}/{name}" if folder else name


def digest(fd: int) -> str:
    """Return the SHA-256, in hexadecimal, of all that a file holds."""
    found, at = hashlib.sha256(), 0
    while piece := os.pread(fd, _PIECE, at):
        found.update(piece)
        at += len(piece)
    return found.hexdigest()


def copy_content(source: int, target: int, *, reflink: bool = True) -> bool:
    """Copy a file to an empty one, holes as holes; return whether by reflink.

    Raises:
        OSError: The file system refused.
    """
    if reflink:
        with contextlib.suppress(OSError):
            fcntl.ioctl(target, _FICLONE, source)
            return True
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for start, end in _extents(source, size):
        _copy_extent(source, target, start, end)
    return False


def _extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        # A file that grows meanwhile must not keep us here.
        end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        if start < size:
            yield start, end


def _copy_extent(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        piece = os.pread(source, min(_PIECE, end - start), start)
        if not piece:
            return
        view = memoryview(piece)
        while view:
            count = os.pwrite(target, view, start)
            view = view[count:]
            start += count


def same_content(one: int, other: int) -> bool:
    """Whether two regular files hold the same bytes."""
    if os.fstat(one).st_size != os.fstat(other).st_size:
        return False
    offset = 0
    while True:
        piece = os.pread(one, _PIECE, offset)
        if piece != os.pread(other, _PIECE, offset):
            return False
        if not piece:
            return True
        offset += len(piece)


def exchange(one: tuple[int, str], other: tuple[int, str]) -> bool:
    """Swap two names, each in its directory, atomically.

    Returns:
        False where the file system cannot.

    Raises:
        OSError: The file system refused.
    """
    return _renamed(one, other, _EXCHANGE)


def rename_new(old: tuple[int, str], new: tuple[int, str]) -> None:
    """Rename to a name that is free.

    Raises:
        FileExistsError: It is not.
        OSError: The file system refused.
    """
    if not _renamed(old, new, _NOREPLACE):
        if lexists(*new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(old[1], new[1], src_dir_fd=old[0], dst_dir_fd=new[0])


def _renamed(old: tuple[int, str], new: tuple[int, str], flags: int) -> bool:
    names = os.fsencode(old[1]), os.fsencode(new[1])
    number = _RENAMEAT2[architecture()]
    try:
        syscall(number, old[0], names[0], new[0], names[1], flags)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS):
            return False
        raise
    return True


def lexists(folder: int, name: str) -> bool:
    """Whether there is anything by this name in a directory, a link included."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def remove(parent: int, name: str) -> None:
    """Remove a tree of any depth in which nothing runs any more.

    Directories are brought to the top before they are emptied, so that neither
    descriptors nor names grow with the depth. What cannot be removed stays.
    """
    try:
        top = _entered(parent, name)
    except OSError:
        return
    try:
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            for below in _emptied(top, folder):
                raised = secrets.token_hex(12)
                with contextlib.suppress(OSError):
                    _raise(top, folder, below, raised)
                    waiting.append(raised)
            if folder:
                with contextlib.suppress(OSError):
                    os.rmdir(folder, dir_fd=top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=parent)


def _entered(parent: int, name: str) -> int:
    # SAFETY: a sandbox made this tree; O_NOFOLLOW keeps us inside it.
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=parent)
    try:
        place = f"/proc/self/fd/{handle}"
        with contextlib.suppress(OSError):
            os.chmod(place, 0o700)
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _emptied(top: int, folder: str) -> list[str]:
    """Unlink all but the directories of a folder and return their names."""
    fd = os.dup(top) if not folder else _entered(top, folder)
    try:
        held = entries(fd)
        folders = [name for name in held if stat.S_ISDIR(held[name].st_mode)]
        for name in held.keys() - set(folders):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=fd)
    except OSError:
        return []
    else:
        return folders
    finally:
        os.close(fd)


def _raise(top: int, folder: str, name: str, raised: str) -> None:
    if not folder:
        os.rename(name, raised, src_dir_fd=top, dst_dir_fd=top)
        return
    fd = _entered(top, folder)
    try:
        # A directory that moves must be writable: its ".." changes.
        os.close(_entered(fd, name))
        os.rename(name, raised, src_dir_fd=fd, dst_dir_fd=top)
    finally:
        os.close(fd)
