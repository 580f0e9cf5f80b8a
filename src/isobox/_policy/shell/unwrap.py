"""Takes off what wraps a command, one wrapper at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isobox._policy.shell import builtins, git, interpreters, programs
from isobox._policy.shell.wrappers import WRAPPERS, peel

if TYPE_CHECKING:
    from isobox._policy.shell.reading import Call, Reading


def unwrap(call: Call, reading: Reading) -> Call | None:
    """Note a command, or return what it runs in its place."""
    if not call.words:
        return None
    name = call.name
    if name in WRAPPERS:
        inner = peel(call, reading)
        if inner is None:
            reading.command(call)
        return inner
    if name in interpreters.SHELLS:
        if not interpreters.shell(call, reading):
            reading.command(call)
        return None
    reading.command(call)
    if name is not None:
        _examine(name, call, reading)
    return None


def _examine(name: str, call: Call, reading: Reading) -> None:
    if name in builtins.EXAMINED:
        builtins.EXAMINED[name](call, reading)
    elif name == "git":
        git.examine(call, reading)
    elif interpreters.examines(name):
        interpreters.examine(call, reading)
    else:
        programs.examine(name, call, reading)
