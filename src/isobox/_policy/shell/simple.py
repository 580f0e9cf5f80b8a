"""One simple command: its words, its assignments and its redirections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell import values
from isobox._policy.shell.documents import document
from isobox._policy.shell.names import RESERVED
from isobox._policy.shell.reading import Call
from isobox._policy.shell.tree import blank, children, joined, spaced
from isobox._policy.shell.words import Word, literal

if TYPE_CHECKING:
    from tree_sitter import Node

    from isobox._policy.shell.scopes import Step
    from isobox._policy.shell.variables import Assigned
    from isobox._policy.shell.walk import Walk

_WRITING: Final = frozenset({b">", b">>", b">|", b"&>", b"&>>", b">&", b"<>"})
_COPYING: Final = frozenset({b">&", b"<&"})
_DESCRIPTOR: Final = re.compile(r"-|[0-9]+-?")
_REREAD: Final = re.compile(r"^-|[$`*?~{\[\\]")
_DASH: Final = re.compile(rb"[ \t]+-[ \t]*")
_NUMBER: Final = re.compile(rb"[0-9]+|\{\w+\}")
_ASSIGNS: Final = re.compile(rb"[A-Za-z_]\w*(?:\[|\+?=)")
_SUBSCRIPT: Final = re.compile(rb"[A-Za-z_]\w*\[")
#: After these, a shell still looks for assignments, and for words of its own.
_PREFIXES: Final = frozenset({b"time", b"coproc"})
#: Options with which it still assigns, and what it is told.
_PLAIN_OPTIONS: Final = re.compile(r"-[agrx]+")
_DECLARES: Final = frozenset({b"declare", b"export", b"local", b"readonly", b"typeset"})


class Simple:
    """Collects the parts of one command in the order of the script.

    The grammar gives words after a redirection to the redirection, and what
    follows a here-document on its line to the here-document.
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._source = walk.source
        # The nodes of each word; none is a lone dash.
        self._words: list[list[Node]] = []
        self._targets: list[tuple[bytes, list[Node]]] = []
        self._assignments: list[Assigned] = []
        self._following: list[Step] = []
        self._given: str | None = None
        self._compound = False
        # Where the last part ended, and the nodes of the word that it was.
        self._end: int | None = None
        self._open: list[Node] | None = None

    def follow(self, body: Node) -> None:
        """The redirections are those of a loop, a group or a test."""
        self._compound = True
        self._end = body.end_byte

    def add_all(self, node: Node) -> None:
        """The parts of a command."""
        for _, each in children(node):
            self.add(each)

    def add(self, node: Node) -> None:
        """The next part."""
        kind = node.type
        if kind == "variable_assignment":
            self._gap(node)
            what, holes = values.assigned(self._walk, node)
            self._assignments.append(what)
            self._following += holes
            self._advance(node)
        elif kind == "file_redirect":
            self._redirect(node)
        elif kind == "herestring_redirect":
            self._herestring(node)
        elif kind == "heredoc_redirect":
            self._heredoc(node)
        elif kind in ("comment", "subshell", "ERROR"):
            if kind == "subshell":
                self._walk.misread()
            self._following.append(node)
            self._advance(node)
        else:
            self._word(node)

    def _advance(self, node: Node) -> None:
        self._end = node.end_byte
        self._open = None

    def _spaced(self, node: Node) -> None:
        start, end = node.start_byte, self._end
        if end is None or spaced(self._source, end, start):
            return
        if _DASH.fullmatch(self._source, end, start):
            # The grammar drops this word before a here-document: `cat - <<E`.
            self._words.append([])
        else:
            self._walk.misread()

    def _gap(self, node: Node) -> None:
        self._spaced(node)
        if self._open is not None and self._touches(node):
            self._walk.misread()

    def _touches(self, node: Node) -> bool:
        end = self._end
        return end is not None and joined(self._source, end, node.start_byte)

    def _word(self, node: Node) -> None:
        if node.start_byte == node.end_byte or not self._walk.reading.spend():
            # The first is what the parser added to go on after an error.
            return
        if self._touches(node):
            if self._open is not None:
                self._open.append(node)
                self._end = node.end_byte
                return
            self._walk.misread()
        self._spaced(node)
        self._open = [node]
        self._words.append(self._open)
        self._end = node.end_byte

    def _redirect(self, node: Node) -> None:
        self._spaced(node)
        if self._open is not None and self._end == node.start_byte:
            start = self._open[0].start_byte
            numbered = node.children[0].type == "file_descriptor"
            if numbered or _NUMBER.fullmatch(self._source, start, node.start_byte):
                self._walk.misread()
        self._open = None
        operator = b""
        for name, each in children(node):
            if name == "destination":
                self._destination(operator, each)
                operator = b""
                continue
            self._advance(each)
            if not each.is_named:
                operator = self._walk.text(each)
                operator = b"" if operator.endswith(b"-") else operator
            elif not self._walk.text(each).isdigit():
                self._walk.misread()

    def _destination(self, operator: bytes, node: Node) -> None:
        if not operator:
            self._word(node)
            return
        self._spaced(node)
        self._open = [node]
        self._targets.append((operator, self._open))
        self._end = node.end_byte

    def _herestring(self, node: Node) -> None:
        self._gap(node)
        _, *values = node.children
        if values:
            word, holes = self._walk.word(values)
            self._following += holes
            self._given = None if word.dynamic else word.text + "\n"
        self._advance(node)

    def _heredoc(self, node: Node) -> None:
        self._spaced(node)
        self._open = None
        parts: dict[str, Node] = {}
        for name, each in children(node):
            parts.setdefault(each.type, each)
            self._in_heredoc(name, each)
        self._given, holes = document(self._walk, parts)
        self._following += holes

    def _in_heredoc(self, name: str | None, node: Node) -> None:
        if node.type in ("<<", "<<-", "heredoc_start"):
            self._advance(node)
        elif name == "argument":
            self._word(node)
        elif node.type.endswith("_redirect"):
            self.add(node)
        else:
            if not blank(self._source, self._end or 0, node.start_byte):
                self._walk.misread()
            if not node.type.startswith("heredoc_"):
                self._following.append(node)
            self._advance(node)

    def finish(self) -> list[Step]:
        """Note the command; what is in its words is to be walked next."""
        for operator, nodes in self._targets:
            self._target(operator, nodes)
        words = tuple(map(self._read, self._words))
        if words:
            self._first(words)
        self._assign(words)
        given = tuple((each.name, each.value) for each in self._assignments)
        self._walk.reading.invoke(Call(words, given, self._walk.through, self._given))
        return self._following

    def _assign(self, words: tuple[Word, ...]) -> None:
        # Before a program, it is for that program only.
        variables = self._walk.reading.variables
        stays = not words or self._stays(words, in_function=variables.scope.called)
        for each in self._assignments:
            variables.hold(each)
            if stays and each.whole:
                self._following.append(variables.sure(each.name, listed=each.listed))

    def _stays(self, words: tuple[Word, ...], *, in_function: bool) -> bool:
        declares = self._written(self._words[0])
        if declares not in _DECLARES or (declares == b"local" and not in_function):
            return False
        return all(
            _PLAIN_OPTIONS.fullmatch(each.text)
            for each in words[1:]
            if each.text.startswith("-") or each.dynamic
        )

    def _first(self, words: tuple[Word, ...]) -> None:
        first = self._written(self._words[0])
        if self._compound or _ASSIGNS.match(first) or first.decode() in RESERVED:
            self._walk.misread()
        if first == b"coproc" and any(each.text in _GROUPS for each in words):
            self._walk.misread()
        if first in _PREFIXES | _DECLARES and any(
            _SUBSCRIPT.match(self._written(each)) for each in self._words[1:]
        ):
            self._walk.misread()

    def _written(self, nodes: list[Node]) -> bytes:
        if not nodes:
            return b"-"
        start, end = nodes[0].start_byte, nodes[-1].end_byte
        return self._source[start:end].replace(b"\\\n", b"")

    def _read(self, nodes: list[Node]) -> Word:
        if not nodes:
            return literal("-")
        word, holes = self._walk.word(nodes)
        self._following += holes
        return word

    def _target(self, operator: bytes, nodes: list[Node]) -> None:
        word = self._read(nodes)
        reading = self._walk.reading
        if nodes[0].type == "process_substitution":
            return
        if operator in _COPYING and _DESCRIPTOR.fullmatch(word.text):
            return
        if operator in _COPYING and _REREAD.search(word.text):
            # Bash expands this target a second time, quotes or not.
            self._walk.misread()
        if word.text.startswith(("/dev/tcp/", "/dev/udp/")):
            reading.doubt(f"it opens a network connection: {word.text}")
        name = None if word.dynamic else word.text
        if operator in _WRITING:
            reading.writes.append(name)
        if not operator.startswith((b">", b"&")):
            reading.reads.append(name)


_GROUPS: Final = frozenset({"{", "(", "while", "until", "if", "for", "case", "select"})
