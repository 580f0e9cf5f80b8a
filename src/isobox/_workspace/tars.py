"""Tar streams that somebody hostile wrote, read in time that grows with their length.

`tarfile` takes time that grows with the square of a header, gathers sparse maps and
global headers without bounds, and takes a broken header for the end of an archive.
"""

from __future__ import annotations

import re
import tarfile
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLOCK: Final = 512
#: What is read at once, ahead of what is asked for.
_PIECE: Final = 1 << 18
#: Bytes of a name, or of the records that say more of a member.
_LARGEST_EXTENSION: Final = 1 << 20
_RECORDS: Final = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG: Final = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_LENGTH: Final = re.compile(rb"([1-9][0-9]{0,8}) ")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
#: What a header of PAX says that matters here.
_KNOWN: Final = ("path", "linkpath", "size", "mtime")
_SPARSE: Final = "GNU.sparse."


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, less only at the end."""
        ...


class Tar:
    """The members of a tar that is not compressed, one after the other.

    Raises:
        tarfile.TarError: While it is read: it is broken, ends too early, or has a
            sparse member.
        ValueError: A time in it is none.
    """

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._held = b""
        self._at = 0

    def __iter__(self) -> Iterator[tuple[tarfile.TarInfo, Content]]:
        """Yield each member with its content, which is to be read before the next."""
        while (member := self._next()) is not None:
            size = member.size if member.isreg() else 0
            content = Content(self, size)
            yield member, content
            content.skip()

    def take(self, size: int) -> bytes:
        """Return so many bytes.

        Raises:
            tarfile.ReadError: There are not so many.
        """
        data = self._some(size)
        if len(data) < size:
            raise tarfile.ReadError("it ends too early")
        return data

    def _some(self, size: int) -> bytes:
        if len(self._held) - self._at < size:
            rest = self._held[self._at :]
            self._held = rest + self._source.read(max(size - len(rest), _PIECE))
            self._at = 0
        data = self._held[self._at : self._at + size]
        self._at += len(data)
        return data

    def _next(self) -> tarfile.TarInfo | None:
        """Return what is said of the next member; None at the end."""
        more: dict[str, str] = {}
        while (header := self._header()) is not None:
            if header.type == tarfile.XGLTYPE:
                if _records(self._extension(header)).keys() - {"mtime"}:
                    raise tarfile.ReadError("one name or size for all members")
            elif header.type in _RECORDS:
                more |= _records(self._extension(header))
            elif header.type in _LONG:
                name = self._extension(header).partition(b"\0")[0]
                more[_LONG[header.type]] = _text(name)
            else:
                return _extended(header, more)
        if more:
            raise tarfile.ReadError("it ends too early")
        return None

    def _header(self) -> tarfile.TarInfo | None:
        block = self.take(_BLOCK)
        if not block.strip(b"\0"):
            return None
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if header.size < 0:
            raise tarfile.ReadError("a size below 0")
        return header

    def _extension(self, header: tarfile.TarInfo) -> bytes:
        if header.size > _LARGEST_EXTENSION:
            raise tarfile.ReadError("a header that is too long")
        data = self.take(header.size)
        self.take(-header.size % _BLOCK)
        return data


class Content:
    """What a member holds.

    Attributes:
        size: Bytes of it.
    """

    def __init__(self, tar: Tar, size: int) -> None:
        self.size = size
        self._tar = tar
        self._left = size
        self._padding = -size % _BLOCK

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, less only at the end.

        Raises:
            tarfile.ReadError: The archive ends before.
        """
        data = self._tar.take(min(size, self._left))
        self._left -= len(data)
        return data

    def skip(self) -> None:
        """Pass over what was not read.

        Raises:
            tarfile.ReadError: The archive ends before.
        """
        while self.read(_PIECE):
            pass
        self._tar.take(self._padding)


def _records(data: bytes) -> dict[str, str]:
    """Return what a header of PAX says that matters here, by name."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        length = _LENGTH.match(data, at)
        end = at + int(length[1]) if length else 0
        name, equals, value = data[length.end() if length else at : end].partition(b"=")
        if not (name and equals and value.endswith(b"\n")) or end > len(data):
            raise tarfile.ReadError("a broken header")
        known = _text(name)
        if known.startswith(_SPARSE):
            raise tarfile.ReadError("a sparse member")
        if known in _KNOWN:
            found[known] = _text(value[:-1])
        at = end
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _extended(header: tarfile.TarInfo, said: Mapping[str, str]) -> tarfile.TarInfo:
    """Return a header with what those before it say."""
    if header.type == tarfile.GNUTYPE_SPARSE:
        raise tarfile.ReadError("a sparse member")
    header.name = said.get("path", header.name)
    header.linkname = said.get("linkpath", header.linkname)
    header.mtime = float(said.get("mtime", header.mtime))
    if "size" in said:
        if not _NUMBER.fullmatch(said["size"]):
            raise tarfile.ReadError("a size that is none")
        header.size = int(said["size"])
    return header
