"""One simple command: its words, its assignments and its redirections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.names import RESERVED
from isobox._policy.shell.reading import Call
from isobox._policy.shell.tree import blank, children, joined, spaced

if TYPE_CHECKING:
    from tree_sitter import Node

    from isobox._policy.shell.walk import Walk
    from isobox._policy.shell.words import Word

_WRITING: Final = frozenset({b">", b">>", b">|", b"&>", b"&>>", b">&", b"<>"})
_DESCRIPTOR: Final = re.compile(r"-|[0-9]+-?")
_REREAD: Final = re.compile(r"^-|[$`*?~{\[\\]")
_NUMBER: Final = re.compile(rb"[0-9]+|\{\w+\}")
_DELIMITER: Final = re.compile(rb"(\w[\w.-]*)|'([^'\\\n]+)'|\"([^\"$`\\\n]+)\"|\\(\w+)")
_ASSIGNS: Final = re.compile(rb"[A-Za-z_]\w*(?:\[|\+?=)")
#: After these, a shell still looks for assignments, and for words of its own.
_PREFIXES: Final = frozenset({b"time", b"coproc"})
_DECLARES: Final = frozenset({b"declare", b"export", b"local", b"readonly", b"typeset"})
_SUBSCRIPT: Final = re.compile(rb"[A-Za-z_]\w*\[")
_EXPANDS: Final = re.compile(rb"(?<!\\)(?:\\\\)*(?:`|\$[A-Za-z0-9_@*#?$!({\[-])")


class Simple:
    """Collects the parts of one command in the order of the script.

    The grammar gives words after a redirection to the redirection, and what
    follows a here-document on its line to the here-document.
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._source = walk.source
        self._words: list[tuple[int, int, list[Node]]] = []
        self._targets: list[tuple[bytes, int, int, list[Node]]] = []
        self._assignments: list[tuple[str, str | None]] = []
        self._following: list[Node] = []
        self._given: str | None = None
        self._end: int | None = None
        self._compound = False
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
            assigned, holes = self._walk.assignment(node)
            self._assignments.append(assigned)
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

    def _gap(self, node: Node) -> None:
        if self._end is None:
            return
        if not spaced(self._source, self._end, node.start_byte) or (
            self._open is not None and joined(self._source, self._end, node.start_byte)
        ):
            self._walk.misread()

    def _word(self, node: Node) -> None:
        if node.start_byte == node.end_byte:
            # What the parser added to go on after an error.
            return
        end = self._end
        if end is not None and joined(self._source, end, node.start_byte):
            if self._open is None:
                self._walk.misread()
            else:
                self._open.append(node)
                self._end = node.end_byte
                return
        elif end is not None and not spaced(self._source, end, node.start_byte):
            self._walk.misread()
        self._open = [node]
        self._words.append((node.start_byte, node.end_byte, self._open))
        self._end = node.end_byte

    def _redirect(self, node: Node) -> None:
        if self._open is not None and self._end == node.start_byte:
            start = self._open[0].start_byte
            numbered = node.children[0].type == "file_descriptor"
            if numbered or _NUMBER.fullmatch(self._source, start, node.start_byte):
                self._walk.misread()
        elif self._end is not None and not spaced(
            self._source, self._end, node.start_byte
        ):
            self._walk.misread()
        self._open = None
        operator = b""
        for name, each in children(node):
            if name == "destination":
                self._destination(operator, each)
                operator = b""
            elif not each.is_named:
                operator = self._walk.text(each)
                self._end = each.end_byte
                if operator.endswith(b"-"):
                    operator = b""
            else:
                self._end = each.end_byte
                if not self._walk.text(each).isdigit():
                    self._walk.misread()
                if each.type == "ERROR":
                    self._following.append(each)

    def _destination(self, operator: bytes, node: Node) -> None:
        if operator:
            if not spaced(self._source, self._end or 0, node.start_byte):
                self._walk.misread()
            self._open = [node]
            self._targets.append((operator, node.start_byte, node.end_byte, self._open))
            self._end = node.end_byte
        else:
            self._word(node)

    def _herestring(self, node: Node) -> None:
        self._gap(node)
        _, *values = node.children
        if values:
            word, holes = self._walk.word(
                values[0].start_byte, values[-1].end_byte, values
            )
            self._following += holes
            self._given = None if word.dynamic else word.text + "\n"
        self._advance(node)

    def _heredoc(self, node: Node) -> None:
        if self._end is not None and not spaced(
            self._source, self._end, node.start_byte
        ):
            self._walk.misread()
        self._open = None
        parts: dict[str, Node] = {}
        for name, each in children(node):
            parts.setdefault(each.type, each)
            if each.type in ("<<", "<<-", "heredoc_start"):
                self._end = each.end_byte
            elif each.type in ("heredoc_body", "heredoc_end"):
                self._open = None
                if not blank(self._source, self._end or 0, each.start_byte):
                    self._walk.misread()
                self._end = each.end_byte
            elif name == "argument":
                self._word(each)
            elif each.type.endswith("_redirect"):
                self.add(each)
            else:
                if not spaced(self._source, self._end or 0, each.start_byte):
                    self._walk.misread()
                self._following.append(each)
                self._advance(each)
        self._document(parts)

    def _document(self, parts: dict[str, Node]) -> None:
        start, body = parts.get("heredoc_start"), parts.get("heredoc_body")
        end = parts.get("heredoc_end")
        if start is None or end is None:
            self._walk.misread()
            return
        delimiter = _DELIMITER.fullmatch(self._walk.text(start))
        if delimiter is None:
            self._walk.misread()
            return
        tabs = b"\t" if "<<-" in parts else b""
        name = next(filter(None, delimiter.groups()))
        self._ends_at_first(name, tabs, start, end)
        text = b"" if body is None else self._walk.text(body)
        quoted = delimiter.group(1) is None
        holes: list[Node] = []
        if body is not None and not quoted:
            holes = self._body_holes(body)
            self._following += holes
        if not holes and (quoted or b"\\" not in text):
            plain = re.sub(rb"(?m)^\t+", b"", text) if tabs else text
            self._given = plain.decode(errors="replace")

    def _ends_at_first(self, name: bytes, tabs: bytes, start: Node, end: Node) -> None:
        """The here-document ends at the first line that is its delimiter."""
        at = self._source.find(b"\n", start.end_byte) + 1
        while 0 < at <= end.start_byte:
            following = self._source.find(b"\n", at)
            stop = following if following >= 0 else len(self._source)
            line = self._source[at:stop]
            if (line.lstrip(tabs) if tabs else line) == name:
                if (
                    not at <= end.start_byte <= stop
                    or self._walk.text(end).strip() != name
                ):
                    break
                return
            at = following + 1
        self._walk.misread()

    def _body_holes(self, body: Node) -> list[Node]:
        holes = self._walk.expansions([body])
        outside = bytearray(self._walk.text(body))
        for each in holes:
            start = each.start_byte - body.start_byte
            size = each.end_byte - each.start_byte
            outside[start : start + size] = b" " * size
        if _EXPANDS.search(bytes(outside)):
            self._walk.misread()
        return holes

    def finish(self) -> list[Node]:
        """Note the command; what is in its words is to be walked next."""
        for operator, start, _, nodes in self._targets:
            self._target(operator, start, nodes)
        reading = self._walk.reading
        words = [self._read(start, nodes) for start, _, nodes in self._words]
        if self._compound and words:
            self._walk.misread()
        if self._words:
            self._first(words)
        reading.invoke(
            Call(
                tuple(words), tuple(self._assignments), self._walk.through, self._given
            )
        )
        return self._following

    def _first(self, words: list[Word]) -> None:
        written = self._written(0)
        if written in _PREFIXES | _DECLARES:
            for at in range(1, len(words)):
                if _SUBSCRIPT.match(self._written(at)):
                    self._walk.misread()
        if _ASSIGNS.match(written) or written.decode(errors="replace") in RESERVED:
            self._walk.misread()
        if written == b"coproc" and _groups(words):
            self._walk.misread()

    def _written(self, at: int) -> bytes:
        start, _, nodes = self._words[at]
        return self._source[start : nodes[-1].end_byte].replace(b"\\\n", b"")

    def _read(self, start: int, nodes: list[Node]) -> Word:
        word, holes = self._walk.word(start, nodes[-1].end_byte, nodes)
        self._following += holes
        return word

    def _target(self, operator: bytes, start: int, nodes: list[Node]) -> None:
        word = self._read(start, nodes)
        reading = self._walk.reading
        if nodes[0].type == "process_substitution":
            return
        if operator in (b">&", b"<&") and _DESCRIPTOR.fullmatch(word.text):
            return
        if operator in (b">&", b"<&") and _REREAD.search(word.text):
            # Bash expands this target a second time, quotes or not.
            self._walk.misread()
        name = None if word.dynamic else word.text
        if word.text.startswith(("/dev/tcp/", "/dev/udp/")):
            reading.doubt(f"it opens a network connection: {word.text}")
        if operator in _WRITING:
            reading.writes.append(name)
        if not operator.startswith((b">", b"&")):
            reading.reads.append(name)


def _groups(words: list[Word]) -> bool:
    """Whether a word opens a group, as in `coproc NAME { ...; }`."""
    return any(each.text in ("{", "(", "while", "if", "for") for each in words)
