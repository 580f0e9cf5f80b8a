"""What makes two questions the same one."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from isobox._core.facts import facts
from isobox._core.ops import Apply, Checkpoint, Connect, Patch, Remove, Script, Spawn

if TYPE_CHECKING:
    from isobox._core.ops import Op
    from isobox._policy.part import Part

#: The rule, the kind of operation, and what it is about.
Key = tuple[str, ...]

#: Characters beyond which a digest stands for the words of a command.
_LONGEST: Final = 4096


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
            return (op.name, *(op.paths or ()))
        case Checkpoint():
            return (op.name, op.stage)
        case _ if part.path is not None:
            return (op.name, part.path)
        case _:
            return (op.name, json.dumps(facts(op), sort_keys=True))


def _run(op: Spawn | Script, part: Part) -> Key:
    command = part.command
    if part.path is not None and part.op == "write":
        return (part.op, *_where(op), part.path)
    if command is None or command.program is None or command.dynamic:
        # What nobody can tell is the same only where all of it is.
        return ("run", *_where(op), _digest(_words(op)))
    words = (command.path or command.program, *command.arguments)
    by = (*command.through, *(f"{name}={value}" for name, value in command.assignments))
    if sum(map(len, words + by)) > _LONGEST:
        return ("run", *_where(op), _digest([words, by]))
    return ("run", *_where(op), *by, *words)


def _where(op: Spawn | Script) -> Key:
    """Return where a command runs, and as whom: elsewhere it is another one."""
    if isinstance(op, Script):
        return (f"session {op.session_id}",)
    around = [sorted(op.env.items()), op.user]
    return (op.cwd, "" if around == [[], None] else _digest(around))


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
