"""One word of a script: quote removal, and what only running it tells."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_BETWEEN: Final = frozenset(b" \t\n|&;()<>")
_EXPANDS: Final = re.compile(rb"\$[A-Za-z0-9_@*#?$!({\[-]")
#: Expansions that are a number.
_NUMBER: Final = re.compile(rb"\$(?:\(\([\w \t+*/%$?:,-]*\)\)|[?#$!])")
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})"
    rb"|U([0-9a-fA-F]{1,8})|(.))",
    re.DOTALL,
)
_NAMED: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"e": b"\x1b",
    b"E": b"\x1b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
    b"?": b"?",
}


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command.

    Attributes:
        text: The word after quote removal; as written where it is dynamic.
        dynamic: Whether only running the script tells what it becomes.
        head: What it begins with for certain.
        certain: Whether this is a word by the shell's own rules.
        splits: Whether running the script may make several words of it, or none.
        begins: What each word that running it makes of it begins with for certain.
    """

    text: str
    dynamic: bool = False
    head: str = ""
    certain: bool = True
    splits: bool = False
    begins: str = ""

    @property
    def may_be_option(self) -> bool:
        """Whether running the script could make an option of it."""
        return self.dynamic and (not self.head or self.head.startswith("-"))

    def starting(self, at: int) -> Word:
        """This word without its first characters, which are literal."""
        return replace(
            self,
            text=self.text[at:],
            head=self.head[at:],
            begins=self.begins[at:],
        )

    def unknown(self) -> Word:
        """This word, when something else changes it before it is used."""
        return Word(self.text, dynamic=True)

    def filled(self, mark: str, head: str = "") -> Word:
        """This word, when something else replaces a mark in it.

        Args:
            mark: The mark.
            head: What it is replaced with begins with for certain.
        """
        before, found, _ = (self.begins if self.dynamic else self.text).partition(mark)
        begins = before + head if found else before
        return replace(self.unknown(), begins=begins)


def literal(text: str) -> Word:
    """A word that no shell reads."""
    return Word(text, head=text, begins=text)


def read(source: bytes, start: int, end: int, holes: Mapping[int, int]) -> Word:
    """Remove the quotes of a word.

    Args:
        source: The script.
        start: Where the word starts in it.
        end: Where it ends.
        holes: Start and end of each expansion in the word, as parsed.

    Returns:
        The word. It is not `certain` where the shell would see its end, or an
        expansion, elsewhere than the parser did.
    """
    reader = _Reader(source[start:end], {at - start: holes[at] - start for at in holes})
    return reader.word()


class _Reader:
    """Walks along a word as bash does."""

    def __init__(self, source: bytes, holes: Mapping[int, int]) -> None:
        self._source = source
        self._holes = holes
        self._at = 0
        self._text = bytearray()
        self._head: bytes | None = None
        self._certain = True
        self._splits = False
        self._apart = False
        # The last of what would make a pattern or a list of an opening one.
        self._bracket = source.rfind(b"]")
        brace = max(0, source.rfind(b"}"))
        self._comma = max(source.rfind(b",", 0, brace), source.rfind(b"..", 0, brace))

    def word(self) -> Word:
        while self._at < len(self._source):
            self._bare()
        written = self._source if self._head is not None else bytes(self._text)
        head = bytes(self._text) if self._head is None else self._head
        return Word(
            written.decode(errors="replace"),
            self._head is not None,
            head.decode(errors="replace"),
            self._certain,
            self._splits,
            self._begins(head).decode(errors="replace"),
        )

    def _begins(self, head: bytes) -> bytes:
        if self._apart:
            return b""
        # A home is an absolute path.
        return b"/" if self._source.startswith(b"~") else head

    def _bare(self) -> None:
        source, at = self._source, self._at
        byte = source[at]
        if at in self._holes:
            self._splits = True
            self._apart |= _NUMBER.match(source, at) is None
            self._skip_hole()
        elif byte == ord("\\"):
            self._backslash()
        elif byte == ord("'"):
            self._single()
        elif byte == ord('"') or source.startswith(b'$"', at):
            self._double(at + 1 + (byte == ord("$")))
        elif source.startswith(b"$'", at):
            self._ansi()
        else:
            self._plain(byte)

    def _plain(self, byte: int) -> None:
        source, at = self._source, self._at
        if byte in _BETWEEN or byte == ord("`") or _EXPANDS.match(source, at):
            self._certain = False
        elif self._is_pattern(byte):
            self._splits = True
            self._depends()
        self._text.append(byte)
        self._at += 1

    def _is_pattern(self, byte: int) -> bool:
        source, at = self._source, self._at
        if byte in b"*?":
            return True
        if byte == ord("["):
            return at < self._bracket
        if byte == ord("{"):
            return at < self._comma
        return byte == ord("~") and (at == 0 or source[at - 1] in b"=:")

    def _depends(self) -> None:
        if self._head is None:
            self._head = bytes(self._text)

    def _is_list(self) -> bool:
        hole = self._source[self._at : self._holes[self._at]]
        return hole == b"$@" or (hole.startswith(b"${") and b"@" in hole)

    def _skip_hole(self) -> None:
        self._depends()
        self._at = self._holes[self._at]

    def _backslash(self) -> None:
        following = self._source[self._at + 1 : self._at + 2]
        self._certain &= following != b""
        if following != b"\n":
            self._text += following
        self._at += 2

    def _single(self) -> None:
        end = self._source.find(b"'", self._at + 1)
        self._certain &= end >= 0
        end = end if end >= 0 else len(self._source)
        self._text += self._source[self._at + 1 : end]
        self._at = end + 1

    def _double(self, at: int) -> None:
        source = self._source
        self._at = at
        while self._at < len(source) and source[self._at] != ord('"'):
            byte = source[self._at]
            if self._at in self._holes:
                self._splits |= self._is_list()
                self._apart |= self._is_list()
                self._skip_hole()
            elif (
                byte == ord("\\") and source[self._at + 1 : self._at + 2] in _ESCAPABLE
            ):
                self._backslash()
            else:
                self._certain &= byte != ord("`")
                self._certain &= _EXPANDS.match(source, self._at) is None
                self._text.append(byte)
                self._at += 1
        self._certain &= self._at < len(source)
        self._at += 1

    def _ansi(self) -> None:
        at = self._at + 2
        source = self._source
        while at < len(source) and source[at] != ord("'"):
            escape = _ESCAPE.match(source, at)
            if escape is None:
                self._text.append(source[at])
                at += 1
            else:
                self._escape(escape)
                at = escape.end()
        self._certain &= at < len(source)
        self._at = at + 1

    def _escape(self, escape: re.Match[bytes]) -> None:
        octal, hexadecimal, short, long, other = escape.groups()
        if octal or hexadecimal:
            value = int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)
            # Bash ends the string at a NUL, and bytes above 0x7f join others.
            self._certain &= 0 < value < 0x80
            self._text.append(value)
        elif short or long:
            value = int(short or long, 16)
            self._certain &= 0 < value < 0xD800
            self._text += chr(value if self._certain else 0xFFFD).encode()
        else:
            # `\cx` is a control character.
            self._certain &= other != b"c"
            self._text += _NAMED.get(other, b"\\" + other)


_ESCAPABLE: Final = (b"$", b"`", b'"', b"\\", b"\n")
