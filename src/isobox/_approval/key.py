"""What makes two questions the same one."""

from __future__ import annotations

import hashlib
import json
import shlex
from typing import TYPE_CHECKING, Final

from isobox._core.facts import facts
from isobox._core.ops import Apply, Checkpoint, Connect, Patch, Remove, Script, Spawn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._core.ops import Op
    from isobox._policy.part import Part
    from isobox._policy.shell import Command

#: The rule, the kind of operation, and what it is about.
Key = tuple[str, ...]

#: Characters beyond which a digest stands for the words of a command.
_LONGEST: Final = 4096


def keys_of(op: Op[object], asked: Iterable[tuple[Part, str]]) -> list[Key]:
    """Return what an answer is remembered under, a key for each part.

    There are none, so that it is for once, where a command is given input: it
    comes later, and nobody has seen it.

    Args:
        op: The operation.
        asked: Its parts that are asked about, and the rule that asks.
    """
    # The shell of a session is one: its scripts are operations of their own.
    if isinstance(op, Spawn) and (op.stdin or op.tty) and not op.report:
        return []
    return [key_of(op, part, rule) for part, rule in asked]


def key_of(op: Op[object], part: Part, rule: str) -> Key:
    """Return what an answer about a part of an operation is remembered under.

    Args:
        op: The operation.
        part: The part that a rule asks about.
        rule: The rule.
    """
    return (rule, *_about(op, part))


def _about(op: Op[object], part: Part) -> Key:
    match op:
        case Spawn() | Script():
            return _run(op, part)
        case Connect():
            return (op.name, op.host, str(op.port), op.method or "")
        case Patch():
            return (op.name, part.path or "", *_removed(op, part.path))
        case Remove():
            return (op.name, op.path, "recursive" if op.recursive else "")
        case Apply():
            return (op.name, json.dumps([op.paths, op.skip_refused]))
        case Checkpoint():
            return (op.name, op.stage)
        case _ if part.path is not None:
            return (op.name, part.path)
        case _:
            return (op.name, json.dumps(facts(op), sort_keys=True))


def _run(op: Spawn | Script, part: Part) -> Key:
    """Return the key of one command by itself, or of all that is run."""
    where, words = _where(op), _alone(op, part.command)
    told = None if words is None else json.dumps([where, words], sort_keys=True)
    if told is None or len(told) > _LONGEST:
        return ("run", "whole", _digest([where, _words(op)]))
    return ("run", "command", told)


def _alone(op: Spawn | Script, command: Command | None) -> object | None:
    """Return a command, if it is all that the operation runs; else None.

    Beside others, or through a wrapper, the same words mean another thing: `cd`
    goes elsewhere, `ssh` names a machine, a pipe brings what it is about.
    """
    if command is None or command.program is None:
        return None
    if command.dynamic or command.through:
        return None
    words = [command.path or command.program, *command.arguments]
    if isinstance(op, Spawn) and op.script is None:
        return ["argv", words] if words == list(op.argv) else None
    before = [f"{name}={value}" for name, value in command.assignments]
    if any(value is None for _, value in command.assignments):
        return None
    # SAFETY: by the text and not by what was read of it: what differs in a
    # redirection or a here-document is a word more.
    if _split(op.script or "") != before + words:
        return None
    return ["script", command.assignments, words]


def _split(script: str) -> list[str] | None:
    if "\n" in script.strip():
        return None
    try:
        return shlex.split(script)
    except ValueError:
        return None


def _where(op: Spawn | Script) -> object:
    """Return where a command runs, and as whom: elsewhere it is another one."""
    if isinstance(op, Script):
        return {"session": op.session_id}
    around = {"env": _digest(sorted(op.env.items())), "user": op.user}
    return {"cwd": op.cwd, "spool": op.spool, "label": op.label, **around}


def _words(op: Spawn | Script) -> object:
    return op.script if isinstance(op, Script) else [op.script, op.argv]


def _removed(op: Patch, path: str | None) -> Key:
    gone = any(
        change.path == path and (change.kind == "delete" or change.target is not None)
        for change in op.changes
    )
    return ("removed",) if gone else ()


def _digest(data: object) -> str:
    # In ASCII: names of files may hold bytes that are no text.
    return "sha256:" + hashlib.sha256(json.dumps(data).encode("ascii")).hexdigest()
