"""find: what it runs on what it finds."""

from __future__ import annotations

import posixpath
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.words import Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._policy.shell.reading import Call, Reading

#: Options after which nobody can tell where it begins.
_ELSEWHERE: Final = frozenset({"-D", "-files0-from"})


def examine(call: Call, reading: Reading) -> None:
    """Note what `find` would run, and write."""
    words = call.arguments
    at = 0
    while at < len(words):
        text = words[at].text
        at += 1
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            at = _until_end(call, at, reading)
        elif text in ("-fprint", "-fprint0", "-fprintf", "-fls") and at < len(words):
            reading.writes.append(None if words[at].dynamic else words[at].text)
        elif words[at - 1].may_be_option and not words[at - 1].head:
            reading.doubt("find is given what may be an action")


def _until_end(call: Call, at: int, reading: Reading) -> int:
    inner = list[Word]()
    words = call.arguments
    while at < len(words) and words[at].text != ";":
        if words[at].text == "+" and inner and inner[-1].text == "{}":
            break
        inner.append(words[at])
        at += 1
    start = _start(words)
    run = [each.filled("{}", start) if "{}" in each.text else each for each in inner]
    reading.invoke(call.inner(run))
    return at + 1


def _start(words: Sequence[Word]) -> str:
    """What the paths that `find` finds begin with for certain."""
    if any(each.text in _ELSEWHERE or each.may_be_option for each in words):
        return ""
    places = list(takewhile(_is_place, dropwhile(_follows, words)))
    known = [each.begins if each.dynamic else each.text for each in places] or ["."]
    # By `-execdir` it is `./` and a name; two places begin alike, or with nothing.
    directories = any(each.text in ("-execdir", "-okdir") for each in words)
    return posixpath.commonprefix([*known, "./"] if directories else known)


def _follows(word: Word) -> bool:
    """Whether it is an option that stands before the first place."""
    return word.text in ("-H", "-L", "-P") or word.text.startswith("-O")


def _is_place(word: Word) -> bool:
    return not word.text.startswith("-") and word.text not in ("(", "!", ")", ",")
