"""Tests: `[[ ]]`, `[ ]` and `test`, some of which calculate with text."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from isobox._policy.shell import calculations
from isobox._policy.shell.arithmetic import NAMED, counts, variable
from isobox._policy.shell.words import Word, literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tree_sitter import Node

    from isobox._policy.shell.reading import Reading
    from isobox._policy.shell.walk import Walk

_NAMES: Final = frozenset({"-v", "-R"})
_COMPARES: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_BINARY: Final = _COMPARES | {
    *("=", "==", "!=", "<", ">", "=~", "-nt", "-ot", "-ef", "-a", "-o", ")"),
}
_NESTS: Final = frozenset(
    {"unary_expression", "binary_expression", "parenthesized_expression"}
)
#: A variable, or one of a list by its number.
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*(?:\[[0-9]+\])?", re.ASCII)
_CALCULATES: Final = re.compile(rb"(?<![\w$'\"{-])-(?:eq|ne|lt|le|gt|ge|v|R)(?!\w)")
_UNKNOWN: Final = re.compile(r"[$`*?\[{]")


def check_words(words: Sequence[Word], reading: Reading) -> None:
    """Note what a test by `[` or `test` may run."""
    for word, following in pairwise([*words, None]):
        if word is None:
            return
        if word.splits:
            expect_words(word, reading)
        if following is None:
            continue
        if word.text in _NAMES and not word.dynamic:
            _named(following, reading)
        elif word.may_be_option and following.text not in _BINARY:
            reading.doubt("which test it is, only running it tells")
    for left, operator, right in zip(words, words[1:], words[2:], strict=False):
        if operator.text in _COMPARES:
            _compared(left, reading)
            _compared(right, reading)


def expect_words(word: Word, reading: Reading) -> None:
    """Note that expansions without quotes have to be one word each."""
    if counts(word.text):
        return
    for each in NAMED.finditer(word.text):
        reading.variables.expect_word(each[1] or each[2])
    if _UNKNOWN.search(NAMED.sub("", word.text)):
        reading.doubt("tests what may be any number of words")


def _named(word: Word, reading: Reading) -> None:
    if word.dynamic or not _VARIABLE.fullmatch(word.text):
        reading.doubt("tests a name that may hold a command")


def _compared(word: Word, reading: Reading) -> None:
    # These take numbers only: other shells than bash and dash calculate.
    name = variable(word.text.strip('"'))
    if name is not None:
        reading.variables.compare(name)
    elif "[" in word.text and not word.dynamic:
        reading.doubt("calculates with text that may hold a command")


def check_single(walk: Walk, node: Node) -> None:
    """Note what `[ ]` may run."""
    words = list[Word]()
    end = node.children[0].end_byte
    for each in _leaves(node.children[1:-1]):
        if each.start_byte == end:
            walk.misread()
        end = each.end_byte
        if each.is_named:
            words.append(walk.word([each])[0])
        else:
            words.append(literal(walk.text(each).decode(errors="replace")))
    check_words(words, walk.reading)


def _leaves(nodes: Sequence[Node]) -> Iterator[Node]:
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        if node.type in _NESTS:
            stack.extend(reversed(node.children))
        else:
            yield node


def check_double(walk: Walk, node: Node) -> None:
    """Note what `[[ ]]` calculates with."""
    found = 0
    stack = [node]
    while stack:
        each = stack.pop()
        if each.type not in _NESTS and each is not node:
            continue
        stack.extend(each.children)
        found += _calculates(walk, each)
    # The grammar may take an operator for something else.
    if found != len(_CALCULATES.findall(walk.text(node))):
        walk.reading.doubt("calculates with what cannot be told for certain")


def _calculates(walk: Walk, node: Node) -> int:
    parts = node.children
    if node.type == "binary_expression" and len(parts) == 3:
        left, operator, right = parts
        if walk.text(operator).decode(errors="replace") in _COMPARES:
            for side in (left, right):
                calculations.between(walk, side.start_byte, side.end_byte, [side])
            return 1
    if node.type == "unary_expression" and len(parts) == 2:
        operator, operand = parts
        if walk.text(operator) in (b"-v", b"-R"):
            _named(walk.word([operand])[0], walk.reading)
            return 1
    return 0
