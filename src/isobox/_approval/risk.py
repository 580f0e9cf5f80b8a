"""What could come of an operation, in one line for a person."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Final

from isobox._core.ops import (
    Apply,
    Attach,
    CallTool,
    Checkpoint,
    Connect,
    Dial,
    Discard,
    Edit,
    Listen,
    Patch,
    Push,
    Remove,
    Restore,
    Script,
    Spawn,
    Write,
)
from isobox._core.protected import rule_for
from isobox._policy.part import parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._core.ops import Op
    from isobox._policy.part import Part
    from isobox._policy.shell import Command

#: What programs do; a pattern of which one argument has it, where not all do.
_COMMANDS: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
    ("removes files", ("rm", "rmdir", "unlink", "shred"), ()),
    ("removes files", ("find",), ("-delete",)),
    ("removes files", ("git",), ("clean", "rm")),
    ("throws changes away", ("git",), ("checkout", "reset", "restore", "stash")),
    ("removes a branch", ("git",), ("-D", "--delete")),
    ("publishes", ("git", "docker", "podman", "buildah", "gem"), ("push",)),
    ("publishes", ("npm", "pnpm", "yarn", "bun", "cargo", "flit", "hatch",
                   "poetry", "uv", "gem", "dart"), ("publish",)),
    ("publishes", ("twine", "flit", "hatch"), ("upload",)),
    ("sends mail", ("git", "mail", "sendmail", "mutt"), ("send-email", "*@*")),
    ("acts in the user's name elsewhere", ("gh", "glab", "hub", "kubectl", "helm",
                                          "terraform", "tofu", "pulumi"), ()),
    ("ends processes", ("kill", "pkill", "killall"), ()),
    ("destroys a file system", ("wipefs", "mkfs", "mkfs.*", "dd"), ()),
)  # fmt: skip
_BY: Final = frozenset(("sudo", "su", "doas", "pkexec"))


def risk(op: Op[object], root: str) -> str:
    """Return what could come of an operation, in words of our own.

    Args:
        op: The operation.
        root: Absolute path inside of the workspace's directory.
    """
    return "; ".join(dict.fromkeys(_risks(op, root)))


def _risks(op: Op[object], root: str) -> Iterator[str]:
    match op:
        case Spawn() | Script():
            yield from _run(op, root)
        case Write() | Edit() | Patch() | Push() | Remove():
            yield from _changed(op, root)
        case Connect():
            yield "leaves the sandbox"
        case Listen():
            yield "opens a way from the sandbox to the host"
        case CallTool():
            where = "outside" if op.remote else "inside"
            yield f"asks an MCP server {where}, which may do whatever it can"
        case Dial() | Attach():
            yield "reaches a program inside"
        case Apply():
            yield "changes the directory on the host"
        case Restore() | Discard():
            yield "throws changes away"
        case Checkpoint():
            yield "lets the work go on"
        case _:
            yield "shows files of the workspace"


def _changed(op: Op[object], root: str) -> Iterator[str]:
    pieces = parts(op, commands=False)
    if any(_is_run_outside(part.path, root) for part in pieces):
        yield _OUTSIDE
    removes = isinstance(op, Patch) and any(
        change.kind == "delete" or change.target is not None for change in op.changes
    )
    yield "removes files" if removes or isinstance(op, Remove) else "changes files"


def _run(op: Spawn | Script, root: str) -> Iterator[str]:
    pieces = parts(op, commands=True)
    for part in pieces:
        yield from _part(part, root)
    if not any(each for part in pieces for each in _part(part, root)):
        yield "runs a command"


def _part(part: Part, root: str) -> Iterator[str]:
    if part.doubts:
        yield "cannot be understood"
    if part.command is not None:
        yield from _command(part.command)
    if part.op == "write" and _is_run_outside(part.path, root):
        yield _OUTSIDE


def _command(command: Command) -> Iterator[str]:
    if command.program is None:
        yield "cannot be understood"
        return
    if command.program in _BY or not _BY.isdisjoint(command.through):
        yield "runs with other rights"
    for words, programs, arguments in _COMMANDS:
        if any(fnmatch.fnmatchcase(command.program, each) for each in programs) and (
            not arguments
            or any(fnmatch.filter(command.arguments, each) for each in arguments)
        ):
            yield words


_OUTSIDE: Final = "changes what programs on the host run or obey"


def _is_run_outside(path: str | None, root: str) -> bool:
    if path is None:
        return False
    inside = path.removeprefix(root.rstrip("/") + "/")
    return rule_for(inside) is not None
