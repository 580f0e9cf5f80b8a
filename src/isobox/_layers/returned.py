"""How many bytes of what is inside an operation's result brings out."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from isobox._core.results import Changes, Edited, Listing, Matches, Page, Patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from isobox._core.results import Change, Entry, Match

T = TypeVar("T")

#: Results that arrive as a whole.
Whole = Page | Matches | Listing | Changes | Edited | Patched


def size(result: Whole) -> int:
    """Return the bytes of the content and of the names in a result."""
    data = len(result.data or b"") if isinstance(result, Page) else 0
    return data + sum(len(each.encode("utf-8", "replace")) for each in _texts(result))


def _texts(result: Whole) -> Iterable[str]:
    match result:
        case Page():
            return result.lines
        case Edited():
            return (result.diff,)
        case Listing():
            return _each(_of_entry, result.entries)
        case Patched():
            return chain(result.removed, _each(_of_entry, result.written))
        case Matches():
            found = _each(_of_match, result.matches)
            return chain(found, result.skipped, result.partial)
        case Changes():
            return _each(_of_change, result.changes)


def _each(texts: Callable[[T], Iterable[str]], found: Iterable[T]) -> Iterable[str]:
    return chain.from_iterable(map(texts, found))


def _of_match(match: Match) -> Iterator[str]:
    yield match.path
    yield match.text
    yield from match.before
    yield from match.after


def _of_entry(entry: Entry) -> Iterator[str]:
    yield entry.path
    yield entry.target or ""


def _of_change(change: Change) -> Iterator[str]:
    yield change.path
    yield change.text or ""
    yield change.target or ""
