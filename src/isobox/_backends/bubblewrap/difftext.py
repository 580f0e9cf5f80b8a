"""Changes as text: unified diffs of what is text and of moderate length."""

from __future__ import annotations

import difflib
import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._core.paths import shown
from isobox._core.results import Change, Changes
from isobox._linux import trees

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._backends.bubblewrap.changes import Item, Items, Private

_LONGEST: Final = 256 * 1024
_MOST_LINES: Final = 5000
#: Bytes of text, and seconds, after which the rest is described without.
_MOST_TEXT: Final = 8 << 20
_SECONDS: Final = 10.0
#: Bytes of a file, and seconds, beyond which no content is hashed: files with
#: holes cost a sandbox nothing.
_MOST_HASHED: Final = 4 << 30
_HASHING: Final = 60.0


def described(private: Private, items: Items, *, digest: bool = False) -> Changes:
    """Return items as changes, with text where there is some."""
    writer = _Writer(private, digest=digest)
    return Changes(tuple(map(writer.change, items.found)), items.truncated)


@dataclass(frozen=True, slots=True)
class _Content:
    """What a regular file holds: all of it, or None for too much, and its digest."""

    data: bytes | None
    digest: str | None = None


class _Writer:
    def __init__(self, private: Private, *, digest: bool) -> None:
        self._private = private
        self._digest = digest
        self._left = _MOST_TEXT
        self._until = time.monotonic() + _SECONDS
        self._hashing = time.monotonic() + _HASHING

    def change(self, item: Item) -> Change:
        wanted = item.content and self._left > 0 and time.monotonic() < self._until
        # What is shown and what is hashed are the same bytes, of one reading.
        new = self._new(item) if wanted or self._digest else None
        text = self._text(item, new) if wanted else None
        self._left -= len(text or "")
        is_file = item.view is not None and item.kind == "file"
        return Change(
            item.path,
            item.change,
            item.kind,
            item.refused,
            text,
            mode=permissions(item.view),
            old_mode=permissions(item.host),
            size=item.view.st_size if item.view is not None and is_file else None,
            digest=None if new is None else new.digest,
            target=item.target if item.kind == "symlink" else None,
        )

    def _new(self, item: Item) -> _Content | None:
        view = self._private.view
        digest = self._digest and time.monotonic() < self._hashing
        try:
            return _content(view, item.path, item.view, digest=digest)
        except OSError:
            return None

    def _text(self, item: Item, new: _Content | None) -> str | None:
        try:
            old = _content(self._private.host, item.path, item.host)
        except OSError:
            return None
        is_file = item.view is not None and trees.kind_of(item.view.st_mode) == "file"
        if (old is None and new is None) or (is_file and new is None):
            return None
        a, b = _named("a", item.host, item.path), _named("b", item.view, item.path)
        before, after = _lines(old), _lines(new)
        if before is None or after is None:
            return f"Binary files {a} and {b} differ\n"
        if len(before) + len(after) > 2 * _MOST_LINES:
            return None
        return "".join(_marked(difflib.unified_diff(before, after, a, b)))


def permissions(found: os.stat_result | None) -> int | None:
    """Return the permission bits of a file or a directory."""
    known = found is not None and trees.kind_of(found.st_mode) in ("file", "directory")
    return found.st_mode & 0o777 if found is not None and known else None


def _content(
    root: int, path: str, found: os.stat_result | None, *, digest: bool = False
) -> _Content | None:
    """Return a regular file's content; nothing of anything else."""
    if found is None or trees.kind_of(found.st_mode) != "file":
        return None
    fd = trees.regular(root, path)
    try:
        data = os.pread(fd, _LONGEST + 1, 0)
        if len(data) <= _LONGEST:
            known = hashlib.sha256(data).hexdigest() if digest else None
            return _Content(data, known)
        digest = digest and os.fstat(fd).st_size <= _MOST_HASHED
        return _Content(None, trees.digest(fd) if digest else None)
    finally:
        os.close(fd)


def _lines(content: _Content | None) -> list[str] | None:
    """Return lines with their ends, or None for what is not text."""
    if content is None:
        return []
    if content.data is None or b"\0" in content.data:
        return None
    try:
        text = content.data.decode()
    except UnicodeDecodeError:
        return None
    return [line + "\n" for line in text.split("\n")[:-1]] + _last(text)


def _last(text: str) -> list[str]:
    rest = text.rpartition("\n")[2]
    return [rest] if rest else []


def _marked(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if not line.endswith("\n"):
            yield "\n\\ No newline at end of file\n"


def _named(side: str, found: os.stat_result | None, path: str) -> str:
    if found is None:
        return "/dev/null"
    # SAFETY: a line end in a name must not look like lines of the diff.
    name = f"{side}/{path}"
    return shown(name)
