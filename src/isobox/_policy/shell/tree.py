"""The parse tree of a script, with a bound on what making it costs."""

from __future__ import annotations

import re
import time
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Language, Node, Tree

#: Seconds that parsing a script and those in it may take. The grammar takes
#: quadratic time and worse on repeated openings: 64 KiB of `(a)` is almost a
#: minute. A script that people write takes a few milliseconds.
PATIENCE: Final = 0.3
#: Calls of the parser, each after 100 of its steps: about 20 to 30 nodes, so
#: that what takes more has more nodes than are read. Without this bound, the
#: last step on 64 KiB of `a|` takes minutes, and cannot be interrupted.
_CALLS: Final = 1_000
#: Calls of the parser, each after 100 of its steps, after the first error:
#: it then searches for a way to go on, and each step may be slow.
_RECOVERY: Final = 20
_PIECE: Final = 4096
_BLANK: Final = re.compile(rb"(?:[ \t\n]|\\\n)*")
_SPACE: Final = re.compile(rb"(?:[ \t]|\\\n)*")
_JOINED: Final = re.compile(rb"(?:\\\n)*")


@cache
def _language() -> Language:
    import tree_sitter  # noqa: PLC0415 - heavy, and seldom needed
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Language(tree_sitter_bash.language())


def parse(source: bytes, patience: float) -> Tree | None:
    """The tree of a script, or None where it takes longer, in seconds."""
    from tree_sitter import Parser  # noqa: PLC0415

    deadline = time.monotonic() + patience
    called = failed = 0

    def hopeless(_offset: int, error: bool, /) -> bool:
        nonlocal called, failed
        called += 1
        failed += error
        hard = called > _CALLS or failed > _RECOVERY
        return hard or time.monotonic() > deadline

    try:
        return Parser(_language()).parse(
            lambda at, _point: source[at : at + _PIECE], progress_callback=hopeless
        )
    except ValueError:
        return None


def children(node: Node) -> Iterator[tuple[str | None, Node]]:
    """The children of a node with the names of their fields, in linear time."""
    cursor = node.walk()
    more = cursor.goto_first_child()
    while more:
        if cursor.node is not None:
            yield cursor.field_name, cursor.node
        more = cursor.goto_next_sibling()


def blank(source: bytes, start: int, end: int) -> bool:
    """Whether there is nothing but blanks and line continuations between."""
    return _BLANK.fullmatch(source, start, max(start, end)) is not None


def spaced(source: bytes, start: int, end: int) -> bool:
    """Whether a gap keeps what is on both sides in one command."""
    return _SPACE.fullmatch(source, start, max(start, end)) is not None


def joined(source: bytes, start: int, end: int) -> bool:
    """Whether what is on both sides of a gap is one word."""
    return _JOINED.fullmatch(source, start, max(start, end)) is not None
