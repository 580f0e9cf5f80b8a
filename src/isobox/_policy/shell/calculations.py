"""Where a script calculates: in brackets, in indexes, and in loops that count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isobox._policy.shell import arithmetic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from isobox._policy.shell.scopes import Step
    from isobox._policy.shell.walk import Walk


def between(walk: Walk, start: int, end: int, nodes: Sequence[Node]) -> list[Step]:
    """Note what a part of the script calculates with; return what is to follow."""
    holes = walk.expansions(nodes)
    text, at = b"", start
    for each in holes:
        text += walk.source[at : each.start_byte] + arithmetic.HOLE.encode()
        at = each.end_byte
    text = (text + walk.source[at:end]).replace(b"\\\n", b"")
    written = [walk.text(each).decode(errors="replace") for each in holes]
    expression = text.decode(errors="replace")
    return [*holes, *arithmetic.calculate(expression, written, walk.reading)]


def brackets(walk: Walk, node: Node) -> list[Step]:
    """`$((a))`, `$[a]` and `((a))`."""
    first, *inside, last = node.children
    return between(walk, first.end_byte, last.start_byte, inside)


def subscript(walk: Walk, node: Node) -> list[Step]:
    """The index of a list; all of it is `@` or `*`."""
    _, opening, *index, closing = node.children
    if walk.source[opening.end_byte : closing.start_byte] in (b"@", b"*"):
        return []
    return between(walk, opening.end_byte, closing.start_byte, index)


def substring(walk: Walk, below: Sequence[Node]) -> None:
    """The place and the length in `${a:1:2}`."""
    kinds = [each.type for each in below]
    if ":" in kinds:
        at = kinds.index(":")
        end = below[-1].start_byte
        between(walk, below[at].end_byte, end, below[at + 1 : -1])


def counting_loop(walk: Walk, node: Node) -> list[Step]:
    """`for ((i = 0; i < 3; i++))`: its three expressions, and what it does."""
    below = node.children
    kinds = [each.type for each in below]
    if "((" not in kinds or "))" not in kinds:
        walk.misread()
        return list(below)
    at, end = kinds.index("(("), kinds.index("))")
    found: list[Step] = []
    for stop in range(at + 1, end + 1):
        if kinds[stop] == ";" or stop == end:
            piece = below[at + 1 : stop]
            found += _noted(
                between(walk, below[at].end_byte, below[stop].start_byte, piece)
            )
            at = stop
    return [*found, *below[end + 1 :]]


def _noted(steps: list[Step]) -> list[Step]:
    """Note now what is set, where nothing is to be walked before."""
    if not all(callable(each) for each in steps):
        return steps
    for each in steps:
        if callable(each):
            each()
    return []
