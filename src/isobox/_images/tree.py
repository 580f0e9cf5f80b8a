"""A directory as a tar archive, written so that nothing else of the host gets in."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
import tarfile
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from isobox.errors import (
    ConflictError,
    IsoboxError,
    NotRegularFileError,
    PathMissingError,
    PathNotDirectoryError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SET_ID: Final = stat.S_ISUID | stat.S_ISGID
#: Each level holds a descriptor.
_DEEPEST: Final = 256
_LARGEST_FILE: Final = 1 << 28
_PIECE: Final = 1 << 20


@dataclass
class Archive:
    """An archive in a file without a name.

    Attributes:
        file: Open, at its beginning; to be closed.
        digest: The SHA-256 of its bytes.
        skipped: How many devices, sockets, FIFOs and mounted file systems were
            left out.
    """

    file: IO[bytes]
    digest: str = ""
    skipped: int = 0


def of_tree(path: str, *, below: str | None = None, set_id: bool = False) -> Archive:
    """Return a directory as an archive: the same for the same contents.

    Files, directories, links, owners, permissions and times are kept. Left out
    are devices, sockets and FIFOs, extended attributes and so capabilities of
    files, what is mounted below, and set-id bits unless `set_id`.

    Args:
        path: The directory.
        below: A directory that it must be below; no link on the way is followed.
        set_id: Keep set-user-id and set-group-id bits.

    Raises:
        PathMissingError: It is not there.
        PathNotDirectoryError: It is no directory, or a link is on the way.
        ConflictError: Something changed meanwhile.
        StorageError: It cannot be read, or the archive not written.
    """
    with (
        _typed(path),
        _new_archive() as archive,
        _opened(path, below, _DIRECTORY) as root,
    ):
        writer = _Writer(archive, set_id=set_id, device=os.fstat(root).st_dev)
        writer.directory(root, ".")
        writer.finish()
    return archive


def of_entries(entries: Iterable[tuple[str, int, bytes | None]]) -> Archive:
    """Return an archive of files and, without content, directories of root's.

    Args:
        entries: Names relative to the root, permissions, and contents.
    """
    with _typed("the archive"), _new_archive() as archive:
        writer = _Writer(archive, set_id=False, device=0)
        for name, mode, content in entries:
            writer.made(name, mode, content)
        writer.finish()
    return archive


def read_below(path: str, below: str) -> bytes:
    """Return the content of a file below a directory, following no link.

    Raises:
        PathMissingError: It is not there.
        PathNotDirectoryError: A link or a file is on the way.
        NotRegularFileError: It is no regular file, or too large.
        StorageError: It cannot be read.
    """
    with _typed(path), _opened(path, below, _FILE) as descriptor:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST_FILE:
            raise NotRegularFileError(
                f"{path} is no regular file of at most {_LARGEST_FILE} bytes", path=path
            )
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_LARGEST_FILE)


class _Writer:
    """Adds to an archive."""

    def __init__(self, archive: Archive, *, set_id: bool, device: int) -> None:
        self._archive = archive
        self._hidden = 0 if set_id else _SET_ID
        self._device = device
        self._first_names: dict[int, str] = {}
        self._tar = tarfile.open(  # noqa: SIM115 - closed by `finish`
            fileobj=archive.file,
            mode="w",
            format=tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        )

    def finish(self) -> None:
        self._tar.close()
        file, whole = self._archive.file, hashlib.sha256()
        file.seek(0)
        while piece := file.read(_PIECE):
            whole.update(piece)
        self._archive.digest = whole.hexdigest()
        file.seek(0)

    def made(self, name: str, mode: int, content: bytes | None) -> None:
        info = tarfile.TarInfo(name)
        info.mode = mode
        if content is None:
            info.type = tarfile.DIRTYPE
        else:
            info.size = len(content)
        self._tar.addfile(info, io.BytesIO(content or b""))

    def directory(self, opened: int, name: str, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise StorageError(f"{name[:200]} is more than {_DEEPEST} directories deep")
        self._tar.addfile(self._info(name, os.fstat(opened), tarfile.DIRTYPE))
        with os.scandir(opened) as entries:
            names = sorted((entry.name for entry in entries), key=os.fsencode)
        for each in names:
            self._entry(opened, each, f"{name}/{each}", depth)

    def _entry(self, parent: int, name: str, whole: str, depth: int) -> None:
        about = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(about.st_mode):
            info = self._info(whole, about, tarfile.SYMTYPE)
            info.linkname = os.readlink(name, dir_fd=parent)
            self._tar.addfile(info)
        elif stat.S_ISDIR(about.st_mode) and about.st_dev == self._device:
            # SAFETY: a directory that became a link meanwhile is not followed.
            with _closing(os.open(name, _DIRECTORY, dir_fd=parent)) as opened:
                self.directory(opened, whole, depth + 1)
        elif stat.S_ISREG(about.st_mode):
            with _closing(os.open(name, _FILE, dir_fd=parent)) as opened:
                self._file(opened, whole)
        else:
            self._archive.skipped += 1

    def _file(self, opened: int, name: str) -> None:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode):
            raise ConflictError(f"{name} changed while it was read")
        first = self._first_names.setdefault(about.st_ino, name)
        if first != name:
            info = self._info(name, about, tarfile.LNKTYPE)
            info.linkname = first
            self._tar.addfile(info)
            return
        info = self._info(name, about, tarfile.REGTYPE)
        info.size = about.st_size
        with open(opened, "rb", closefd=False) as file:
            self._tar.addfile(info, file)

    def _info(self, name: str, about: os.stat_result, kind: bytes) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.type = kind
        info.mode = stat.S_IMODE(about.st_mode) & ~self._hidden
        info.uid, info.gid = about.st_uid, about.st_gid
        info.mtime = int(about.st_mtime)
        return info


@contextlib.contextmanager
def _new_archive() -> Generator[Archive]:
    """Give an archive, which is closed if its making fails."""
    archive = Archive(tempfile.TemporaryFile())  # noqa: SIM115 - the caller closes it
    try:
        yield archive
    except BaseException:
        archive.file.close()
        raise


@contextlib.contextmanager
def _opened(path: str, below: str | None, flags: int) -> Generator[int]:
    if below is None:
        with _closing(os.open(os.path.realpath(path), flags)) as descriptor:
            yield descriptor
        return
    *parents, last = path.split("/")
    with contextlib.ExitStack() as held:
        here = held.enter_context(_closing(os.open(below, flags=_DIRECTORY)))
        for part in parents:
            here = held.enter_context(_closing(os.open(part, _DIRECTORY, dir_fd=here)))
        yield held.enter_context(_closing(os.open(last, flags, dir_fd=here)))


@contextlib.contextmanager
def _closing(descriptor: int) -> Generator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _typed(path: str) -> Generator[None]:
    try:
        yield
    except IsoboxError:
        raise
    except FileNotFoundError as error:
        raise PathMissingError(f"no {path}: {error}", path=path) from error
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise PathNotDirectoryError(
                f"{path} is no directory, or a link is on the way", path=path
            ) from error
        if "end of data" in str(error):
            raise ConflictError(f"a file in {path} became shorter meanwhile") from error
        raise StorageError(f"cannot read {path}: {error}", path=path) from error
