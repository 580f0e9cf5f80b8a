"""What an operation does, piece by piece, as rules look at it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from isobox._core.facts import path_of
from isobox._core.ops import (
    Apply,
    Connect,
    Op,
    Patch,
    Push,
    Script,
    Spawn,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._policy.shell import Command, Facts

#: Names for kinds of operations, as rules write them.
GROUPS: Final[dict[str, frozenset[str]]] = {
    "read": frozenset(
        ("read", "read_lines", "scan", "search", "pull", "diff", "snapshot")
    ),
    "write": frozenset(
        ("write", "edit", "patch", "remove", "push", "restore", "apply", "discard")
    ),
    "run": frozenset(("spawn", "script")),
    "network": frozenset(("connect", "dial", "listen")),
    "tool": frozenset(("call_tool",)),
    "checkpoint": frozenset(("checkpoint",)),
}


#: Characters of a script whose facts are remembered.
_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that an operation does.

    Attributes:
        op: The operation's name.
        label: The tool or server that asks for it.
        command: A command of a script or argv.
        path: A path that it is about, absolute inside.
        host: A host that it reaches.
        size: Bytes that it writes.
        doubts: Why nobody can tell what else a script does.
    """

    op: str
    label: str | None = None
    command: Command | None = None
    path: str | None = None
    host: str | None = None
    size: int | None = None
    doubts: tuple[str, ...] = ()


def parts(op: Op[object], *, commands: bool) -> tuple[Part, ...]:
    """Return what an operation does; at least one part.

    Args:
        op: The operation.
        commands: Look into scripts. Without it, a script is one part.
    """
    return tuple(_parts(op, commands=commands))


def _parts(op: Op[object], *, commands: bool) -> Iterator[Part]:
    match op:
        case Spawn() | Script() if commands:
            yield from _run(op)
        case Patch():
            for change in op.changes:
                yield Part(op.name, path=change.path)
                if change.target is not None:
                    yield Part(op.name, path=change.target)
        case Apply() if op.paths:
            for path in op.paths:
                yield Part(op.name, path=path)
        case Connect():
            yield Part(op.name, host=op.host)
        case Write() | Push():
            body = op.body
            size = len(body) if isinstance(body, bytes) else None
            yield Part(op.name, path=op.path, size=size)
        case _:
            label = op.label if isinstance(op, Spawn) else None
            yield Part(op.name, label=label, path=path_of(op))


def _run(op: Spawn | Script) -> Iterator[Part]:
    label = op.label if isinstance(op, Spawn) else None
    argv = op.argv if isinstance(op, Spawn) and op.script is None else None
    if isinstance(op, Spawn) and op.report:
        # A session's shell: what it runs comes script by script, as operations.
        argv = op.argv[:1]
    found = _facts_of(op.script or "") if argv is None else _facts_of_argv(argv)
    if isinstance(op, Spawn) and op.report:
        found = replace(found, doubts=())
    for command in found.commands:
        yield Part(op.name, label=label, command=command)
    for path in found.writes:
        yield Part("write", label=label, path=path)
    if not found.understood or not (found.commands or found.writes):
        yield Part(op.name, label=label, doubts=found.doubts)


def _facts_of(script: str) -> Facts:
    return _known(script) if len(script) <= _REMEMBERED else _known.__wrapped__(script)


@functools.lru_cache(maxsize=256)
def _known(script: str) -> Facts:
    # Its grammar is large, and most policies do not look into scripts.
    from isobox._policy import shell  # noqa: PLC0415

    return shell.facts(script)


@functools.lru_cache(maxsize=256)
def _known_argv(argv: tuple[str, ...]) -> Facts:
    from isobox._policy import shell  # noqa: PLC0415

    return shell.facts_of_argv(argv)


def _facts_of_argv(argv: tuple[str, ...]) -> Facts:
    small = sum(map(len, argv)) <= _REMEMBERED
    return _known_argv(argv) if small else _known_argv.__wrapped__(argv)
