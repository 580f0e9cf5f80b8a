"""What an operation does, piece by piece, as rules look at it."""

from __future__ import annotations

from collections import OrderedDict
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


#: Texts whose facts are remembered, and characters of one that is read.
_REMEMBERED: Final = 256
LONGEST: Final = 1 << 16


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


@dataclass(frozen=True, slots=True)
class Text:
    """What is read of an operation that runs something.

    Attributes:
        script: Text for a shell; None with `argv`.
        argv: A program and its arguments.
    """

    script: str | None = None
    argv: tuple[str, ...] = ()

    def plain(self) -> dict[str, object]:
        """Return it as what JSON can hold."""
        if self.script is not None:
            return {"script": self.script}
        return {"argv": list(self.argv)}

    def __len__(self) -> int:
        return len(self.script or "") + sum(map(len, self.argv))


def text_of(op: Spawn | Script) -> Text:
    """Return what is read of an operation."""
    if isinstance(op, Script):
        return Text(script=op.script)
    # A session's shell: what it runs comes script by script, as operations.
    argv = op.argv[:1] if op.report else op.argv
    return Text(script=op.script, argv=argv)


def known(text: Text) -> Facts | None:
    """Return the facts of a text, if they are remembered, or read at once."""
    if len(text) > LONGEST:
        return _too_long()
    found = _KNOWN.pop(text, None)
    if found is not None:
        _KNOWN[text] = found  # the latest is forgotten last
    return found


def remember(text: Text, found: Facts) -> None:
    """Remember the facts of a text, for the decisions on it."""
    _KNOWN[text] = found
    while len(_KNOWN) > _REMEMBERED:
        _KNOWN.popitem(last=False)


def _run(op: Spawn | Script) -> Iterator[Part]:
    label = op.label if isinstance(op, Spawn) else None
    text = text_of(op)
    found = known(text)
    if found is None:
        found = _read(text)
        remember(text, found)
    if isinstance(op, Spawn) and op.report:
        found = replace(found, doubts=())
    for command in found.commands:
        yield Part(op.name, label=label, command=command)
    for path in found.writes:
        yield Part("write", label=label, path=path)
    if not found.understood or not (found.commands or found.writes):
        yield Part(op.name, label=label, doubts=found.doubts)


def _read(text: Text) -> Facts:
    # Its grammar is large, and most policies do not look into scripts.
    from isobox._policy import shell  # noqa: PLC0415

    if text.script is not None:
        return shell.facts(text.script)
    return shell.facts_of_argv(text.argv)


def _too_long() -> Facts:
    from isobox._policy.shell.facts import Facts  # noqa: PLC0415

    return Facts(doubts=("it is longer than 64 KiB",))


_KNOWN: Final[OrderedDict[Text, Facts]] = OrderedDict()
