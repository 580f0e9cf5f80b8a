"""Archives of skills, read with suspicion: zip, tar and tar.gz."""

from __future__ import annotations

import contextlib
import errno
import gzip
import struct
import tarfile
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Final

from isobox._workspace.skills.members import MOST, Members, refuse
from isobox._workspace.tars import Tar
from isobox.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Generator

    from isobox._workspace.tars import Readable

#: Bytes of an archive.
LARGEST_ARCHIVE: Final = 64 << 20
#: Bytes of a tar besides its contents: headers, and padding.
_BESIDES: Final = MOST * 4096 + (1 << 20)
_LARGEST_DIRECTORY: Final = MOST * 512
_END = struct.Struct("<4s4H2LH")
_PIECE: Final = 1 << 16
_ENCRYPTED: Final = 0x1 | 0x40
_UTF8: Final = 0x800
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: How the host's own files fail, which is no fault of an archive.
_FULL: Final = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE,
)  # fmt: skip
_BROKEN: Final = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    OSError,
)


def read_archive(file: IO[bytes], size: int, content: IO[bytes]) -> Members:
    """Read all members of an archive, whatever kind it is by its first bytes.

    Raises:
        ArchiveError: A member is refused, or it is no archive that is known.
    """
    if size > LARGEST_ARCHIVE:
        raise ArchiveError(f"the archive has over {LARGEST_ARCHIVE} bytes")
    members = Members(content, size)
    head = file.read(512)
    file.seek(0)
    # SAFETY: what tarfile and zipfile make of broken data is many errors.
    with _refusing():
        if head.startswith(b"PK"):
            _read_zip(file, size, members)
        elif head.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                read_tar(unpacked, members)
        elif head[257:262] == b"ustar":
            read_tar(file, members)
        else:
            raise ArchiveError("it is neither a zip, nor a tar, nor a tar.gz")
    return members


@contextlib.contextmanager
def _refusing() -> Generator[None]:
    try:
        yield
    except ArchiveError:
        raise
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise
        raise ArchiveError(f"the archive is broken: {str(error)[:200]}") from error


class _Metered:
    """Bounds what is read of a tar besides its contents."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._left = _BESIDES

    def allow(self, content: int) -> None:
        """Let a member's content be read, which is bounded elsewhere."""
        self._left += content

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, less only at the end."""
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveError(f"the archive has over {_BESIDES} bytes of headers")
        return data


def read_tar(source: Readable, members: Members) -> None:
    """Read the members of a tar that is not compressed.

    Raises:
        ArchiveError: A member is refused.
    """
    metered = _Metered(source)
    for each, content in Tar(metered):
        _check_kind(each)
        metered.allow(content.size)
        body = content if each.isreg() else None
        members.add(each.name, mode=each.mode, mtime=each.mtime, body=body)
    # A sum at the end is compared once that is reached.
    while metered.read(_PIECE):
        pass


def _check_kind(member: tarfile.TarInfo) -> None:
    if member.issym() or member.islnk():
        refuse(member.name, "it is a link")
    if not (member.isreg() or member.isdir()):
        refuse(member.name, "it is neither a file nor a directory")


def _read_zip(file: IO[bytes], size: int, members: Members) -> None:
    _check_directory(file, size)
    with zipfile.ZipFile(file) as archive:
        for each in archive.infolist():
            _check_entry(each)
            with contextlib.ExitStack() as opened:
                directory = each.is_dir()
                members.add(
                    each.filename,
                    mode=each.external_attr >> 16,
                    mtime=0,
                    body=None
                    if directory
                    else opened.enter_context(archive.open(each)),
                    packed=each.compress_size,
                )


def _check_directory(file: IO[bytes], size: int) -> None:
    """Refuse a zip whose list of members is too long to be read at once."""
    tail = min(size, _END.size + 0xFFFF + 20)
    file.seek(size - tail)
    data = file.read(tail)
    file.seek(0)
    at = data.rfind(b"PK\5\6")
    if at < 0 or at + _END.size > len(data):
        raise ArchiveError("the archive is broken: its end is missing")
    listed = _END.unpack_from(data, at)[5]
    # SAFETY: zip64 has a second list, which zipfile would take instead.
    if listed > _LARGEST_DIRECTORY or data[max(0, at - 20) : at].startswith(b"PK\6\7"):
        raise ArchiveError(f"the archive has over {MOST} members")


def _check_entry(entry: zipfile.ZipInfo) -> None:
    name = entry.orig_filename
    if entry.flag_bits & _ENCRYPTED:
        refuse(name, "it is encrypted")
    if entry.compress_type not in _METHODS:
        refuse(name, "it is compressed in a way other than deflate")
    if entry.filename != name or not (name.isascii() or entry.flag_bits & _UTF8):
        refuse(name, "its name is no UTF-8, or holds a NUL")
