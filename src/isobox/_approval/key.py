"""What makes two questions the same one."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from isobox._core.facts import facts
from isobox._core.links import elsewhere
from isobox._core.ops import (
    Apply,
    CallTool,
    Checkpoint,
    Connect,
    Patch,
    Remove,
    Script,
    Spawn,
)
from isobox._policy.part import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._core.ops import Op
    from isobox._policy.part import Part

#: The rule, the kind of operation, and what it is about.
Key = tuple[str, ...]

#: Characters beyond which a digest stands for what is run.
_LONGEST: Final = 4096


def keys_of(op: Op[object], asked: Iterable[tuple[Part, str]]) -> list[Key]:
    """Return what an answer is remembered under, a key for each part.

    There are none, so that it is for once, where a command is given input: it
    comes later, and nobody has seen it. Nor are there where nobody knows in which
    directory a shell stands.

    Args:
        op: The operation.
        asked: Its parts that are asked about, and the rule that asks.
    """
    # The shell of a session is one: its scripts are operations of their own.
    if isinstance(op, Spawn) and (op.stdin or op.tty) and not op.report:
        return []
    if isinstance(op, Script) and op.stands_in is None:
        return []
    return [key_of(op, part, rule) for part, rule in asked]


def key_of(op: Op[object], part: Part, rule: str) -> Key:
    """Return what an answer about a part of an operation is remembered under.

    Args:
        op: The operation.
        part: The part that a rule asks about.
        rule: The rule.
    """
    # A link that is turned elsewhere makes another question of it.
    return (rule, *_about(op, part), *(place.real for place in elsewhere(op)))


def _about(op: Op[object], part: Part) -> Key:
    match op:
        case Spawn() | Script():
            return ("run", _run(op))
        case Connect():
            return (op.name, op.host, str(op.port), op.method or "")
        case CallTool():
            return (op.name, op.server, op.kind, op.tool, _digest(dict(op.arguments)))
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


def _run(op: Spawn | Script) -> str:
    """Return all that is run, where and as whom.

    Not one command of it: beside others, or through a wrapper, the same words
    mean another thing. `cd` goes elsewhere, `ssh` names a machine, a pipe brings
    what it is about.
    """
    text = text_of(op)
    told = json.dumps({**text.plain(), **_where(op)}, sort_keys=True)
    return told if len(told) <= _LONGEST else _digest(told)


def _where(op: Spawn | Script) -> dict[str, object]:
    if isinstance(op, Script):
        return {"session": op.session_id, "cwd": op.stands_in}
    # Values of variables may be secrets, and keys are written to a file.
    env = _digest(sorted(op.env.items())) if op.env else None
    return {"cwd": op.cwd, "env": env, "spool": op.spool, "user": op.user}


def _removed(op: Patch, path: str | None) -> Key:
    gone = any(
        change.path == path and (change.kind == "delete" or change.target is not None)
        for change in op.changes
    )
    return ("removed",) if gone else ()


def _digest(data: object) -> str:
    # In ASCII: names of files may hold bytes that are no text.
    return "sha256:" + hashlib.sha256(json.dumps(data).encode("ascii")).hexdigest()
