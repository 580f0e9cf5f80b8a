"""Walks the parse tree of one script, and checks that it was read as bash would.

The grammar takes some scripts for others without an error: it splits a word
at a line continuation, or hides a command in text. Every word is therefore
read again by the shell's rules, and every gap must be blank.
"""

from __future__ import annotations

import re
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from isobox._policy.shell import words
from isobox._policy.shell.names import KNOWN
from isobox._policy.shell.simple import Simple
from isobox._policy.shell.tree import blank, children, parse
from isobox._policy.shell.variables import names_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

    from isobox._policy.shell.reading import Reading

MISREAD: Final = "part of it cannot be read with certainty"
#: Expansions: what is in them is not text of the word around them.
HOLES: Final = frozenset(
    {
        "arithmetic_expansion",
        "command_substitution",
        "expansion",
        "process_substitution",
        "simple_expansion",
    }
)
_WORDS: Final = frozenset({"word", "string", "concatenation", "number"})
_LOOSE: Final = frozenset(
    {"string", "heredoc_body", "heredoc_redirect", "concatenation", "expansion"}
)
_SIMPLE: Final = frozenset({"command", "declaration_command", "unset_command"})
_CHAINS: Final = frozenset({"list", "pipeline", "negated_command"})
_COMPARES: Final = frozenset({b"-eq", b"-ne", b"-lt", b"-le", b"-gt", b"-ge"})
_HIDDEN: Final = re.compile(rb"(?<!\\)(?:\\\\)*(?:`|\$[({\[]|[<>]\()")
_BEFORE_COMMENT: Final = (b"", b" ", b"\t", b"\n", b";", b"|", b"&", b"(", b")")
_VARIABLE: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_EXPANSION: Final = re.compile(rb"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])")
_SUBSTRING: Final = re.compile(rb":[^-+=?]")
_IN_QUOTES: Final = re.compile(rb"[$`]")


class Walk:
    """One script. Iterative, as scripts nest deeper than Python's stack."""

    def __init__(
        self, source: bytes, through: tuple[str, ...], reading: Reading
    ) -> None:
        self.source = source
        self.through = through
        self.reading = reading
        self._visits: dict[str, Callable[[Node], list[Node]]] = {
            "command": self._simple,
            "declaration_command": self._simple,
            "unset_command": self._simple,
            "redirected_statement": self._redirected,
            "variable_assignment": self._assignment,
            "function_definition": self._function,
            "command_substitution": self._substitution,
            "expansion": self._expansion,
            "for_statement": self._loop,
            "comment": self._comment,
            "compound_statement": self._compound,
            "heredoc_body": self._heredoc_body,
            "negated_command": self._negated,
            "simple_expansion": self._variable,
            "test_command": self._test,
            "subscript": self._subscript,
        }

    def run(self) -> None:
        """Read the script; what is found goes to the reading."""
        started = time.monotonic()
        tree = parse(self.source, self.reading.patience)
        self.reading.patience -= time.monotonic() - started
        if tree is None:
            self.reading.doubt("reading it takes too long")
            return
        root = tree.root_node
        if root.has_error:
            self.reading.doubt("it holds syntax that is not understood")
        if not blank(self.source, 0, root.start_byte) or not blank(
            self.source, root.end_byte, len(self.source)
        ):
            self.misread()
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            if not self.reading.spend():
                return
            node, sums = stack.pop()
            sums = self._calculates(node, sums)
            following = self._visits.get(node.type, self._any)(node)
            stack.extend((each, sums) for each in reversed(following))

    def misread(self) -> None:
        """Something may not be what the parser takes it for."""
        self.reading.doubt(MISREAD)

    def text(self, node: Node) -> bytes:
        """The script's text of a node."""
        return self.source[node.start_byte : node.end_byte]

    def word(self, nodes: list[Node]) -> tuple[words.Word, list[Node]]:
        """The word that adjoining nodes are, and the expansions in it."""
        holes = self.expansions(nodes)
        found = {each.start_byte: each.end_byte for each in holes}
        start, end = nodes[0].start_byte, nodes[-1].end_byte
        read = words.read(self.source, start, end, found)
        if not read.certain:
            self.misread()
        return read, holes

    def expansions(self, nodes: list[Node]) -> list[Node]:
        found: list[Node] = []
        stack = list(reversed(nodes))
        while stack:
            node = stack.pop()
            if node.type in HOLES:
                found.append(node)
            elif node.child_count and self.reading.spend():
                stack.extend(reversed(node.children))
        return found

    def _calculates(self, node: Node, sums: bool) -> bool:
        kind = node.type
        if kind in ("command_substitution", "process_substitution", "do_group"):
            return False
        if kind == "binary_expression":
            operator = node.child_by_field_name("operator")
            sums = sums or (operator is not None and self.text(operator) in _COMPARES)
        elif kind == "compound_statement":
            sums = self.source.startswith(b"((", node.start_byte)
        elif kind in ("arithmetic_expansion", "subscript", "c_style_for_statement"):
            sums = True
        elif kind == "expansion":
            sums = _SUBSTRING.search(self.text(node)) is not None
        if sums and (kind == "simple_expansion" or not node.child_count):
            self.reading.variables.sums |= names_in(
                self.text(node).decode(errors="replace")
            )
        return sums

    def _any(self, node: Node) -> list[Node]:
        if node.type in _WORDS:
            return self.word([node])[1]
        below = [each for _, each in children(node)]
        if not below and node.type not in ("raw_string", "ansi_c_string"):
            if _HIDDEN.search(self.text(node)) and node.is_named:
                self.misread()
        elif node.type not in _LOOSE:
            self._no_gaps(below)
            self._whole(node, below)
        return below

    def _whole(self, node: Node, below: list[Node]) -> None:
        """A node is all of what is in it."""
        start, end = node.start_byte, node.end_byte
        if below and not (
            blank(self.source, start, below[0].start_byte)
            and blank(self.source, below[-1].end_byte, end)
        ):
            self.misread()

    def _no_gaps(self, nodes: list[Node]) -> None:
        for before, after in pairwise(nodes):
            if not blank(self.source, before.end_byte, after.start_byte):
                self.misread()

    def _simple(self, node: Node) -> list[Node]:
        simple = Simple(self)
        simple.add_all(node)
        self._whole(node, node.children)
        return simple.finish()

    def _redirected(self, node: Node) -> list[Node]:
        simple = Simple(self)
        first: list[Node] = []
        for name, each in children(node):
            if name != "body":
                simple.add(each)
                continue
            body = each
            while body.type in _CHAINS and body.child_count:
                # Redirections after a list are those of its last command.
                self._not(body)
                *before, body = body.children
                self._no_gaps([*before, body])
                first += before
            if body.type in _SIMPLE:
                simple.add_all(body)
            else:
                first.append(body)
                simple.follow(body)
        return first + simple.finish()

    def _assignment(self, node: Node) -> list[Node]:
        (name, value), following = self.assignment(node)
        self.reading.assign(name, value)
        return following

    def assignment(self, node: Node) -> tuple[tuple[str, str | None], list[Node]]:
        """The variable and its value, and the expansions in both."""
        target, *others = node.children
        variable = self.text(target).split(b"[")[0]
        if not _VARIABLE.fullmatch(variable):
            self.misread()
        name = variable.decode(errors="replace")
        following = [target] if target.child_count else []
        values = others[1:]
        if not values:
            return (name, ""), following
        if values[0].type == "array":
            return (name, None), following + values
        word, holes = self.word(values)
        plain = None if word.dynamic else word.text
        if [each.type for each in holes] == ["arithmetic_expansion"]:
            plain = "0" if len(values) == 1 and values[0] == holes[0] else plain
            return (name, plain), following + holes
        return (name, plain), following + holes

    def _function(self, node: Node) -> list[Node]:
        name = node.child_by_field_name("name")
        called = "" if name is None else self.text(name).decode(errors="replace")
        if called in KNOWN or not called.isascii() or not called.isprintable():
            self.reading.doubt(f"defines a function by the name of {called}")
        below = [each for _, each in children(node)]
        self._no_gaps(below)
        return [each for each in below if each != name]

    def _substitution(self, node: Node) -> list[Node]:
        text = self.text(node)
        if not text.startswith(b"`"):
            return self._any(node)
        inside = text[1:-1]
        if re.search(rb"[\\`]", inside):
            # A backslash in it means different things by where it stands.
            self.reading.doubt("it nests backquotes or escapes in them")
        self.reading.script(
            re.sub(rb"\\([$`\\])", rb"\1", inside).decode(errors="replace"),
            self.through,
        )
        return []

    def _expansion(self, node: Node) -> list[Node]:
        text = self.text(node)
        if text.startswith(b"${!"):
            self.reading.doubt("it reads a variable by the name in another")
        if re.search(rb"@[Pk]\s*\}$", text):
            self.reading.doubt("it expands a variable as a prompt")
        below = [each for _, each in children(node)]
        for each in below:
            if each.type == "raw_string" and _IN_QUOTES.search(self.text(each)):
                # Within double quotes, single quotes do not quote.
                self.misread()
        if b"=" in text and len(below) > 1:
            self.reading.assign(self.text(below[1]).decode(errors="replace"), None)
        outside = bytearray(text)
        for each in self.expansions(below):
            start = each.start_byte - node.start_byte
            outside[start : each.end_byte - node.start_byte] = b" " * len(
                self.text(each)
            )
        if _HIDDEN.search(bytes(outside), 2):
            self.misread()
        return below

    def _loop(self, node: Node) -> list[Node]:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            values = [self.text(each) for each in node.children_by_field_name("value")]
            numbers = all(
                re.fullmatch(rb"[0-9]+|\{[0-9]+\.\.[0-9]+\}", v) for v in values
            )
            self.reading.assign(
                self.text(variable).decode(errors="replace"),
                "0" if values and numbers else None,
            )
        return self._any(node)

    def _comment(self, node: Node) -> list[Node]:
        at = node.start_byte
        while self.source.endswith(b"\\\n", 0, at):
            at -= 2
        if self.source[max(0, at - 1) : at] not in _BEFORE_COMMENT:
            self.misread()
        if b"\n" in self.text(node):
            self.misread()
        return []

    def _compound(self, node: Node) -> list[Node]:
        start = node.start_byte
        if self.source.startswith(b"{", start) and not self._blank_at(start + 1):
            self.misread()
        return self._any(node)

    def _blank_at(self, at: int) -> bool:
        return self.source[at : at + 1] in (b" ", b"\t", b"\n")

    def _test(self, node: Node) -> list[Node]:
        below = self._any(node)
        for bracket, at in (
            (below[0], below[0].end_byte),
            (below[-1], below[-1].start_byte - 1),
        ):
            if b"(" not in self.text(bracket) and not self._blank_at(at):
                self.misread()
        return below

    def _heredoc_body(self, node: Node) -> list[Node]:
        return self.expansions([node])

    def _subscript(self, node: Node) -> list[Node]:
        # The name is no part of what is calculated; the index is.
        return self._any(node)[1:]

    def _negated(self, node: Node) -> list[Node]:
        self._not(node)
        return self._any(node)

    def _not(self, node: Node) -> None:
        start = node.start_byte
        if node.type == "negated_command" and self.source[
            start + 1 : start + 2
        ] not in (
            b" ",
            b"\t",
            b"(",
        ):
            self.misread()

    def _variable(self, node: Node) -> list[Node]:
        if not _EXPANSION.fullmatch(self.text(node)):
            self.misread()
        return []
