"""Entries and matches as the guest packs them, read with suspicion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isobox._core.paths import within
from isobox._core.results import PATH_ERRORS, Entry, Match
from isobox._guest import agent
from isobox.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        if after > end or plen > _LONGEST_PATH or dlen not in (0, 32):
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


def matches(data: bytes, top: str, *, cut: bool) -> Iterator[Match]:
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
        yield match


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
