"""Paths of requests: what servers may make of one, and which a rule means."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

#: How often something may be percent-encoded; more is no path but an attack.
_LAYERS: Final = 4
#: A piece that is walked, whatever is taken for what ends a piece or a path.
_DOTS: Final = re.compile(r"(?:\A|[/\\])\.\.?(?:[/\\;?#]|\Z)")
_CONTROL: Final = frozenset(map(chr, (*range(0x20), 0x7F)))


@lru_cache(64)
def readings(path: str) -> frozenset[str]:
    """Return every path that a server may take this one for.

    It may decode once or more often (`%61` and `%2561` are an `a`), take `//` and
    a backslash for `/`, and leave out what follows `;` in a piece. Empty where
    nobody could say: where a piece is `.` or `..` once it is decoded, however
    often, as servers differ about which pieces `..` takes away.
    """
    found: set[str] = set()
    raw = path.encode("utf-8", "surrogatepass")
    for _ in range(_LAYERS):
        raw = unquote_to_bytes(raw)
        text = raw.decode("latin-1")
        if not _CONTROL.isdisjoint(text) or _DOTS.search(text):
            return frozenset()
        found |= {text, _joined(text), _joined(_without_parameters(text))}
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


def _joined(path: str) -> str:
    return re.sub(r"[/\\]+", "/", "/" + path)


def _without_parameters(path: str) -> str:
    return re.sub(r";[^/\\]*", "", path)
