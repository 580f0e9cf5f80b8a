"""Changes as text: unified diffs of what is text and of moderate length."""

from __future__ import annotations

import difflib
import os
import time
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


def described(private: Private, items: Items) -> Changes:
    """Return items as changes, with text where there is some."""
    writer = _Writer(private)
    changes = tuple(
        Change(item.path, item.change, item.kind, item.refused, writer.text(item))
        for item in items.found
    )
    return Changes(changes, items.truncated)


class _Writer:
    def __init__(self, private: Private) -> None:
        self._private = private
        self._left = _MOST_TEXT
        self._until = time.monotonic() + _SECONDS

    def text(self, item: Item) -> str | None:
        if not item.content or self._left <= 0 or time.monotonic() > self._until:
            return None
        try:
            text = self._compared(item)
        except OSError:
            return None
        self._left -= len(text or "")
        return text

    def _compared(self, item: Item) -> str | None:
        old = _content(self._private.host, item.path, item.host)
        new = _content(self._private.view, item.path, item.view)
        if old is None and new is None:
            return None
        a, b = _named("a", item.host, item.path), _named("b", item.view, item.path)
        before, after = _lines(old), _lines(new)
        if before is None or after is None:
            return f"Binary files {a} and {b} differ\n"
        if len(before) + len(after) > 2 * _MOST_LINES:
            return None
        return "".join(_marked(difflib.unified_diff(before, after, a, b)))


def _content(root: int, path: str, found: os.stat_result | None) -> bytes | None:
    """Return a regular file's content; nothing of anything else or of too much."""
    if found is None or trees.kind_of(found.st_mode) != "file":
        return None
    fd = trees.regular(root, path)
    try:
        if os.fstat(fd).st_size > _LONGEST:
            return b"\0"
        return os.pread(fd, _LONGEST, 0)
    finally:
        os.close(fd)


def _lines(content: bytes | None) -> list[str] | None:
    """Return lines with their ends, or None for what is not text."""
    if content is None:
        return []
    if b"\0" in content:
        return None
    try:
        text = content.decode()
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
