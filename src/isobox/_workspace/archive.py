"""Trees as tar streams: packed on the host, unpacked with suspicion."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tarfile
from typing import TYPE_CHECKING, Final, Protocol, cast

from isobox.errors import ArchiveError, IsoboxError, StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Self

_PIECE: Final = 1 << 18
_BLOCK: Final = 512
#: What tarfile may read, and keeps in memory, between two members' contents.
_HEADERS: Final = (1 << 20) + _PIECE
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, less only at the end."""
        ...


# -- packing ------------------------------------------------------------------


async def pack(root: str) -> AsyncIterator[bytes]:
    """Yield a tar stream of what is below a host directory.

    Links are packed as links; devices, sockets and FIFOs are left out.
    """
    for path, name in _walk(root):
        found = os.lstat(path)
        info = _info(name, path, found)
        if info is None:
            continue
        yield _header(info)
        if info.isreg():
            async for piece in _content(path, info.size):
                yield piece
    yield bytes(2 * _BLOCK)


def _walk(root: str) -> Iterator[tuple[str, str]]:
    yield root, "."
    todo = [(root, ".")]
    while todo:
        folder, prefix = todo.pop()
        with os.scandir(folder) as names:
            for item in sorted(names, key=lambda item: item.name):
                name = f"{prefix}/{item.name}"
                yield item.path, name
                if item.is_dir(follow_symlinks=False):
                    todo.append((item.path, name))


def _info(name: str, path: str, found: os.stat_result) -> tarfile.TarInfo | None:
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(found.st_mode) & 0o777
    info.mtime = found.st_mtime
    if stat.S_ISREG(found.st_mode):
        info.size = found.st_size
    elif stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        info.type = tarfile.SYMTYPE
        info.linkname = os.readlink(path)
    else:
        return None
    return info


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


async def _content(path: str, size: int) -> AsyncIterator[bytes]:
    left = size
    with open(path, "rb", buffering=0) as file:
        while left and (piece := file.read(min(_PIECE, left))):
            left -= len(piece)
            yield piece
    # A file that shrank meanwhile must not shift what follows it.
    while left:
        piece = bytes(min(_PIECE, left))
        left -= len(piece)
        yield piece
    if rest := size % _BLOCK:
        yield bytes(_BLOCK - rest)


# -- unpacking ----------------------------------------------------------------


class Replaced:
    """A host file that is replaced, whole or not at all."""

    def __init__(self, path: str, mode: int, mtime_ns: int) -> None:
        self._path = path
        self._mode = mode & 0o777
        self._mtime_ns = mtime_ns
        draft = f".isobox-{secrets.token_hex(8)}.part"
        self._draft = os.path.join(os.path.dirname(path), draft)
        self._fd = -1

    def write(self, data: bytes) -> None:
        """Append to the new content."""
        _write(self._fd, data)

    def __enter__(self) -> Self:
        try:
            self._fd = os.open(self._draft, _CREATE, 0o600)
        except OSError as error:
            raise StorageError(
                f"{self._path!r} cannot be written on the host: {error.strerror}",
                code=error.errno or 0,
                path=self._path,
            ) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                os.fchmod(self._fd, self._mode)
                os.utime(self._fd, ns=(self._mtime_ns, self._mtime_ns))
                # SAFETY: rename replaces a link at the name, it never follows it.
                os.rename(self._draft, self._path)
        finally:
            os.close(self._fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._draft)


def unpack(source: Readable, root: str) -> int:
    """Unpack a tar stream from a sandbox into a host directory.

    Every name is opened relative to a descriptor of the directory above it and
    never through a link, so that neither a member nor somebody who writes to
    the directory meanwhile can lead it elsewhere.

    Raises:
        ArchiveError: A member is a device or leaves the directory, or the
            stream is no archive. Members before it have been unpacked.
    """
    os.makedirs(root, exist_ok=True)
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _Unpacking(top).run(source)
    finally:
        os.close(top)


class _Metered:
    """Bounds what is read for headers, which tarfile keeps in memory."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._left = _HEADERS

    def allow(self, content: int) -> None:
        """Let a member's content be read, and the headers behind it."""
        self._left = content + _HEADERS

    def read(self, size: int) -> bytes:
        """Return `size` bytes, less only at the end."""
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveError("the sandbox sent headers that are too long")
        return data


class _Unpacking:
    def __init__(self, top: int) -> None:
        self._top = top
        self._folders: dict[tuple[str, ...], tuple[int, float]] = {}

    def run(self, source: Readable) -> int:
        try:
            count = self._run(_Metered(source))
            self._finish_folders()
        except IsoboxError:
            raise
        except OSError as error:
            raise StorageError(
                f"unpacking on the host: {error.strerror}", code=error.errno or 0
            ) from error
        # SAFETY: numbers and names that no call takes raise these, and headers
        # without end exhaust the stack.
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise ArchiveError(f"the sandbox sent no archive: {error}") from error
        return count

    def _run(self, source: _Metered) -> int:
        count = 0
        with tarfile.open(
            fileobj=cast("tarfile._Fileobj", source),
            mode="r|",
            bufsize=_PIECE,
            encoding="utf-8",
            errors="surrogateescape",
        ) as members:
            for member in members:
                # SAFETY: what tarfile gathers over the whole archive must stay
                # small; our guest sends neither of the two kinds.
                if member.issparse() or members.pax_headers:
                    raise ArchiveError(f"a member of a strange kind: {member.name!r}")
                source.allow(member.size if member.isreg() else 0)
                self._place(members, member)
                vars(members)["members"].clear()
                count += 1
        return count

    def _place(self, members: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        # SAFETY: name, kind and link are the sandbox's; each is checked here.
        parts = _parts(member.name)
        if member.isdir():
            os.close(self._enter(parts))
            self._folders[tuple(parts)] = member.mode & 0o777, member.mtime
            return
        if not parts:
            raise ArchiveError("the archive's root is no directory")
        folder = self._enter(parts[:-1])
        try:
            self._make(folder, parts, members, member)
        finally:
            os.close(folder)

    def _enter(self, parts: list[str]) -> int:
        """Open a directory below the top, making what is missing."""
        fd = os.dup(self._top)
        for name in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=fd)
            try:
                below = os.open(name, _OPEN_DIRECTORY, dir_fd=fd)
            except NotADirectoryError:
                raise ArchiveError(
                    f"a member goes through a link or a file: {'/'.join(parts)!r}"
                ) from None
            finally:
                os.close(fd)
            fd = below
        return fd

    def _make(
        self,
        folder: int,
        parts: list[str],
        members: tarfile.TarFile,
        member: tarfile.TarInfo,
    ) -> None:
        name = parts[-1]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        if member.issym():
            _check_link(parts, member.linkname)
            os.symlink(member.linkname, name, dir_fd=folder)
        elif member.islnk():
            self._link(folder, name, _parts(member.linkname))
        elif member.isreg():
            _write_member(folder, name, members, member)
        else:
            raise ArchiveError(f"a device or FIFO: {member.name!r}")

    def _link(self, folder: int, name: str, target: list[str]) -> None:
        if not target:
            raise ArchiveError("a hard link to the archive's root")
        source = self._enter(target[:-1])
        try:
            found = os.stat(target[-1], dir_fd=source, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                raise ArchiveError(f"a hard link to no file: {name!r}")
            os.link(
                target[-1],
                name,
                src_dir_fd=source,
                dst_dir_fd=folder,
                follow_symlinks=False,
            )
        finally:
            os.close(source)

    def _finish_folders(self) -> None:
        for parts, (mode, mtime) in reversed(self._folders.items()):
            fd = self._enter(list(parts))
            try:
                os.fchmod(fd, mode | 0o700)
                os.utime(fd, (mtime, mtime))
            finally:
                os.close(fd)


def _parts(name: str) -> list[str]:
    if name.startswith("/") or "\0" in name:
        raise ArchiveError(f"a member leaves the directory: {name!r}")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ArchiveError(f"a member leaves the directory: {name!r}")
    return parts


def _check_link(parts: list[str], target: str) -> None:
    steps = [part for part in target.split("/") if part not in ("", ".")]
    up = steps.count("..")
    # SAFETY: behind a name, which may be a link itself, ".." leads anywhere.
    climbs = up > len(parts) - 1 or ".." in steps[up:]
    if target.startswith("/") or climbs:
        raise ArchiveError(
            f"a link leaves the directory: {'/'.join(parts)!r} -> {target!r}"
        )


def _write_member(
    folder: int, name: str, members: tarfile.TarFile, member: tarfile.TarInfo
) -> None:
    content = members.extractfile(member)
    assert content is not None  # noqa: S101 - it is a regular file
    fd = os.open(name, _CREATE, 0o600, dir_fd=folder)
    try:
        while piece := content.read(_PIECE):
            _write(fd, piece)
        os.fchmod(fd, member.mode & 0o777)
        os.utime(fd, (member.mtime, member.mtime))
    finally:
        os.close(fd)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
