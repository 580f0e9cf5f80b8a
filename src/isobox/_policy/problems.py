"""What is wrong with a policy's file: where, and what to write instead."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic_core import ErrorDetails

    Keys = Mapping[str, Sequence[str]]

#: The branches of a union are told apart by names of ours.
_BRANCHES: Final = ("NetworkFile", "NetworkRuleFile", "literal['open','none']")
_HEADER: Final = re.compile(r"\s*\[\[\s*rules\s*\]\]")
_TABLE: Final = re.compile(r"\s*\[")
#: Problems that are told at once, and lines in which their places are looked for:
#: whoever works in a project may have written its file.
_MOST: Final = 8
_LINES: Final = 10_000
#: Characters of what was given that a message shows.
_SHOWN: Final = 60
_WANTED: Final = {
    "string_type": 'text is wanted, in quotes: "..."',
    "string_too_short": "the text is empty",
    "int_type": "a whole number is wanted, without quotes",
    "float_type": "a number is wanted, without quotes",
    "bool_type": "true or false is wanted, without quotes",
    "model_type": "a table is wanted",
}
_BOUNDS: Final = {
    "greater_than_equal": ("less than", "ge"),
    "greater_than": ("not more than", "gt"),
    "less_than_equal": ("more than", "le"),
}
_MISSING: Final = {
    "version": "it is missing; write `version = 1` as the first line",
    "verdict": 'it is missing; write `verdict = "deny"`, "ask" or "allow"',
    "host": 'it is missing; write `host = "example.org"`',
}


def described(
    problems: Iterable[ErrorDetails], text: str, source: str, keys: Keys
) -> str:
    """Return what is wrong, each with its place.

    Args:
        problems: What was found.
        text: The file's text.
        source: The file's name.
        keys: The keys that there are, by the table that holds them.
    """
    lines = [] if source.endswith(".json") else text.splitlines()[:_LINES]
    # What is a table is not also told that it is none of the words.
    told = [each for each in problems if not _is_other_branch(each)]
    return "; ".join(_one(each, lines, source, keys) for each in told[:_MOST])


def _is_other_branch(problem: ErrorDetails) -> bool:
    return problem["type"] == "literal_error" and isinstance(problem["input"], dict)


def headers(text: str) -> list[int]:
    """Return the numbers of the lines in which rules begin, in TOML."""
    return _headers(text.splitlines())


def line_of(word: str, text: str) -> int | None:
    """Return the number of the line that holds a text in quotes, if one does."""
    for number, line in enumerate(text.splitlines()[:_LINES], 1):
        if f'"{word}"' in line or f"'{word}'" in line:
            return number
    return None


def _headers(lines: Sequence[str]) -> list[int]:
    return [number for number, line in enumerate(lines, 1) if _HEADER.match(line)]


def _one(problem: ErrorDetails, lines: Sequence[str], source: str, keys: Keys) -> str:
    steps = [step for step in problem["loc"] if step not in _BRANCHES]
    number = _line(steps, lines)
    place = source if number is None else f"{source}:{number}"
    where = ".".join(map(str, steps)) or "the file"
    return f"{place}: {where}: {_what(problem, steps, keys)}"


def _what(problem: ErrorDetails, steps: Sequence[int | str], keys: Keys) -> str:
    kind, key = problem["type"], str(steps[-1]) if steps else ""
    given = cast("object", problem["input"])
    if kind == "extra_forbidden":
        tables = [step for step in steps[:-1] if step in keys]
        known = keys[str(tables[-1]) if tables else ""]
        close = difflib.get_close_matches(key[:_SHOWN], known, n=1)
        return f"no such key{f'; is it `{close[0]}`?' if close else ''}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"{given!r:.{_SHOWN}} is {words} {problem.get('ctx', {}).get(bound)}"
    if kind == "missing":
        return _MISSING.get(key, "it is missing")
    if kind == "list_type":
        if key == "rules" and isinstance(given, dict):
            return "a list of tables is wanted: write `[[rules]]`, in two brackets"
        example = given if isinstance(given, str) else "..."
        return f'a list is wanted: `{key} = ["{example[:_SHOWN]}"]`'
    if kind == "literal_error":
        expected = problem.get("ctx", {}).get("expected")
        # What is deep is not shown: it may be too deep to be.
        flat = isinstance(given, str | int | float)
        what = f"{given!r:.{_SHOWN}}" if flat else f"a {type(given).__name__}"
        if key == "version":
            return f"{what} is no version that is known; write `version = 1`"
        return f"{what} is none of {expected}"
    return _WANTED.get(kind, problem["msg"])


def _line(steps: Sequence[int | str], lines: Sequence[str]) -> int | None:
    """Return the line that holds a key, or else the table that it is in."""
    if not lines or not steps:
        return None
    if steps[0] != "rules":
        return _found(lines, _names(steps), 0, len(lines))
    begins = _headers(lines)
    if len(steps) == 1 or not isinstance(steps[1], int) or steps[1] >= len(begins):
        return begins[0] if begins else _found(lines, ["rules"], 0, len(lines))
    begin = begins[steps[1]]
    ends = [number - 1 for number in begins if number > begin]
    return _found(lines, _names(steps[2:]), begin, (ends or [len(lines)])[0]) or begin


def _names(steps: Sequence[int | str]) -> list[str]:
    return [step for step in steps if isinstance(step, str)]


def _found(lines: Sequence[str], names: list[str], begin: int, end: int) -> int | None:
    for name in reversed(names):
        key = re.compile(rf"""\s*(?:[\w."']+\.)?["']?{re.escape(name)}["']?\s*[=.]""")
        table = re.compile(rf"\s*\[+[\w.\s]*\b{re.escape(name)}\s*\]")
        for number in range(begin, end):
            line = lines[number]
            if (table if _TABLE.match(line) else key).match(line):
                return number + 1
    return None
