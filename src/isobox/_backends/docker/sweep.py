"""What dead hosts have left on the engine, found by its labels."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import re
import time
from typing import TYPE_CHECKING, Final

from isobox._backends.docker import labels
from isobox._backends.docker.engine import EngineError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from isobox._backends.docker.engine import Answer, Engine

_ANONYMOUS: Final = f"{labels.ANONYMOUS}=1"
#: Seconds after which one that never started has been left by its host.
_STALE: Final = 120.0
#: The longest number of seconds since 1970 that is read.
_DIGITS: Final = 15
_ENDED: Final = ("created", "dead", "exited", "stopped")
_SECONDS: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(.*)")


async def sweep(engine: Engine) -> None:
    """Remove what anonymous workspaces have left whose hosts died.

    These are ended containers, those that images were being made in for longer than
    that may take, and volumes and images that no container has.
    Named ones stay: somebody may come back to their files.
    """
    containers, makers, volumes, images = await asyncio.gather(
        engine.containers(label=[_ANONYMOUS]),
        engine.containers(label=[labels.UNTIL]),
        engine.volumes(label=[_ANONYMOUS], dangling=["true"]),
        engine.images(label=[_ANONYMOUS]),
    )
    # Chosen here: engines do not have the same words to ask for.
    for found in (each for each in containers if each.get("State") in _ENDED):
        if found.get("State") != "created" or _stale(found.get("Created")):
            await _tried(engine.remove(str(found.get("Id", ""))))
            name = labels.volume(labels.of(found).get(labels.WORKSPACE, ""))
            await _tried(engine.remove_volume(name))
    for maker in filter(_is_over, makers):
        await _tried(engine.remove(str(maker.get("Id", ""))))
    for volume in volumes:
        if _stale(_moment(str(volume.get("CreatedAt", "")))):
            await _tried(engine.remove_volume(str(volume.get("Name", ""))))
    for image in images:
        if _stale(image.get("Created")):
            await _tried(engine.remove_image(str(image.get("Id", ""))))


async def _tried(call: Awaitable[object]) -> None:
    # Another host may sweep at the same moment, and some may be in use again.
    with contextlib.suppress(EngineError):
        await call


def _is_over(found: Answer) -> bool:
    """Whether a container says that nobody needs it any more."""
    until = labels.of(found).get(labels.UNTIL, "")
    plain = until.isascii() and until.isdigit() and len(until) <= _DIGITS
    return plain and time.time() > int(until) + _STALE


def _stale(created: object) -> bool:
    return isinstance(created, int | float) and time.time() - created >= _STALE


def _moment(created: str) -> float | None:
    """Return the moment that the engine's words name; None if they name none."""
    parts = _SECONDS.fullmatch(created)
    if parts is None:
        return None
    try:
        zone = parts[2].replace("Z", "+00:00") or "+00:00"
        return dt.datetime.fromisoformat(parts[1] + zone).timestamp()
    except ValueError:
        return None
