"""Trees as tar streams: packed on the host, unpacked with suspicion."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tarfile
import threading
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from isobox._channel.sparse import SparseWriter
from isobox._core.protected import rule_for
from isobox._workspace.tars import Tar
from isobox.errors import (
    ArchiveError,
    IsoboxError,
    NotRegularFileError,
    PathAccessError,
    PathMissingError,
    PathNotDirectoryError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Self

    from isobox._workspace.tars import Content, Readable

_PIECE: Final = 1 << 18
#: What is read on the host in one go, while other workspaces go on.
_BATCH: Final = 1 << 20
#: Directories that stay open while a tree is packed.
_HELD: Final = 64
_BLOCK: Final = 512
#: What may be read between two members' contents, and kept in memory.
_HEADERS: Final = (1 << 20) + _PIECE
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: How a name refuses that was another kind of thing, or there, a moment ago.
_CHANGED: Final = (
    errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EOPNOTSUPP, errno.EINVAL,
)  # fmt: skip
_REFUSALS: Final = {
    errno.ENOENT: PathMissingError,
    errno.ENOTDIR: PathNotDirectoryError,
    errno.EACCES: PathAccessError,
    errno.EPERM: PathAccessError,
    errno.ENXIO: NotRegularFileError,
}
#: SAFETY: nobody else on the host may write to what a sandbox sent.
_PERMITTED: Final = 0o755


# -- packing ------------------------------------------------------------------


class Source:
    """A host file, or a directory as a tar stream, that worker threads read.

    Only the path itself is opened by name. What is below a directory is opened
    from descriptor to descriptor and never through a link, so that nobody who
    changes the tree meanwhile leads a read out of it or lets it wait. Links are
    packed as links; devices, sockets and FIFOs are left out, and so is what
    vanishes or changes its kind meanwhile.

    Attributes:
        is_directory: Whether it is a directory, and comes as a tar stream.
        mode: Its permission bits.
        mtime_ns: When it was changed, in nanoseconds of Unix time.

    Raises:
        PathMissingError: There is nothing at the path.
        PathNotDirectoryError: The path goes through a file.
        PathAccessError: The host's user may not read it, or something below.
        NotRegularFileError: It is neither a file nor a directory.
        StorageError: The host's file system failed.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._fd = _open_source(path)
        found = os.fstat(self._fd)
        self.is_directory = stat.S_ISDIR(found.st_mode)
        self.mode = stat.S_IMODE(found.st_mode) & 0o777
        self.mtime_ns = found.st_mtime_ns
        self._pieces = (
            _Tree(self._fd, path).pieces() if self.is_directory else _read(self._fd)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close)

    def pieces(self) -> Generator[bytes]:
        """Yield all of it, to somebody who reads it alone."""
        with _refusing(self._path):
            yield from self._pieces

    def close(self) -> None:
        """Close what is open."""
        # A thread that nobody waits for any more may still read.
        with self._lock:
            self._pieces.close()
            os.close(self._fd)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        batch = await anyio.to_thread.run_sync(self._batch)
        if not batch:
            raise StopAsyncIteration
        return batch

    def _batch(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        with self._lock, _refusing(self._path):
            for piece in self._pieces:
                pieces.append(piece)
                size += len(piece)
                if size >= _BATCH:
                    break
        return b"".join(pieces)


def _open_source(path: str) -> int:
    with _refusing(path):
        _check_kind(os.stat(path), path)
        fd = os.open(path, _READ)
        try:
            _check_kind(os.fstat(fd), path)
        except NotRegularFileError:
            os.close(fd)
            raise
        return fd


def _check_kind(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise NotRegularFileError(
            f"{path!r} is neither a file nor a directory", path=path
        )


@contextlib.contextmanager
def _refusing(path: str) -> Generator[None]:
    try:
        yield
    except IsoboxError:
        raise
    except OSError as error:
        message = f"{path!r} cannot be read on the host: {error.strerror}"
        if refusal := _REFUSALS.get(error.errno or 0):
            raise refusal(message, path=path) from error
        raise StorageError(message, code=error.errno or 0, path=path) from error


class _Folder:
    """A directory that is being packed; closed while it is far above."""

    def __init__(self, name: str, fd: int) -> None:
        found = os.fstat(fd)
        self.name = name
        self.fd = fd
        self.identity = found.st_dev, found.st_ino
        self.todo = sorted(os.listdir(fd), reverse=True)


class _Tree:
    """Packs what is below a directory, at any depth, with few descriptors."""

    def __init__(self, top: int, path: str) -> None:
        self._top = top
        self._path = path
        self._trail: list[_Folder] = []

    def pieces(self) -> Generator[bytes]:
        """Yield the tar stream."""
        try:
            yield _header(".", os.fstat(self._top))
            self._enter(".", os.dup(self._top))
            while self._trail:
                if not self._trail[-1].todo:
                    self._leave()
                    continue
                yield from self._member(self._trail[-1].todo.pop())
            yield bytes(2 * _BLOCK)
        finally:
            for folder in self._trail:
                self._release(folder)

    def _member(self, name: str) -> Generator[bytes]:
        place = self._place(name)
        try:
            fd, found, target = _open_member(self._trail[-1].fd, name)
        except OSError as error:
            if error.errno in _CHANGED:
                return
            with _refusing(os.path.normpath(os.path.join(self._path, place))):
                raise
        if stat.S_ISDIR(found.st_mode):
            self._enter(name, fd)
            yield _header(place, found)
        elif stat.S_ISLNK(found.st_mode):
            yield _header(place, found, target)
        elif fd >= 0:
            try:
                if stat.S_ISREG(found.st_mode):
                    yield _header(place, found)
                    yield from _content(fd, found.st_size)
            finally:
                os.close(fd)

    def _place(self, name: str) -> str:
        return "/".join([*(folder.name for folder in self._trail), name])

    def _enter(self, name: str, fd: int) -> None:
        try:
            self._trail.append(_Folder(name, fd))
        except OSError:
            os.close(fd)
            raise
        if len(self._trail) > _HELD:
            self._release(self._trail[-_HELD - 1])

    def _leave(self) -> None:
        folder = self._trail.pop()
        try:
            if self._trail and self._trail[-1].fd < 0:
                self._reopen(self._trail[-1], folder.fd)
        finally:
            self._release(folder)

    def _reopen(self, folder: _Folder, below: int) -> None:
        # SAFETY: ".." of a directory that was moved leads elsewhere.
        fd = os.open("..", _OPEN_DIRECTORY, dir_fd=below)
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != folder.identity:
            os.close(fd)
            raise StorageError(
                f"a directory below {self._path!r} was moved while it was read",
                path=self._path,
            )
        folder.fd = fd

    @staticmethod
    def _release(folder: _Folder) -> None:
        if folder.fd >= 0:
            os.close(folder.fd)
            folder.fd = -1


def _open_member(folder: int, name: str) -> tuple[int, os.stat_result, str]:
    """Return a descriptor or -1, what it is, and a link's target."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        return -1, found, os.readlink(name, dir_fd=folder)
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        return -1, found, ""
    fd = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=folder)
    # SAFETY: somebody may have replaced it; what is open decides.
    return fd, os.fstat(fd), ""


def _header(name: str, found: os.stat_result, target: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(found.st_mode) & 0o777
    info.mtime = found.st_mtime
    if stat.S_ISREG(found.st_mode):
        info.size = found.st_size
    elif stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
    else:
        info.type = tarfile.SYMTYPE
        info.linkname = target
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _read(fd: int) -> Generator[bytes]:
    while piece := os.read(fd, _BATCH):
        yield piece


def _content(fd: int, size: int) -> Generator[bytes]:
    left = size
    while left and (piece := os.read(fd, min(_BATCH, left))):
        left -= len(piece)
        yield piece
    # A file that shrank meanwhile must not shift what follows it.
    while left:
        piece = bytes(min(_BATCH, left))
        left -= len(piece)
        yield piece
    if rest := size % _BLOCK:
        yield bytes(_BLOCK - rest)


# -- unpacking ----------------------------------------------------------------


class Replaced:
    """A host file that is replaced, whole or not at all."""

    def __init__(self, path: str, mode: int, mtime_ns: int) -> None:
        self._path = path
        self._mode = mode & _PERMITTED
        self._mtime_ns = mtime_ns
        draft = f".isobox-{secrets.token_hex(8)}.part"
        self._draft = os.path.join(os.path.dirname(path), draft)
        self._fd = -1

    def write(self, data: bytes) -> None:
        """Append to the new content."""
        self._content.write(data)

    def __enter__(self) -> Self:
        try:
            self._fd = os.open(self._draft, _CREATE, 0o600)
        except OSError as error:
            raise StorageError(
                f"{self._path!r} cannot be written on the host: {error.strerror}",
                code=error.errno or 0,
                path=self._path,
            ) from error
        self._content = SparseWriter(self._fd)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._content.finish()
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
    the directory meanwhile can lead it elsewhere. Directories that were there
    keep their modes and times; nothing new is writable for others.

    Raises:
        ArchiveError: A member is a device or leaves the directory, or has a
            protected name and the directory held something before, or the
            stream is no archive. Members before it have been unpacked.
        StorageError: The host's file system failed.
    """
    try:
        fresh = _made(root)
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError(
            f"{root!r} cannot be written on the host: {error.strerror}",
            code=error.errno or 0,
            path=root,
        ) from error
    try:
        guarded = not fresh and bool(os.listdir(top))
        return _Unpacking(top, fresh=fresh, guarded=guarded).run(source)
    finally:
        os.close(top)


def _made(folder: str) -> bool:
    try:
        os.makedirs(folder)
    except FileExistsError:
        return False
    return True


class _Metered:
    """Bounds what is read for headers, which tarfile keeps in memory."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._left = _HEADERS

    def allow(self, content: int) -> None:
        """Let a member's content be read, and the headers behind it."""
        self._left = content + _HEADERS

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, less only at the end."""
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveError("the sandbox sent headers that are too long")
        return data


class _Unpacking:
    def __init__(self, top: int, *, fresh: bool, guarded: bool) -> None:
        self._top = top
        self._fresh = fresh
        self._guarded = guarded
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
        # SAFETY: numbers and names that no call takes raise these.
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise ArchiveError(f"the sandbox sent no archive: {error}") from error
        return count

    def _run(self, source: _Metered) -> int:
        count = 0
        for member, content in Tar(source):
            source.allow(content.size)
            self._place(member, content)
            count += 1
        return count

    def _place(self, member: tarfile.TarInfo, content: Content) -> None:
        # SAFETY: name, kind and link are the sandbox's; each is checked here.
        parts = self._admitted(member.name)
        if member.isdir():
            folder, made = self._enter(parts)
            os.close(folder)
            if made:
                self._folders[tuple(parts)] = member.mode & _PERMITTED, member.mtime
            return
        if not parts:
            raise ArchiveError("the archive's root is no directory")
        folder, _ = self._enter(parts[:-1])
        try:
            self._make(folder, parts, member, content)
        finally:
            os.close(folder)

    def _admitted(self, name: str) -> list[str]:
        parts = _parts(name)
        rule = rule_for("/".join(parts)) if self._guarded else None
        if rule is not None:
            # SAFETY: the host would execute it, or take its configuration from it.
            raise ArchiveError(
                f"{name!r} is protected on the host ({rule}) and comes only into "
                "a new or empty directory",
                path=name,
            )
        return parts

    def _enter(self, parts: list[str]) -> tuple[int, bool]:
        """Open a directory below the top, making what is missing.

        Also tells whether the directory itself was made.
        """
        fd = os.dup(self._top)
        made = self._fresh
        for name in parts:
            try:
                made = _make_folder(name, fd)
                below = os.open(name, _OPEN_DIRECTORY, dir_fd=fd)
            except NotADirectoryError:
                raise ArchiveError(
                    f"a member goes through a link or a file: {'/'.join(parts)!r}"
                ) from None
            finally:
                os.close(fd)
            fd = below
        return fd, made

    def _make(
        self,
        folder: int,
        parts: list[str],
        member: tarfile.TarInfo,
        content: Content,
    ) -> None:
        name = parts[-1]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        if member.issym():
            _check_link(parts, member.linkname)
            os.symlink(member.linkname, name, dir_fd=folder)
        elif member.islnk():
            self._link(folder, name, self._admitted(member.linkname))
        elif member.isreg():
            _write_member(folder, name, member, content)
        else:
            raise ArchiveError(f"a device or FIFO: {member.name!r}")

    def _link(self, folder: int, name: str, target: list[str]) -> None:
        if not target:
            raise ArchiveError("a hard link to the archive's root")
        source, _ = self._enter(target[:-1])
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
            fd, _ = self._enter(list(parts))
            try:
                os.fchmod(fd, mode | 0o700)
                os.utime(fd, (mtime, mtime))
            finally:
                os.close(fd)


def _make_folder(name: str, above: int) -> bool:
    try:
        os.mkdir(name, 0o755, dir_fd=above)
    except FileExistsError:
        return False
    return True


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
    folder: int, name: str, member: tarfile.TarInfo, content: Content
) -> None:
    fd = os.open(name, _CREATE, 0o600, dir_fd=folder)
    try:
        file = SparseWriter(fd)
        while piece := content.read(_PIECE):
            file.write(piece)
        file.finish()
        os.fchmod(fd, member.mode & _PERMITTED)
        os.utime(fd, (member.mtime, member.mtime))
    finally:
        os.close(fd)
