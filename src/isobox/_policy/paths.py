"""Paths of requests: what servers may make of one, and which a rule means."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How often something may be percent-encoded; more is no path but an attack.
_LAYERS: Final = 4
_CONTROL: Final = frozenset(map(chr, (*range(0x20), 0x7F)))


@lru_cache(64)
def readings(path: str) -> frozenset[str]:
    """Return every path that a server may take this one for.

    It may decode once or more often (`%2e` and `%252e` are a dot), walk `.` and
    `..`, take `//` and a backslash for `/`, and leave out what follows `;` in a
    piece. Empty where nobody could say.
    """
    found: set[str] = set()
    raw = path.encode("utf-8", "surrogatepass")
    for _ in range(_LAYERS):
        raw = unquote_to_bytes(raw)
        text = raw.decode("latin-1")
        if not _CONTROL.isdisjoint(text):
            return frozenset()
        found |= {text, _walked(text), _walked(_without_parameters(text))}
        if unquote_to_bytes(raw) == raw:
            return frozenset(found)
    return frozenset()


def plain(path: str) -> str:
    """Return a path decoded once, a character for each byte."""
    return unquote_to_bytes(path.encode("utf-8", "surrogatepass")).decode("latin-1")


def fits(pattern: str, path: str) -> bool:
    """Whether a path is one that a pattern means; `*` stands for anything.

    Both are `plain`.
    """
    # Linear in the path: the pieces between stars, one after the other.
    first, *others = pattern.split("*")
    if not others:
        return path == pattern
    if not path.startswith(first):
        return False
    at = len(first)
    for piece in others[:-1]:
        found = path.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(path) - at >= len(others[-1]) and path.endswith(others[-1])


def _walked(path: str) -> str:
    kept: list[str] = []
    pieces = path.replace("\\", "/").split("/")
    for piece in pieces:
        if piece == "..":
            del kept[-1:]
        elif piece not in ("", "."):
            kept.append(piece)
    walked = "/" + "/".join(kept)
    return walked + "/" if kept and pieces[-1] in ("", ".", "..") else walked


def _without_parameters(path: str) -> str:
    return "/".join(_names(path))


def _names(path: str) -> Iterator[str]:
    for piece in path.replace("\\", "/").split("/"):
        yield piece.partition(";")[0]
