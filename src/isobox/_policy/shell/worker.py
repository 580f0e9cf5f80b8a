"""Reads scripts in a process of its own, and tells their facts.

The parser is C code, and scripts are anybody's text: what crashes it must not be
the program that holds the workspaces. One JSON value a line, in and out.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from isobox._policy.python_code import PythonFacts
from isobox._policy.shell.facts import Command, Facts

if TYPE_CHECKING:
    from collections.abc import Sequence

Plain = dict[str, object]


def main() -> None:
    """Answer until there is no more question."""
    from isobox._policy import shell  # noqa: PLC0415 - the codec needs no parser

    for line in sys.stdin.buffer:
        asked = json.loads(line)
        argv = asked.get("argv")
        found = (
            shell.facts(asked["script"]) if argv is None else shell.facts_of_argv(argv)
        )
        sys.stdout.write(json.dumps(plain(found)) + "\n")
        sys.stdout.flush()


def plain(found: Facts) -> Plain:
    """Return facts as what JSON can hold."""
    told = asdict(found)
    for command in told["commands"]:
        command["dynamic"] = sorted(command["dynamic"])
    return told


def facts(told: object) -> Facts:
    """Return the facts that `plain` told.

    Raises:
        ValueError: It is none of that form.
    """
    # SAFETY: whoever answers has read hostile text; nothing but texts and numbers
    # is taken from it, and each where it belongs.
    fields = _dict(told)
    return Facts(
        commands=tuple(map(_command, _list(fields.get("commands")))),
        writes=_maybe_texts(fields.get("writes")),
        reads=_maybe_texts(fields.get("reads")),
        python=tuple(map(_python, _list(fields.get("python")))),
        doubts=_texts(fields.get("doubts")),
    )


def _command(told: object) -> Command:
    fields = _dict(told)
    pairs = [_maybe_texts(pair) for pair in _list(fields.get("assignments"))]
    return Command(
        program=_maybe_text(fields.get("program")),
        arguments=_texts(fields.get("arguments")),
        dynamic=frozenset(map(_number, _list(fields.get("dynamic")))),
        heads=_texts(fields.get("heads")),
        assignments=tuple((_text(name), value) for name, value in pairs),
        through=_texts(fields.get("through")),
        path=_maybe_text(fields.get("path")),
    )


def _python(told: object) -> PythonFacts:
    fields = _dict(told)
    return PythonFacts(
        imports=_texts(fields.get("imports")),
        calls=_texts(fields.get("calls")),
        writes=_maybe_texts(fields.get("writes")),
        findings=_texts(fields.get("findings")),
        doubts=_texts(fields.get("doubts")),
        scripts=_texts(fields.get("scripts")),
    )


def _dict(told: object) -> Plain:
    if not isinstance(told, dict):
        raise ValueError("no table")  # noqa: TRY004 - all of it is one error
    return cast("Plain", told)


def _list(told: object) -> Sequence[object]:
    if not isinstance(told, list):
        raise ValueError("no list")  # noqa: TRY004
    return cast("list[object]", told)


def _text(told: object) -> str:
    if not isinstance(told, str):
        raise ValueError("no text")  # noqa: TRY004
    return told


def _maybe_text(told: object) -> str | None:
    return None if told is None else _text(told)


def _texts(told: object) -> tuple[str, ...]:
    return tuple(map(_text, _list(told)))


def _maybe_texts(told: object) -> tuple[str | None, ...]:
    return tuple(map(_maybe_text, _list(told)))


def _number(told: object) -> int:
    if not isinstance(told, int) or isinstance(told, bool):
        raise ValueError("no number")  # noqa: TRY004
    return told


if __name__ == "__main__":
    main()
