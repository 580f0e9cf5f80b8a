"""How tools put things to a model."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from isobox._workspace.tools.result import DataBlock, TextBlock, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Characters of text that one result holds.
MOST_TEXT: Final = 30_000
#: Characters of a file that one result of Read holds.
MOST_SHOWN: Final = 250_000
#: Control characters, ends of lines, and what turns the direction of writing.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_MOST_DIFF: Final = 4_000
#: difflib takes time that grows with the square of this.
_MOST_COMPARED: Final = 500


def said(
    *parts: str, metadata: Mapping[str, object] | None = None, is_error: bool = False
) -> ToolResult:
    """Return a result of text: the parts that are not empty, each on its line."""
    text = "\n".join(part.removesuffix("\n") for part in parts if part)
    return ToolResult(
        blocks=(TextBlock(clean(text)),), is_error=is_error, metadata=metadata or {}
    )


def failed(message: str, **metadata: object) -> ToolResult:
    """Return a result that says what went wrong."""
    return said(message, metadata=metadata, is_error=True)


def image(media_type: str, data: bytes, caption: str, **metadata: object) -> ToolResult:
    """Return an image with a line about it."""
    return ToolResult(
        blocks=(TextBlock(clean(caption)), DataBlock(media_type, data)),
        metadata=metadata,
    )


def clean(text: str) -> str:
    """Return a text that every interface takes: no NUL, no half characters."""
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def plain(name: str) -> str:
    """Return a name with escapes for what would steer a terminal or end a line."""
    if name.isprintable():
        return name
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], name)


def note(text: str) -> str:
    """Return what the tool itself has to say, apart from what it shows."""
    return f"[{text}]"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """Return names in one line, the first of them if there are many."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def cut(text: str, about: str) -> str:
    """Return a text, without its middle if it is long; `about` stands there."""
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f"{text[:half]}\n{note(about)}\n{text[-half:]}"


def difference(old: str, new: str) -> str:
    """Return a short unified diff, without file names, "" for no difference."""
    before, after = old.splitlines(), new.splitlines()
    start = _common(before, after)
    left, right = before[start:], after[start:]
    end = _common(left[::-1], right[::-1])
    left, right = left[: len(left) - end], right[: len(right) - end]
    if len(left) + len(right) > _MOST_COMPARED:
        return (
            f"{count(len(left), 'line')} from line {start + 1} on gave way to "
            f"{count(len(right), 'other')}"
        )
    low = max(0, start - 3)
    lines = difflib.unified_diff(
        before[low : start + len(left) + 3],
        after[low : start + len(right) + 3],
        lineterm="",
    )
    return bounded_diff(_placed(list(lines)[2:], low))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    ends = (index for index, (left, right) in pairs if left != right)
    return next(ends, min(len(one), len(other)))


def _placed(lines: Iterable[str], offset: int) -> list[str]:
    """Move the numbers of a diff of excerpts to where these stand."""
    return [_moved(line, offset) if line.startswith("@@ ") else line for line in lines]


def _moved(line: str, offset: int) -> str:
    _, old, new, _ = line.split(" ")
    return f"@@ {_shifted(old, offset)} {_shifted(new, offset)} @@"


def _shifted(span: str, offset: int) -> str:
    start, _, length = span[1:].partition(",")
    return f"{span[0]}{int(start) + offset},{length or 1}"


def bounded_diff(lines: Sequence[str]) -> str:
    """Return as many lines of a diff as a result holds well."""
    kept: list[str] = []
    room = _MOST_DIFF
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            kept.append(note(f"{count(len(lines) - len(kept), 'line')} more"))
            break
        kept.append(line)
    return "\n".join(kept)
