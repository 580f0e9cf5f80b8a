"""What the parts of one manager share."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from isobox._channel.background import Background

if TYPE_CHECKING:
    from isobox._channel.background import Job
    from isobox.manager.clock import Clock
    from isobox.manager.entry import Entries
    from isobox.manager.events import Events
    from isobox.manager.holder import Holder
    from isobox.manager.making import Making
    from isobox.manager.places import Places
    from isobox.manager.store import Store
    from isobox.manager.turns import Turns

_log = logging.getLogger("isobox.manager")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a manager was told, checked; seconds and numbers.

    Attributes:
        ttl: Idle time after which a workspace is closed.
        retention: Time after its closing until it is deleted; None is never.
        max_live: Workspaces that may be open in all.
        max_live_per_user: Those of one user.
        queue_timeout: How long a request waits for a place or another process.
        prewarm: Spares that are kept.
        evict_after: Idle time after which one may be closed to make room.
        handover_after: Idle time after which one goes to another process.
        sweep_interval: Time between two sweeps.
        heartbeat: Time between two beats.
        holder_timeout: Time after its beat for which a holder lives.
    """

    ttl: float
    retention: float | None
    max_live: int | None
    max_live_per_user: int | None
    queue_timeout: float
    prewarm: int
    evict_after: float
    handover_after: float
    sweep_interval: float
    heartbeat: float
    holder_timeout: float


@dataclass(slots=True, kw_only=True)
class Site:
    """What the parts of one manager share.

    Attributes:
        jobs: What runs for the manager, not for who asked.
        ending: Whether the manager closes.
    """

    settings: Settings
    clock: Clock
    store: Store
    places: Places
    making: Making
    events: Events
    entries: Entries
    turns: Turns
    holder: Holder
    jobs: Background = field(default_factory=Background)
    ending: bool = False

    def start(self, job: Job) -> None:
        """Run a job for the manager; one that fails takes nothing else with it."""
        self.jobs.start(partial(_guarded, job))


async def _guarded(job: Job) -> None:
    try:
        await job()
    except Exception:  # noqa: BLE001 - the others go on
        _log.exception("a manager's job failed")
