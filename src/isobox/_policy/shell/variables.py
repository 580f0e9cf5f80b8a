"""What the variables of a script hold for certain."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.arithmetic import is_number

if TYPE_CHECKING:
    from collections.abc import Callable

#: Always numbers, whatever is assigned to them, until they are unset.
COUNTERS: Final = frozenset(
    {"BASHPID", "EPOCHSECONDS", "EUID", "HISTCMD", "LINENO", "PPID", "RANDOM"}
    | {"SECONDS", "SRANDOM", "UID"}
)
#: After the name of a list: nothing in it is left from before.
_ALL: Final = "[]"
_WORD: Final = re.compile(r"[\w./:@%+,=][\w./:@%+,=-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a variable is set to.

    Attributes:
        name: The variable.
        value: Its value; None where only running the script tells.
        number: Whether it is a number, or some, for certain.
        like: The variable that it is a copy of.
        whole: Whether nothing is left of what it held before.
        listed: Whether it is all of a list.
    """

    name: str
    value: str | None = None
    number: bool = False
    like: str | None = None
    whole: bool = True
    listed: bool = False


class Scope:
    """A part of a script that may be skipped, or is run elsewhere.

    What is assigned in it holds in it, from there on, and not after it.
    """

    __slots__ = ("_names", "_outer", "called")

    def __init__(self, outer: Scope | None = None, *, called: bool = False) -> None:
        self._outer = outer
        self._names = set[str]()
        #: Whether it is in a function.
        self.called: bool = called or (outer is not None and outer.called)

    def add(self, name: str) -> None:
        self._names.add(name)

    def __contains__(self, name: str) -> bool:
        scope: Scope | None = self
        while scope is not None:
            if name in scope._names:
                return True
            scope = scope._outer
        return False


@dataclass(slots=True)
class Variables:
    """What the variables of a script hold, and which are calculated with."""

    scope: Scope = field(default_factory=Scope)
    #: What holds something else than numbers, and what holds more than a word.
    _texts: set[str] = field(default_factory=set[str])
    _phrases: set[str] = field(default_factory=set[str])
    _copies: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _sums: set[str] = field(default_factory=set[str])
    _words: set[str] = field(default_factory=set[str])
    _unknown: set[str] = field(default_factory=set[str])

    def hold(self, what: Assigned) -> None:
        """A variable is set to something, here or elsewhere."""
        if what.like is not None:
            self._copy(what.name, what.like)
            return
        value = what.value
        if not what.number and (value is None or not is_number(value)):
            self._texts.add(what.name)
        if not what.number and (value is None or not _WORD.fullmatch(value)):
            self._phrases.add(what.name)

    def _copy(self, name: str, other: str) -> None:
        self._copies.append((name, other))
        if not self._is_sure(other):
            self._texts.add(name)
            self._phrases.add(name)

    def sure(self, name: str, *, listed: bool = False) -> Callable[[], None]:
        """What notes that from there on, a variable holds what it was set to."""
        scope = self.scope

        def note() -> None:
            scope.add(name)
            if listed:
                scope.add(name + _ALL)

        return note

    def calculate(self, name: str, *, listed: bool = False) -> None:
        """A variable, or one of a list, is calculated with: it has to be a number."""
        if self._is_sure(name) and (not listed or name + _ALL in self.scope):
            self._sums.add(name)
        else:
            self._unknown.add(name)

    def compare(self, name: str) -> None:
        """A variable is compared as a number, and nothing in it is run."""
        self._sums.add(name)

    def expect_word(self, name: str) -> None:
        """A variable has to be one word that is no option."""
        if self._is_sure(name):
            self._words.add(name)
        else:
            self._unknown.add(name)

    def _is_sure(self, name: str) -> bool:
        return name in COUNTERS or name in self.scope

    def calculated(self) -> set[str]:
        """Variables that may hold text, and are calculated with."""
        texts = self._spread(self._texts) & self._sums
        return texts | self._unknown | (self._spread(self._phrases) & self._words)

    def _spread(self, names: set[str]) -> set[str]:
        found, before = set(names), -1
        while len(found) != before:
            before = len(found)
            found |= {name for name, other in self._copies if other in found}
        return found
