"""What dead hosts have left on the engine, found by its labels."""

from __future__ import annotations

import asyncio
import datetime
import re
import time
from typing import TYPE_CHECKING, Final

from isobox._backends.docker import labels
from isobox._backends.docker.engine import EngineError

if TYPE_CHECKING:
    from isobox._backends.docker.engine import Engine

_ANONYMOUS: Final = f"{labels.ANONYMOUS}=1"
#: Seconds after which one that never started has been left by its host.
_STALE: Final = 120.0
_SECONDS: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(.*)")


async def sweep(engine: Engine) -> None:
    """Remove anonymous workspaces' ended containers, and volumes without one.

    Named ones stay: somebody may come back to their files.
    """
    ended, unused = await asyncio.gather(
        engine.containers(label=[_ANONYMOUS], status=["exited", "dead", "created"]),
        engine.volumes(label=[_ANONYMOUS], dangling=["true"]),
    )
    for found in ended:
        waits = found.get("State") == "created"
        if not (waits and time.time() - float(found.get("Created") or 0) < _STALE):
            await _without_complaint(engine.remove(str(found.get("Id", ""))))
            name = labels.volume(labels.of(found).get(labels.WORKSPACE, ""))
            await _without_complaint(engine.remove_volume(name))
    for volume in unused:
        if _age(str(volume.get("CreatedAt", ""))) >= _STALE:
            await _without_complaint(engine.remove_volume(str(volume.get("Name", ""))))


async def _without_complaint(call: object) -> None:
    # Another host may sweep at the same moment.
    try:
        await call  # type: ignore[misc]
    except EngineError:
        return


def _age(created: str) -> float:
    """Return seconds since a moment in the engine's words; 0 if it is none."""
    parts = _SECONDS.fullmatch(created)
    try:
        whole = "" if parts is None else parts[1] + (parts[2] or "Z")
        then = datetime.datetime.fromisoformat(whole.replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    return time.time() - then.timestamp()
