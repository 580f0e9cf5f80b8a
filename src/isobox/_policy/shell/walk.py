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

from isobox._policy.shell import calculations, conditions, scopes, values, words
from isobox._policy.shell.names import KNOWN
from isobox._policy.shell.simple import Simple
from isobox._policy.shell.tree import blank, children, parse
from isobox._policy.shell.variables import Assigned, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tree_sitter import Node

    from isobox._policy.shell.reading import Reading
    from isobox._policy.shell.scopes import Step

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
_HIDDEN: Final = re.compile(rb"(?<!\\)(?:\\\\)*(?:`|\$[({\[]|[<>]\()")
_BEFORE_COMMENT: Final = (b"", b" ", b"\t", b"\n", b";", b"|", b"&", b"(", b")")
_EXPANSION: Final = re.compile(rb"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])")
_IN_QUOTES: Final = re.compile(rb"[$`]")


class Walk:
    """One script. Iterative, as scripts nest deeper than Python's stack."""

    def __init__(
        self, source: bytes, through: tuple[str, ...], reading: Reading
    ) -> None:
        self.source = source
        self.through = through
        self.reading = reading
        self._visits: dict[str, Callable[[Node], Sequence[Step]]] = {
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
            "subshell": self._subshell,
            "arithmetic_expansion": self._calculation,
            "c_style_for_statement": self._counting_loop,
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
        stack: list[tuple[scopes.Placed, Scope]] = [(root, Scope())]
        while stack:
            step, scope = stack.pop()
            if callable(step):
                step()
                continue
            if not self.reading.spend():
                return
            if step.type in scopes.OWN:
                scope = Scope(scope, called=step.type == "function_definition")
            self.reading.variables.scope = scope
            following = self._visits.get(step.type, self._any)(step)
            stack.extend(reversed(scopes.scoped(step, following, scope)))

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

    def expansions(self, nodes: Sequence[Node]) -> list[Node]:
        found: list[Node] = []
        stack = list(reversed(nodes))
        while stack:
            node = stack.pop()
            if node.type in HOLES:
                found.append(node)
            elif node.child_count and self.reading.spend():
                stack.extend(reversed(node.children))
        return found

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

    def _simple(self, node: Node) -> list[Step]:
        simple = Simple(self)
        simple.add_all(node)
        self._whole(node, node.children)
        return simple.finish()

    def _redirected(self, node: Node) -> list[Step]:
        simple = Simple(self)
        first: list[Step] = []
        for name, each in children(node):
            if name != "body":
                simple.add(each)
                continue
            body = each
            while body.type in _CHAINS and body.child_count:
                # Redirections after a list are those of its last command.
                self._not(body)
                body_is_pipe = body.type == "pipeline"
                *before, body = body.children
                self._no_gaps([*before, body])
                first += map(scopes.Apart, before) if body_is_pipe else before
            if body.type in _SIMPLE:
                simple.add_all(body)
            else:
                first.append(body)
                simple.follow(body)
        return first + simple.finish()

    def _assignment(self, node: Node) -> list[Step]:
        what, following = values.assigned(self, node)
        self.reading.assign(what)
        if not what.whole:
            return [*following]
        sure = self.reading.variables.sure(what.name, listed=what.listed)
        return [*following, sure]

    def _function(self, node: Node) -> list[Step]:
        name = node.child_by_field_name("name")
        called = "" if name is None else self.text(name).decode(errors="replace")
        if called in KNOWN or not called.isascii() or not called.isprintable():
            self.reading.doubt(f"defines a function by the name of {called}")
        below = [each for _, each in children(node)]
        self._no_gaps(below)
        # It is redirected whenever it is called.
        redirected = [each for each in below if each.type.endswith("_redirect")]
        first = [each for each in below if each not in redirected and each != name]
        return [*first, *self._redirections(first[-1:], redirected)]

    def _redirections(self, body: list[Node], nodes: list[Node]) -> list[Step]:
        simple = Simple(self)
        for each in body:
            simple.follow(each)
        for each in nodes:
            simple.add(each)
        return simple.finish()

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
            name = self.text(below[1]).decode(errors="replace")
            self.reading.assign(Assigned(name))
        outside = bytearray(text)
        for each in self.expansions(below):
            start = each.start_byte - node.start_byte
            outside[start : each.end_byte - node.start_byte] = b" " * len(
                self.text(each)
            )
        if _HIDDEN.search(bytes(outside), 2):
            self.misread()
        calculations.substring(self, below)
        return below

    def _loop(self, node: Node) -> list[Step]:
        found: list[Step] = list(self._any(node))
        variable = node.child_by_field_name("variable")
        if variable is None:
            return found
        name = self.text(variable).decode(errors="replace")
        for each in values.looped(self, node, name):
            self.reading.assign(each)
        kinds = [getattr(each, "type", "") for each in found]
        at = kinds.index("do_group") if "do_group" in kinds else 0
        inside = self.reading.variables.sure(name)
        return [*found[:at], inside, *found[at:]]

    def _comment(self, node: Node) -> list[Node]:
        at = node.start_byte
        while self.source.endswith(b"\\\n", 0, at):
            at -= 2
        if self.source[max(0, at - 1) : at] not in _BEFORE_COMMENT:
            self.misread()
        if b"\n" in self.text(node):
            self.misread()
        return []

    def _compound(self, node: Node) -> Sequence[Step]:
        start = node.start_byte
        if self.source.startswith(b"((", start):
            return self._calculation(node)
        if not self._blank_at(start + 1):
            self.misread()
        return self._any(node)

    def _blank_at(self, at: int) -> bool:
        return self.source[at : at + 1] in (b" ", b"\t", b"\n")

    def _test(self, node: Node) -> Sequence[Step]:
        below = self._any(node)
        for bracket, at in (
            (below[0], below[0].end_byte),
            (below[-1], below[-1].start_byte - 1),
        ):
            if b"(" not in self.text(bracket) and not self._blank_at(at):
                self.misread()
        if self.text(below[0]) == b"[[":
            conditions.check_double(self, node)
        elif self.text(below[0]) == b"[":
            conditions.check_single(self, node)
        else:
            return self._calculation(node)
        return below

    def _heredoc_body(self, node: Node) -> list[Node]:
        return self.expansions([node])

    def _subscript(self, node: Node) -> Sequence[Step]:
        self._no_gaps(node.children)
        return calculations.subscript(self, node)

    def _subshell(self, node: Node) -> Sequence[Step]:
        if self.text(node).replace(b"\\\n", b"").startswith(b"(("):
            # Bash calculates with what is in both, if it can.
            self.misread()
        return self._any(node)

    def _calculation(self, node: Node) -> Sequence[Step]:
        return calculations.brackets(self, node)

    def _counting_loop(self, node: Node) -> Sequence[Step]:
        self._no_gaps(node.children)
        return calculations.counting_loop(self, node)

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
