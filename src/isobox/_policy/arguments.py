"""Whether a rule's arguments are those of a command, or may be once it runs."""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import TYPE_CHECKING, Final

from isobox._policy import subcommands

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from isobox._policy.shell import Command

_WILD: Final = re.compile(r"[*?\[]")
_SIGN: Final = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
#: Characters of what an argument begins with that are looked at: fewer rule out less.
_HEAD: Final = 256
#: Programs that take what follows `--` for files, and nothing else.
_FILES: Final = frozenset({"cat", "rm", "rmdir", "unlink"})
#: A pattern of files whose names hold a dot, which no option of `rm` does.
_DOTTED: Final = re.compile(r"[\w*?/-]*\.[\w*?/.-]*", re.ASCII)


def matches(pattern: str, text: str) -> bool:
    """Whether a text is one that a pattern means, as in a shell."""
    # Most patterns are words, and a comparison is ten times faster.
    return pattern == text or (
        _WILD.search(pattern) is not None and fnmatch.fnmatchcase(text, pattern)
    )


def fit(patterns: Sequence[str], command: Command) -> bool:
    """Whether each pattern fits an argument, as the command is written."""
    return all(_some(each, command.arguments) for each in patterns)


def may_fit(patterns: Sequence[str], command: Command) -> bool:
    """Whether running it could make arguments that each pattern fits one of."""
    if not command.dynamic:
        return False
    others = _others(patterns, command)
    return all(
        _some(each, command.arguments)
        or (each not in others and _may_become(each, command))
        for each in patterns
    )


def _others(patterns: Sequence[str], command: Command) -> frozenset[str]:
    """Commands of a program that it is not told, where rules name another one."""
    told = subcommands.told(command)
    if told is None or any(matches(each, told) for each in patterns):
        return frozenset()
    return subcommands.names(command.program or "")


def _some(pattern: str, texts: Sequence[str]) -> bool:
    if pattern in texts:
        return True
    return _WILD.search(pattern) is not None and any(
        fnmatch.fnmatchcase(text, pattern) for text in texts
    )


def _may_become(pattern: str, command: Command) -> bool:
    heads = _options(command) if pattern.startswith("-") else command.heads_by_index()
    return any(_may_begin(pattern, head[:_HEAD]) for _, head in heads)


def _options(command: Command) -> Iterator[tuple[int, str]]:
    """The arguments that running it could make options of, as they begin."""
    end = _end_of_options(command)
    for at, head in command.heads_by_index():
        if at < end and not _is_dotted(command, at):
            yield at, head


def _end_of_options(command: Command) -> int:
    words = command.arguments
    if command.program not in _FILES:
        return len(words)
    ends = (at for at, word in enumerate(words) if word == "--")
    return next((at for at in ends if at not in command.dynamic), len(words))


def _is_dotted(command: Command, at: int) -> bool:
    """Whether an argument stands for files by names with a dot, for `rm`.

    Where something wraps the command, it may replace what looks like a pattern.
    """
    return (
        command.program == "rm"
        and not command.through
        and _DOTTED.fullmatch(command.arguments[at]) is not None
    )


@functools.lru_cache(maxsize=1024)
def _may_begin(pattern: str, head: str) -> bool:
    """Whether something that begins like this is what a pattern means."""
    if pattern.startswith(head):
        return True
    signs = _SIGN.findall(pattern)
    places = {0}
    for character in head:
        places = {
            after for place in places for after in _after(signs, place, character)
        }
    return bool(places)


def _after(signs: Sequence[str], place: int, character: str) -> Iterator[int]:
    """Where in a pattern one is after a character, from one place in it."""
    while place < len(signs) and signs[place] == "*":
        yield place
        place += 1
    if place < len(signs) and fnmatch.fnmatchcase(character, signs[place]):
        yield place + 1
