"""Options of programs: which take a value, and what the value is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from isobox._policy.shell.words import Word


@dataclass(frozen=True, slots=True)
class Options:
    """The options that a program knows.

    Attributes:
        valued: Letters and long names that a value follows.
        flags: Letters and long names that stand alone.
    """

    valued: frozenset[str]
    flags: frozenset[str]

    @classmethod
    def of(cls, valued: str = "", flags: str = "") -> Options:
        """From names between blanks; a cluster of letters is its letters."""
        return cls(_names(valued), _names(flags))


def _names(text: str) -> frozenset[str]:
    found = set[str]()
    for each in text.split():
        found |= {each} if each.startswith("--") else set(each)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Option:
    """One option as given.

    Attributes:
        name: `--long` or a letter.
        value: Its value, where one follows.
        known: Whether the program's table has it.
    """

    name: str
    value: Word | None = None
    known: bool = True


def strange(program: str, option: Option) -> str:
    """What is in doubt about an option that is not in a program's table."""
    if option.name.startswith("-") or len(option.name) == 1:
        return f"{program} has an option that is not known: {option.name}"
    return f"{program} is given what may be an option: {option.name}"


def split(arguments: Sequence[Word], options: Options) -> tuple[list[Option], int]:
    """The options before the first operand, and the index of that operand."""
    found: list[Option] = []
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word.may_be_option and not word.head:
            found.append(Option(word.text, known=False))
            break
        if word.text == "--":
            return found, at + 1
        if not word.text.startswith("-") or word.text == "-":
            break
        at += 1
        following = arguments[at] if at < len(arguments) else None
        if word.text.startswith("--"):
            option, taken = _long(word, following, options)
            found.append(option)
        else:
            cluster, taken = _cluster(word, following, options)
            found += cluster
        at += taken
    return found, at


def _long(word: Word, following: Word | None, options: Options) -> tuple[Option, int]:
    name, equals, _ = word.text.partition("=")
    if name in options.valued:
        if equals:
            return Option(name, word.starting(len(name) + 1)), 0
        return Option(name, following), 1
    value = word.starting(len(name) + 1) if equals else None
    return Option(name, value, known=name in options.flags and not word.dynamic), 0


def _cluster(
    word: Word, following: Word | None, options: Options
) -> tuple[list[Option], int]:
    found: list[Option] = []
    for at, letter in enumerate(word.text[1:], 1):
        if letter in options.valued:
            rest = word.starting(at + 1)
            if rest.text:
                return [*found, Option(letter, rest)], 0
            return [*found, Option(letter, following)], 1
        found.append(Option(letter, known=letter in options.flags and not word.dynamic))
    return found, 0


def values(arguments: Sequence[Word], names: frozenset[str]) -> Iterator[Word]:
    """The values of options wherever they stand, in every way to write them.

    Long names may be cut short, as GNU programs allow; a letter may stand
    anywhere in a cluster. More is found than is there, never less.
    """
    letters = {each[1] for each in names if len(each) == 2}
    for at, word in enumerate(arguments):
        following = arguments[at + 1 : at + 2]
        name, equals, _ = word.text.partition("=")
        if name.startswith("--") and len(name) > 3:
            if any(each.startswith(name) for each in names):
                yield from [word.starting(len(name) + 1)] if equals else following
        elif name.startswith("-") and word.text in names:
            yield from following
        elif word.text.startswith("-") and not word.text.startswith("--"):
            for index, letter in enumerate(word.text[1:], 1):
                if letter in letters:
                    rest = word.starting(index + 1)
                    yield from [rest] if rest.text else following
                    break
