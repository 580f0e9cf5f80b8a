"""Takes off what wraps a command, one wrapper at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isobox._policy.shell import (
    builtins,
    git,
    interpreters,
    launchers,
    naming,
    programs,
)
from isobox._policy.shell.wrapper_table import WRAPPERS
from isobox._policy.shell.wrappers import peel

if TYPE_CHECKING:
    from isobox._policy.shell.reading import Call, Reading


def unwrap(call: Call, reading: Reading) -> Call | None:
    """Note a command, or return what it runs in its place."""
    if not call.words:
        return None
    if call.name is None:
        reading.command(call)
        return None
    kind = call.kind
    if kind in WRAPPERS:
        inner = peel(call, reading)
        if inner is None:
            reading.command(call)
        return inner
    if kind in interpreters.SHELLS:
        if not interpreters.shell(call, reading):
            reading.command(call)
        return None
    reading.command(call)
    _examine(kind, call, reading)
    return None


def _examine(kind: str, call: Call, reading: Reading) -> None:
    name = call.name or ""
    if name in builtins.EXAMINED:
        builtins.EXAMINED[name](call, reading)
    elif kind == "git":
        git.examine(call, reading)
    elif name.startswith("git-"):
        git.examine_part(call, reading)
    elif interpreters.examines(kind):
        interpreters.examine(call, reading)
    elif not naming.is_known(name):
        _unknown(call, reading)
    else:
        programs.examine(kind, call, reading)
        if kind in launchers.LAUNCHERS:
            launchers.launch(call, reading)


def _unknown(call: Call, reading: Reading) -> None:
    found = naming.hands_on(call.arguments)
    if found is not None:
        reading.doubt(f"{call.name} may run another program: {found.text}")
