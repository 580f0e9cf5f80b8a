"""What happens to workspaces, for logs and metrics."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobox.manager.clock import Clock
    from isobox.manager.records import Tenant

_log = logging.getLogger("isobox.manager")


class Kind(StrEnum):
    """What happened."""

    CREATED = "created"
    """One was made that there was not."""
    ATTACHED = "attached"
    """One was opened that there was: closed, of a dead process, or shared."""
    RECOVERED = "recovered"
    """One whose sandbox was lost has another, with the same files."""
    REAPED = "reaped"
    """One was closed because nobody used it."""
    EVICTED = "evicted"
    """One was closed to make room."""
    HANDED_OVER = "handed_over"
    """One was closed for another process that waits for it."""
    CLOSED = "closed"
    """One was closed because somebody said so."""
    DELETED = "deleted"
    """One was removed with its files."""
    LOST = "lost"
    """This process had not kept it: another may have it now."""
    WAITED = "waited"
    """One waited for its turn to be made."""
    DENIED = "denied"
    """One was not given: no place, held elsewhere, or not the caller's."""
    FAILED = "failed"
    """One could not be made, or not be closed well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a workspace.

    Attributes:
        kind: What.
        workspace_id: To which; None if it has no name yet.
        tenant: Whose it is; None if it is nobody's, or none.
        at: Seconds since the epoch.
        seconds: How long it took, of what takes time.
        reason: Why, in words.
    """

    kind: Kind
    workspace_id: str | None
    tenant: Tenant | None
    at: float
    seconds: float | None = None
    reason: str = ""


OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a manager has, in this process.

    Attributes:
        live: Workspaces that are open, spares not counted.
        leased: Those of them that somebody holds a lease of.
        spares: Workspaces that are open and nobody's.
        waiting: Workspaces that wait for their turn or for another process.
        making: Workspaces that are being made.
        counters: How often each kind of event happened.
    """

    live: int
    leased: int
    spares: int
    waiting: int
    making: int
    counters: Mapping[str, int] = field(default_factory=dict[str, int])


class Events:
    """Counts events and tells of them.

    Args:
        clock: What tells their time.
        on_event: What is told; nobody if None. What it raises is logged.
    """

    def __init__(self, clock: Clock, on_event: OnEvent | None = None) -> None:
        self._clock = clock
        self._on_event = on_event
        self.counters: Counter[str] = Counter()

    def emit(
        self,
        kind: Kind,
        workspace_id: str | None,
        tenant: Tenant | None,
        *,
        seconds: float | None = None,
        reason: str = "",
    ) -> None:
        """Count an event and tell of it."""
        self.counters[kind.value] += 1
        if self._on_event is None:
            return
        event = Event(
            kind=kind,
            workspace_id=workspace_id,
            tenant=tenant,
            at=self._clock.time(),
            seconds=seconds,
            reason=reason,
        )
        try:
            self._on_event(event)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001
            # Telling breaks nothing. Nobody has cancelled this: a result that it
            # looks at was.
            _log.exception("on_event failed for %s of %s", kind.value, workspace_id)
