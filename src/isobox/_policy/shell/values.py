"""What a script assigns to variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.arithmetic import counts, is_number, variable
from isobox._policy.shell.variables import Assigned

if TYPE_CHECKING:
    from tree_sitter import Node

    from isobox._policy.shell.walk import Walk

_VARIABLE: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_INDEX: Final = re.compile(rb"\[[0-9]+\]=")
_PLAIN: Final = re.compile(r"[\w./-]+", re.ASCII)
_RANGE: Final = re.compile(r"\{-?[0-9]+\.\.-?[0-9]+(?:\.\.-?[0-9]+)?\}")


def assigned(walk: Walk, node: Node) -> tuple[Assigned, list[Node]]:
    """What an assignment sets, and the nodes in it that are to be walked."""
    target, *others = node.children
    written = walk.text(target).split(b"[")[0]
    if not _VARIABLE.fullmatch(written):
        walk.misread()
    name = written.decode(errors="replace")
    following = [target] if target.child_count else []
    operator, values = others[:1], others[1:]
    whole = not following and bool(operator) and walk.text(operator[0]) == b"="
    if not values:
        return Assigned(name, "", whole=whole), following
    if values[0].type == "array":
        _indexes(walk, values[0])
        number = _of_numbers(walk, values[0])
        what = Assigned(name, number=number, whole=whole, listed=True)
        return what, following + values
    word, holes = walk.word(values)
    start, end = values[0].start_byte, values[-1].end_byte
    what = value(name, walk.source[start:end].decode(errors="replace"), whole=whole)
    if not word.dynamic:
        what = Assigned(name, word.text, whole=whole)
    return what, following + list(holes)


def value(name: str, written: str, *, whole: bool = True) -> Assigned:
    """What a variable is set to by an expansion, as written."""
    inside = written[1:-1] if written[:1] == written[-1:] == '"' else written
    other = variable(inside) if whole else None
    return Assigned(name, number=counts(inside), like=other, whole=whole)


def _of_numbers(walk: Walk, array: Node) -> bool:
    texts = (walk.text(each).decode(errors="replace") for each in array.children[1:-1])
    return all(is_number(each) or counts(each) for each in texts)


def _indexes(walk: Walk, array: Node) -> None:
    for each in array.children[1:-1]:
        text = walk.text(each)
        if text.startswith(b"[") and not _INDEX.match(text):
            walk.reading.doubt("calculates with what only running it tells")


def looped(walk: Walk, node: Node, name: str) -> list[Assigned]:
    """What a loop sets its variable to."""
    nodes = node.children_by_field_name("value")
    texts = [walk.text(each).decode(errors="replace") for each in nodes]
    return [_item(name, each) for each in texts] or [Assigned(name)]


def _item(name: str, text: str) -> Assigned:
    if is_number(text) or _RANGE.fullmatch(text):
        return Assigned(name, number=True)
    if _PLAIN.fullmatch(text):
        return Assigned(name, text)
    return value(name, text)
