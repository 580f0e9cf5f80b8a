"""Tar streams, looked at member by member on their way in and out."""

from __future__ import annotations

import bz2
import contextlib
import copy
import lzma
import posixpath
import re
import secrets
import tarfile
import zlib
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import override

from isobox._core.results import ByteStream
from isobox._shell import answers
from isobox._shell.exec import PIECE
from isobox._shell.quote import decoded, filled
from isobox._shell.readings import Reading
from isobox.errors import (
    ArchiveError,
    IsoboxError,
    PathIsDirectoryError,
    ProtocolError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from isobox._shell.operators import Operator, Operators

_BLOCK: Final = 512
_LONGEST_HEADER: Final = 1 << 20
_END: Final = bytes(2 * _BLOCK)
_RECORD: Final = re.compile(rb"(\d{1,7}) ([^=\n]{1,200})=")
#: What is used of these records.
_SAID: Final = (b"path", b"linkpath", b"size", b"mtime")
_LONG_NAME, _LONG_LINK, _PAX, _GLOBAL = b"L", b"K", b"x", b"g"

#: What says how a tar ended: an errno, of three digits.
_PACK: Final = """\
( p=<path>; exec 9>&1
if [ -d "$p" ] && [ ! -L "$p" ]; then cd -- "$p" || why "$p"; n=.
elif [ -e "$p" ] || [ -L "$p" ]; then cd -- "${p%/*}/" || why "$p"; n=./${p##*/}
else why "$p"; fi
echo ok
m=$(tar -cf - -- "$n" 2>&1 >&9 9>&-); s=$?
case $s,$m in
  0,*|1,*' changed as we'*|*,*'No such file'*) printf 000;;
  *'ermission denied'*) printf 013;;
  *) printf 005;;
esac )"""
_PREPARE: Final = """\
( p=<path>
m=$(mkdir -p -- "$p" 2>&1) || { [ -e "$p" ] && no not_directory; \
no error "${m##*: }"; }
cd -- "$p" || no access
if [ <clear> = 1 ]; then
  chmod -R u+rwX .
  m=$(find . -mindepth 1 -maxdepth 1 -exec rm -rf -- {} + 2>&1) ||
    no error "${m##*: }"
fi
echo ok
find . -mindepth 1 -type l -print0; printf '/\\0'
find . -mindepth 1 -type d -print0 )"""
_UNPACK: Final = """\
( cd -- <path> || no access
m=$( { while read -r k && [ "$k" -gt 0 ]; do
dd bs=$k count=1 iflag=fullblock 2>/dev/null; done; } | tar -xpof - 2>&1 >/dev/null )
[ $? = 0 ] && { echo ok; exit; }
m=${m%%
*}; no error "${m##*: }" )"""


class Members:
    """The members of a tar stream, in turn; what is not read is passed over.

    Args:
        source: The stream.
        op: Which operation it is for.
    """

    def __init__(self, source: AsyncIterator[bytes], *, op: str) -> None:
        self._source = source
        self._op = op
        self._read = b""
        self._left = self._padding = 0

    async def __aiter__(self) -> AsyncGenerator[tarfile.TarInfo]:
        more: dict[str, bytes] = {}
        while header := await self._header():
            if header.type in (_LONG_NAME, _LONG_LINK, _PAX, _GLOBAL):
                more |= await self._extended(header)
                continue
            self._begin(header, more)
            more = {}
            yield header
            async for _ in self.content():
                pass

    async def content(self, *, most: int | None = None) -> AsyncIterator[bytes]:
        """Yield what is left of a member's content, no more than `most`."""
        while self._left:
            piece = await self._some(min(self._left, PIECE))
            self._left -= len(piece)
            if most is not None:
                piece = piece[:most]
                most -= len(piece)
            if piece:
                yield piece
        padding, self._padding = self._padding, 0
        await self._exactly(padding)

    async def _header(self) -> tarfile.TarInfo | None:
        """Return the next header; archives may follow on each other."""
        while True:
            block = await self._exactly(_BLOCK, end=True)
            if not block:
                return None
            if block.count(0) == _BLOCK:
                continue
            try:
                header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except (tarfile.TarError, ValueError) as error:
                raise self._no_archive(str(error)) from None
            if header.size < 0:
                raise self._no_archive("a size below nothing")
            return header

    def _begin(self, header: tarfile.TarInfo, more: dict[str, bytes]) -> None:
        if any(name.startswith("GNU.sparse") for name in more) or header.type == b"S":
            raise self._no_archive("a sparse member")
        if path := more.get("path"):
            header.name = decoded(path.rstrip(b"/") or b"/")
        if target := more.get("linkpath"):
            header.linkname = decoded(target)
        if (size := more.get("size")) is not None:
            header.size = self._number(size)
        if (when := more.get("mtime")) is not None:
            header.mtime = self._number(when.partition(b".")[0])
        self._left = header.size if header.isreg() else 0
        self._padding = -self._left % _BLOCK

    def _number(self, digits: bytes) -> int:
        if not re.fullmatch(rb"\d{1,18}", digits):
            raise self._no_archive("a number that is none")
        return int(digits)

    async def _extended(self, header: tarfile.TarInfo) -> dict[str, bytes]:
        # SAFETY: these are held in memory.
        if header.size > _LONGEST_HEADER:
            raise self._no_archive("headers that are too long")
        data = await self._exactly(header.size)
        await self._exactly(-header.size % _BLOCK)
        if header.type == _LONG_NAME:
            return {"path": data.partition(b"\0")[0]}
        if header.type == _LONG_LINK:
            return {"linkpath": data.partition(b"\0")[0]}
        return self._pax(data) if header.type == _PAX else {}

    def _pax(self, data: bytes) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        data, at = data.rstrip(b"\0"), 0
        while at < len(data):
            record = _RECORD.match(data, at)
            end = at + int(record[1]) if record else 0
            if record is None or not record.end() < end <= len(data):
                raise self._no_archive("headers that are none")
            # SAFETY: others are not kept; headers without end may be full of them.
            if record[2] in _SAID or record[2].startswith(b"GNU.sparse"):
                found[decoded(record[2])[:10]] = data[record.end() : end - 1]
            at = end
        return found

    async def _some(self, most: int) -> bytes:
        if not self._read:
            self._read = await anext(self._source, b"")
            if not self._read:
                raise self._no_archive("it ends in the middle")
        piece, self._read = self._read[:most], self._read[most:]
        return piece

    async def _exactly(self, size: int, *, end: bool = False) -> bytes:
        pieces = [self._read]
        have = len(self._read)
        while have < size:
            pieces.append(await anext(self._source, b""))
            have += len(pieces[-1])
            if not pieces[-1]:
                if end and not have:
                    return b""
                raise self._no_archive("it ends in the middle")
        data = b"".join(pieces)
        self._read = data[size:]
        return data[:size]

    def _no_archive(self, why: str) -> IsoboxError:
        return ArchiveError(f"this is no tar stream: {why}", op=self._op)


async def admitted(source: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield a tar stream from inside without devices, sockets and FIFOs."""
    members = Members(source, op="pull")
    left_out: set[str] = set()
    async for member in members:
        plain = member.isreg() or member.isdir() or member.issym() or member.islnk()
        if not plain or (member.islnk() and member.linkname in left_out):
            left_out.add(member.name)
            continue
        yield _packed(member)
        async for piece in members.content():
            yield piece
        if padding := -(member.size if member.isreg() else 0) % _BLOCK:
            yield bytes(padding)
    yield _END


def _packed(member: tarfile.TarInfo) -> bytes:
    member.pax_headers = {}
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


_MAGIC: Final = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


async def plain(source: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield a stream, decompressed if it begins as a compressed one."""
    head = b""
    while len(head) < 6 and (piece := await anext(source, b"")):
        head += piece
    kind = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")
    if not kind:
        if head:
            yield head
        async for piece in source:
            yield piece
        return
    unpacking = _Unpacked(kind)
    try:
        for data in unpacking.take(head):
            yield data
        async for piece in source:
            for data in unpacking.take(piece):
                yield data
    except (zlib.error, lzma.LZMAError, OSError) as error:
        raise ArchiveError(f"this is no tar stream: {error}", op="push") from None


class _Unpacked:
    """Decompresses so much at a time, whatever a little becomes."""

    def __init__(self, kind: str) -> None:
        self._zlib = zlib.decompressobj(31) if kind == "gzip" else None
        self._other: _Decompressor | None = None
        if kind == "bzip2":
            self._other = bz2.BZ2Decompressor()
        elif kind == "xz":
            self._other = lzma.LZMADecompressor()

    def take(self, data: bytes) -> list[bytes]:
        if self._zlib is not None:
            return list(self._of_zlib(self._zlib, data))
        found: list[bytes] = []
        other = self._other
        while other is not None and not other.eof:
            found.append(other.decompress(data, PIECE))
            data = b""
            if len(found[-1]) < PIECE:
                break
        return found

    def _of_zlib(self, unpacking: zlib._Decompress, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        while data and not unpacking.eof:
            found.append(unpacking.decompress(data, PIECE))
            data = unpacking.unconsumed_tail
        return found


class Incoming:
    """What a caller's archive makes of a directory, checked on the host.

    Args:
        links: Relative paths of the links that are there.
        folders: Those of the directories.
    """

    def __init__(self, links: set[str], folders: set[str]) -> None:
        self._links = links
        self._folders = folders
        self._made: dict[str, tarfile.TarInfo] = {}
        self.count = 0

    async def checked(self, source: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Yield the archive as it may be unpacked.

        Raises:
            ArchiveError: A member leaves the directory, goes through a link, or
                is a device. What came before it has been yielded.
            PathIsDirectoryError: A file would replace a directory.
        """
        members = Members(plain(source), op="push")
        async for member in members:
            self._admit(member)
            yield _packed(member)
            async for piece in members.content():
                yield piece
            if padding := -(member.size if member.isreg() else 0) % _BLOCK:
                yield bytes(padding)
            self.count += 1
        # Only now: what is below them had to be written.
        for folder in reversed(self._made.values()):
            yield _packed(folder)
        yield _END

    def _admit(self, member: tarfile.TarInfo) -> None:
        name = self._placed(member.name)
        kept = member.mode & 0o777
        member.name = f"./{name}" if name != "." else "."
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = kept
        if member.isdir():
            self._enter(member, name)
            return
        if name in self._folders or name == ".":
            raise PathIsDirectoryError(f"{name!r} is a directory", path=name, op="push")
        self._links.discard(name)
        if member.issym():
            self._links.add(name)
        elif member.islnk():
            member.linkname = f"./{self._placed(member.linkname)}"
        elif not member.isreg():
            raise ArchiveError(f"a device or FIFO: {member.name!r}", op="push")

    def _enter(self, member: tarfile.TarInfo, name: str) -> None:
        if name in self._links:
            raise ArchiveError(f"a directory over a link: {name!r}", op="push")
        last = copy.copy(member)
        self._made.pop(name, None)
        self._made[name] = last
        self._folders.add(name)
        member.mode |= 0o700

    def _placed(self, path: str) -> str:
        name = posixpath.normpath(path)
        if name.startswith(("/", "../")) or name == "..":
            raise ArchiveError(f"a member leaves the directory: {path!r}", op="push")
        above = name
        while "/" in above:
            above = above.rsplit("/", 1)[0]
            if above in self._links:
                raise ArchiveError(f"a member goes through a link: {path!r}", op="push")
        return name


async def prepared(operator: Operator, path: str, *, clear: bool) -> Incoming:
    """Make a directory, or empty it, and see what is there.

    Raises:
        PathNotDirectoryError: It is no directory.
    """
    answers.check_length(path, op="push")
    code = filled(_PREPARE, path=path, clear=int(clear))
    answer = answers.check(
        await operator.ask(code, most=256 << 20), op="push", path=path
    )
    links, _, folders = answer.partition(b"/\0")
    return Incoming(_names(links), _names(folders))


def _names(listed: bytes) -> set[str]:
    return {decoded(name.removeprefix(b"./")) for name in listed.split(b"\0") if name}


async def unpacked(
    operator: Operator, path: str, incoming: Incoming, body: AsyncIterator[bytes]
) -> int:
    """Unpack a caller's archive; returns how many members it had."""
    await operator.tell(filled(_UNPACK, path=path))
    pending = bytearray()
    failure: IsoboxError | None = None
    try:
        async for piece in incoming.checked(body):
            pending += piece
            if len(pending) >= PIECE // 4:
                await _sent(operator, pending)
    except (ArchiveError, PathIsDirectoryError) as error:
        failure = error
        pending += _END
    await _sent(operator, pending)
    await operator.send(b"0\n")
    answer = await operator.rest()
    if failure is not None:
        raise failure
    answers.check(answer, op="push", path=path)
    return incoming.count


async def _sent(operator: Operator, pending: bytearray) -> None:
    for at in range(0, len(pending), PIECE):
        piece = bytes(pending[at : at + PIECE])
        await operator.send(b"%d\n" % len(piece) + piece)
    pending.clear()


async def packed(operators: Operators, path: str) -> ByteStream:
    """Pack what is at a path.

    Raises:
        PathMissingError: There is nothing.
    """
    stack = contextlib.AsyncExitStack()
    try:
        operator = await stack.enter_async_context(operators.one(spare=True))
        await operator.tell(filled(_PACK, path=path))
        await answers.check_line(operator, op="pull", path=path)
    except BaseException:
        await stack.aclose()
        raise
    return Packed(Reading(operator, stack, op="pull", path=path))


class Packed(ByteStream):
    """A tar stream from inside, without what no archive should have."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self._reading = reading
        self._pieces = admitted(aiter(reading))
        self._count = 0

    @override
    async def receive(self) -> bytes:
        try:
            piece = await anext(self._pieces, b"")
        except ArchiveError as error:
            await self.aclose()
            # SAFETY: it is the sandbox's archive, not the caller's.
            raise ProtocolError(error.message) from None
        self._count += len(piece)
        if not piece:
            await self.aclose()
        return piece

    @override
    async def aclose(self) -> None:
        self._ended({"bytes": self._count})
        await self._reading.aclose()


#: Makes room beside a path, and puts what was unpacked there in its place.
_OPENING: Final = """( p=<path>; d=${p%/*}; d=${d:-/}
m=$(mkdir -p -- "$d" 2>&1) || { [ -e "$d" ] && no not_directory; \
no error "${m##*: }"; }
if [ <replace> = 0 ]; then [ -e "$p" ] || [ -L "$p" ] && no exists; fi
m=$(mkdir -m 700 -- <draft> 2>&1) || no error "${m##*: }"
echo ok )"""
_PLACING: Final = """( p=<path>; n=<draft>; old=$n-old
if [ -e "$p" ] || [ -L "$p" ]; then
  [ <replace> = 1 ] || no exists
  m=$(mv -f -- "$p" "$old" 2>&1) || no error "${m##*: }"
fi
m=$(mv -f -- "$n" "$p" 2>&1) || { mv -f -- "$old" "$p"; no error "${m##*: }"; }
rm -rf -- "$old"; echo ok )"""


def opening(path: str, draft: str, *, replace: bool) -> bytes:
    """Return the code that makes an empty directory beside a path."""
    return filled(_OPENING, path=path, draft=draft, replace=int(replace))


def placing(path: str, draft: str, *, replace: bool) -> bytes:
    """Return the code that puts a directory in the place of what is there."""
    return filled(_PLACING, path=path, draft=draft, replace=int(replace))


def beside(path: str) -> str:
    """Return a new name in the directory of a path."""
    return f"{path.rsplit('/', 1)[0]}/.isobox-{secrets.token_hex(8)}"
