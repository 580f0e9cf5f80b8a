"""What an operation does, piece by piece, as rules look at it."""

from __future__ import annotations

import math
import posixpath
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from isobox._core import links
from isobox._core.facts import path_of
from isobox._core.ops import (
    Apply,
    CallTool,
    Connect,
    Discard,
    Edit,
    Op,
    Patch,
    Pull,
    Push,
    Remove,
    Restore,
    Script,
    Search,
    Spawn,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._core.ops import Body, Replacement
    from isobox._core.patch import FileChange
    from isobox._policy.shell import Command, Facts

#: Names for kinds of operations, as rules write them.
GROUPS: Final[dict[str, frozenset[str]]] = {
    "read": frozenset(
        (
            "read",
            "read_lines",
            "scan",
            "search",
            "pull",
            "diff",
            "snapshot",
            "running",
        )
    ),
    "write": frozenset(
        ("write", "edit", "patch", "remove", "push", "restore", "apply", "discard")
    ),
    "run": frozenset(("spawn", "script", "attach")),
    "network": frozenset(("connect", "dial", "listen")),
    "tool": frozenset(("call_tool",)),
    "checkpoint": frozenset(("checkpoint",)),
}


#: What runs other commands elsewhere, or may.
_MOVING: Final = frozenset(("cd", "pushd", "popd"))
_MOVED: Final = re.compile(
    r"\b(?:cd|pushd|popd|env|sudo|doas|su|runuser|find|chroot|unshare|nsenter|bwrap"
    r"|systemd-run|ssh|parallel|start-stop-daemon)\b|--chdir"
)
_QUOTES: Final = {ord(each): None for each in "\"'\\"}
#: Files by way of a process: which, only that process tells.
_PROCESS: Final = re.compile(r"/+proc/")

#: Texts whose facts are remembered, and characters of one that is read.
_REMEMBERED: Final = 256
LONGEST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that an operation does.

    Attributes:
        op: The operation's name.
        label: What a command, or a server, is called by.
        caller: The tool that performs it.
        command: A command of a script or argv.
        path: A path that it is about, absolute inside.
        host: A host that it reaches.
        size: Bytes that it writes; infinity where nobody can tell.
        doubts: Why nobody can tell what else a script does.
        below: It is about all that is below the path as well; without a path,
            about all of the workspace.
        unsure: Only running it tells whether that is the path.
        around: It is all of a script whose commands are parts as well: of new
            there is only the path.
    """

    op: str
    label: str | None = None
    caller: str | None = None
    command: Command | None = None
    path: str | None = None
    host: str | None = None
    size: float | None = None
    doubts: tuple[str, ...] = ()
    below: bool = False
    unsure: bool = False
    around: bool = False


def parts(op: Op[object], *, commands: bool) -> tuple[Part, ...]:
    """Return what an operation does; at least one part.

    Where a path leads elsewhere by a link, that is a part of its own.

    Args:
        op: The operation.
        commands: Look into scripts. Without it, a script is one part.
    """
    if not op.places and op.caller is None:
        return tuple(_parts(op, commands=commands))
    found = list(_parts(op, commands=commands))
    for other in links.led(op):
        led = _parts(other, commands=commands)
        found += [part for part in led if part not in found]
    if op.caller is not None:
        found = [replace(part, caller=op.caller) for part in found]
    return tuple(found)


def _parts(op: Op[object], *, commands: bool) -> Iterator[Part]:
    match op:
        case Spawn():
            yield from _run(op) if commands else (_whole(op),)
            if op.spool is not None:
                yield Part("write", label=op.label, path=op.spool)
        case Script():
            yield from _run(op) if commands else (_whole(op),)
        case Connect():
            yield Part(op.name, host=op.host)
        case Write():
            yield Part(op.name, path=op.path, size=_size(op.body))
        case Edit():
            yield Part(op.name, path=op.path, size=_edited(op.replacements))
        case Patch():
            for change in op.changes:
                size = _added(change)
                yield Part(op.name, path=change.path, size=size)
                if change.target is not None:
                    yield Part(op.name, path=change.target, size=size)
        case _:
            yield from _tree(op)


def _tree(op: Op[object]) -> Iterator[Part]:
    match op:
        case Push():
            yield Part(op.name, path=op.path, size=_size(op.body), below=True)
        case Apply() if op.paths:
            for path in op.paths:
                yield Part(op.name, path=path, below=True)
        case Apply() | Discard() | Restore():
            yield Part(op.name, below=True)
        case CallTool():
            yield Part(op.name, label=op.label)
        case Pull() | Search():
            yield Part(op.name, path=op.path, below=True)
        case Remove():
            yield Part(op.name, path=op.path, below=op.recursive)
        case _:
            yield Part(op.name, path=path_of(op))


def _whole(op: Spawn | Script, doubts: tuple[str, ...] = ()) -> Part:
    if isinstance(op, Script):
        return Part(op.name, doubts=doubts)
    return Part(op.name, label=op.label, path=op.cwd, doubts=doubts)


def _size(body: Body) -> float:
    return len(body) if isinstance(body, bytes) else math.inf


def _edited(replacements: tuple[Replacement, ...]) -> float:
    size = 0.0
    for each in replacements:
        if each.every and len(each.new) > len(each.old):
            return math.inf  # how often, only the file tells
        size += len(each.new)
    return size


def _added(change: FileChange) -> int:
    return sum(
        len(line.encode("utf-8", "surrogatepass"))
        for hunk in change.hunks
        for line in hunk.body
        if line.startswith("+")
    )


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
    moves = bool(found.writes) and _moves(text, found)
    for path in found.writes:
        yield _written(op, path, moves=moves)
    whole = _whole(op, found.doubts)
    if found.doubts or not found.commands:
        yield whole
    elif whole.path is not None:
        yield replace(whole, around=True)


def _written(op: Spawn | Script, path: str | None, *, moves: bool) -> Part:
    """Return what a redirection writes, from where the command begins."""
    label, cwd = (op.label, op.cwd) if isinstance(op, Spawn) else (None, None)
    if path is None or path.startswith("~"):
        return Part("write", label=label, unsure=True)
    unsure = not path.startswith("/") and (moves or cwd is None)
    path = posixpath.normpath(path if cwd is None else posixpath.join(cwd, path))
    unsure = unsure or _PROCESS.match(path) is not None
    return Part("write", label=label, path=path, unsure=unsure)


def _moves(text: Text, found: Facts) -> bool:
    """Whether some of it may run in another directory than it begins in."""
    if any(each.program in _MOVING for each in found.commands):
        return True
    # Wrappers are not listed where all that they run is a redirection.
    words = text.script if text.script is not None else " ".join(text.argv)
    return _MOVED.search(words.translate(_QUOTES)) is not None


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
