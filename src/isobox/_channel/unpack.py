"""Entries and matches as the guest packs them, read with suspicion."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from isobox._core.paths import within
from isobox._core.results import PATH_ERRORS, Entry, Match, Page, Patched
from isobox._guest import agent
from isobox.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from isobox._channel.stream import Fields
    from isobox._core.ops import SearchMode
    from isobox._core.patch import FileChange
    from isobox._core.results import Kind

_KINDS: dict[bytes, Kind] = {
    b"f": "file",
    b"d": "directory",
    b"l": "symlink",
    b"p": "fifo",
    b"s": "socket",
    b"c": "device",
}
#: PATH_MAX, with room for a workspace's root.
_LONGEST_PATH = 8192


def entries(data: bytes, top: str) -> Iterator[Entry]:
    """Yield the entries that stand in `data`, all of them at or below `top`.

    Raises:
        ProtocolError: The bytes are no whole entries, or name other places.
    """
    unpack, size = agent.ENTRY.unpack_from, agent.ENTRY.size
    at, end = 0, len(data)
    while at < end:
        if at + size > end:
            raise ProtocolError("the guest sent half an entry")
        kind, mode, uid, gid, length, mtime, dlen, plen, tlen = unpack(data, at)
        at += size
        # SAFETY: every length is the guest's word; slices cannot run over, and
        # the sum is compared with what is there.
        after = at + dlen + plen + tlen
        if after > end or max(plen, tlen) > _LONGEST_PATH or dlen not in (0, 32):
            raise ProtocolError("the guest sent an entry with wrong lengths")
        digest = data[at : at + dlen].hex() if dlen else None
        path = data[at + dlen : at + dlen + plen].decode("utf-8", PATH_ERRORS)
        target = (
            data[after - tlen : after].decode("utf-8", PATH_ERRORS) if tlen else None
        )
        at = after
        if kind not in _KINDS or not _below(path, top):
            raise ProtocolError("the guest described what was not asked")
        yield Entry(path, _KINDS[kind], length, mode, mtime, uid, gid, target, digest)


def matches(
    data: bytes, top: str, *, cut: bool, mode: SearchMode = "content"
) -> Iterator[Match]:
    """Yield the matches that stand in `data`; with `cut` the last may be half.

    Raises:
        ProtocolError: The bytes are no matches, or name other places.
    """
    reader = _Reader(data)
    while reader.left:
        try:
            match = _match(reader)
        except EOFError:
            if cut:
                return
            raise ProtocolError("the guest sent half a match") from None
        if not _below(match.path, top):
            raise ProtocolError("the guest found what was not asked")
        yield match if mode == "content" else _of_file(match, mode)


def _of_file(match: Match, mode: SearchMode) -> Match:
    # What stands as a line's number is how many there are.
    return Match(match.path, 0, "", count=match.line if mode == "count" else 1)


_ENCODINGS: Final = ("", "utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "latin-1")
_NEWLINES: Final = ("", "\n", "\r\n", "mixed")
_MEDIA_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,60}")


def page(fields: Fields, data: bytes, entry: Entry, *, most: int) -> Page:
    """Return the page that the guest describes, of at most `most` lines.

    Raises:
        ProtocolError: It describes what cannot be.
    """
    first, total, count = (fields.get(key) for key in ("first", "total", "count"))
    clipped, encoding = fields.get("clipped"), fields.get("encoding")
    newline, media_type = fields.get("newline"), fields.get("media_type")
    # SAFETY: whatever is not as it must be costs the guest its sandbox.
    if (
        not (isinstance(first, int) and isinstance(total, int) and first > 0 <= total)
        or not (isinstance(count, int) and 0 <= count <= most)
        or not isinstance(clipped, list)
        or not (isinstance(encoding, str) and encoding in _ENCODINGS)
        or not (isinstance(newline, str) and newline in _NEWLINES)
        or not (isinstance(media_type, str) and _MEDIA_TYPE.fullmatch(media_type))
    ):
        raise ProtocolError("the guest described no page")
    numbers = cast("list[object]", clipped)
    image = fields.get("image") is True
    lines = [] if image or not count else data.decode("utf-8", "replace").split("\n")
    if len(lines) != (0 if image else count) or len(numbers) > count:
        raise ProtocolError("the guest sent more or fewer lines than it said")
    return Page(
        entry=entry,
        lines=tuple(lines),
        first=first,
        total=total,
        clipped=tuple(number for number in numbers if isinstance(number, int)),
        encoding=encoding,
        newline=newline,
        final_newline=fields.get("final_newline") is True,
        media_type=media_type,
        data=data if image else None,
    )


#: Characters of a difference, with room for the mark that it was cut.
_LONGEST_DIFF: Final = (64 << 10) + 100


def difference(fields: Fields, path: str) -> tuple[str, int]:
    """Return a difference with the names of its file, and the first line changed."""
    diff, line = fields.get("diff"), fields.get("line")
    number = line if isinstance(line, int) and line > 0 else 0
    if not isinstance(diff, str) or not diff:
        return "", number
    # SAFETY: the guest's word on how long it is may be a lie.
    return f"--- {path}\n+++ {path}\n{diff[:_LONGEST_DIFF]}", number


def patched(fields: Fields, changes: Sequence[FileChange]) -> Patched:
    """Return what the guest says that a patch did.

    Raises:
        ProtocolError: It speaks of other files than the patch.
    """
    packed, removed = fields.get("entries"), fields.get("removed")
    if not isinstance(packed, bytes) or not isinstance(removed, list):
        raise ProtocolError("the guest did not say what it patched")
    asked = {change.path for change in changes}
    asked |= {change.target for change in changes if change.target is not None}
    written = tuple(entries(packed, "/"))
    gone = tuple(
        path.decode("utf-8", PATH_ERRORS)
        for path in cast("list[object]", removed)
        if isinstance(path, bytes)
    )
    # SAFETY: a path that nobody asked for must not look like a result.
    if not {entry.path for entry in written}.union(gone) <= asked:
        raise ProtocolError("the guest patched what was not asked")
    return Patched(written, gone)


def _below(path: str, top: str) -> bool:
    # SAFETY: whoever joins it to another directory must not be led out of that.
    return within(path, top) and "/../" not in path + "/" and "\0" not in path


def _match(reader: _Reader) -> Match:
    line, plen, tlen, before, after = agent.MATCH.unpack(reader.take(agent.MATCH.size))
    path = reader.take(plen).decode("utf-8", PATH_ERRORS)
    text = reader.take(tlen).decode("utf-8", "replace")
    return Match(
        path,
        line,
        text,
        tuple(reader.text() for _ in range(before)),
        tuple(reader.text() for _ in range(after)),
    )


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise EOFError
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        size = int.from_bytes(self.take(4), "big")
        return self.take(size).decode("utf-8", "replace")


def paths(found: object, count: int) -> list[str]:
    """Return so many paths.

    Raises:
        ProtocolError: They are more or fewer, or none.
    """
    if not isinstance(found, list) or len(cast("list[object]", found)) != count:
        raise ProtocolError("the guest sent more or fewer paths than were asked")
    texts = [
        path.decode("utf-8", PATH_ERRORS)
        for path in cast("list[object]", found)
        if isinstance(path, bytes)
    ]
    if len(texts) != count:
        raise ProtocolError("the guest sent what is no path")
    return texts
