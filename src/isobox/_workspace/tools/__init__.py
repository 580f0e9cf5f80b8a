"""The tools that a model works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isobox._workspace.tools.bash import Bash
from isobox._workspace.tools.edit import Edit
from isobox._workspace.tools.glob import Glob
from isobox._workspace.tools.grep import Grep
from isobox._workspace.tools.jobs import BashInput, BashKill, BashOutput
from isobox._workspace.tools.patch import ApplyPatch
from isobox._workspace.tools.read import Read
from isobox._workspace.tools.write import Write

if TYPE_CHECKING:
    from isobox._workspace.tools.session import Session
    from isobox._workspace.tools.tool import Tool


def tools_of(session: Session) -> list[Tool]:
    """Return the tools of a session, those that every agent needs first."""
    return [
        Bash(session),
        Read(session),
        Write(session),
        Edit(session),
        Glob(session),
        Grep(session),
        BashOutput(session),
        BashInput(session),
        BashKill(session),
        ApplyPatch(session),
    ]
