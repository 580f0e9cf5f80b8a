"""Facts of an operation: plain data for policies and records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Never, cast

from isobox._core.ops import (
    AnyOp,
    Apply,
    Attach,
    CallTool,
    Checkpoint,
    Connect,
    Dial,
    Diff,
    Discard,
    Edit,
    Listen,
    Op,
    Patch,
    Pull,
    Push,
    Read,
    ReadLines,
    Remove,
    Restore,
    Running,
    Scan,
    Script,
    Search,
    Snapshot,
    Spawn,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._core.ops import Body

#: Plain data: what JSON can hold.
Fact = str | int | float | bool | None | list[str]

#: The longest text, and the most texts of a list, that a record repeats.
_TEXT: Final = 4096
_TEXTS: Final = 256


def facts(
    op: Op[object], *, redact: Callable[[str], str] | None = None
) -> dict[str, Fact]:
    """Return what there is to know of `op`, without the content it carries.

    Texts are cut after 4,096 characters, and lists after 256 texts.

    Args:
        op: The operation.
        redact: Masks what nobody is to see, in whole texts: a part of a secret
            that was cut off before would not be recognised.
    """
    found = _facts(cast("AnyOp", op))
    if op.caller is not None:
        found.setdefault("tool", op.caller)
    if op.places:
        found["links"] = _links(op)
    return {
        key: _bounded(value, redact) if isinstance(value, (str, list)) else value
        for key, value in found.items()
        if value is not None
    }


def _links(op: Op[object]) -> Fact:
    led = {place.path: place.real for place in op.places if place.real != place.path}
    return [f"{path} -> {real}" for path, real in led.items()] or None


def path_of(op: Op[object]) -> str | None:
    """Return the path that `op` is about, if it is about one."""
    if isinstance(op, Spawn):
        return op.cwd
    path = getattr(op, "path", None)
    return path if isinstance(path, str) else None


def _facts(op: AnyOp) -> dict[str, Fact]:  # noqa: C901, PLR0912 - one case an op
    match op:
        case Spawn():
            return _spawn(op)
        case Script():
            return {"session": op.session_id, "cwd": op.stands_in, "script": op.script}
        case Read():
            return {"path": op.path, "offset": op.offset, "length": op.length}
        case Write():
            return {
                "path": op.path,
                "size": _size(op.body),
                "mode": op.mode,
                "if_match": op.if_match,
                "append": op.append or None,
            }
        case ReadLines():
            return {"path": op.path, "start": op.start, "count": op.count}
        case Attach():
            return {"id": op.id, "stdout": op.stdout, "stderr": op.stderr}
        case Running():
            return {}
        case Edit():
            return _edit(op)
        case Patch():
            return _patch(op)
        case Scan():
            return {"path": op.path, "depth": op.depth, "pattern": op.pattern}
        case Search():
            return {"path": op.path, "pattern": op.pattern, "glob": op.glob}
        case Remove():
            return {"path": op.path, "recursive": op.recursive}
        case Pull():
            return {"path": op.path}
        case Push():
            return {"path": op.path, "size": _size(op.body), "whole": op.whole}
        case Dial():
            return {"host": op.host, "port": op.port}
        case Listen():
            return {"port": op.port}
        case Connect():
            return {
                "host": op.host,
                "port": op.port,
                "via": op.via,
                "method": op.method,
                "target": op.target,
            }
        case CallTool():
            return _call(op)
        case Checkpoint():
            return {"stage": op.stage, "text": op.text or None}
        case Snapshot():
            return {}
        case Restore():
            return {"snapshot": op.snapshot.id}
        case Diff() | Discard():
            return {}
        case Apply():
            return {"paths": None if op.paths is None else list(op.paths)}
        case _:
            unknown: Never = op
            raise TypeError(f"not an operation: {type(unknown).__name__}")


def _call(op: CallTool) -> dict[str, Fact]:
    return {
        "server": op.server,
        "kind": op.kind,
        "tool": op.tool,
        "arguments": json.dumps(dict(op.arguments), ensure_ascii=False, default=str),
        "remote": op.remote,
    }


def _spawn(op: Spawn) -> dict[str, Fact]:
    return {
        "argv": list(op.argv) or None,
        "script": op.script,
        "cwd": op.cwd,
        "env": sorted(op.env) or None,
        "stdin": op.stdin,
        "tty": op.tty is not None,
        "timeout": op.timeout,
        "user": op.user,
        "spool": op.spool,
        "label": op.label,
        "declared": op.declared or None,
    }


def _edit(op: Edit) -> dict[str, Fact]:
    return {
        "path": op.path,
        "replacements": len(op.replacements),
        "every": sum(each.every for each in op.replacements) or None,
    }


def _patch(op: Patch) -> dict[str, Fact]:
    whole = [change.path for change in op.changes]
    targets = [change.target for change in op.changes if change.target is not None]
    removed = [
        change.path
        for change in op.changes
        if change.kind == "delete" or change.target is not None
    ]
    return {"paths": whole + targets, "removed": removed or None}


def _bounded(value: str | list[str], redact: Callable[[str], str] | None) -> Fact:
    if isinstance(value, str):
        return bounded(value, redact)
    texts = [bounded(each, redact) for each in value[:_TEXTS]]
    if len(value) > _TEXTS:
        texts.append(f"[... {len(value) - _TEXTS} more]")
    return texts


def bounded(text: str, redact: Callable[[str], str] | None) -> str:
    """Return a text as records repeat it: masked, then cut after 4,096 characters."""
    if redact is not None:
        text = redact(text)
    if len(text) <= _TEXT:
        return text
    return f"{text[:_TEXT]}[... {len(text) - _TEXT} characters more]"


def _size(body: Body) -> int | None:
    return len(body) if isinstance(body, bytes) else None
