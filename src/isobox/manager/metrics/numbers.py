"""What is counted, timed and shown, by whatever name a format gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from isobox.manager.events import Kind

if TYPE_CHECKING:
    from isobox.manager.events import Stats

#: What opens a workspace, and says how long that took.
STARTS: Final = frozenset({Kind.CREATED, Kind.ATTACHED, Kind.RECOVERED})

#: Bounds of what is timed, in seconds: a spare's claim to a slow image's start.
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

#: Fields of Stats, and what they are.
GAUGES: Final = {
    "live": "Workspaces that are open, spares not counted.",
    "leased": "Open workspaces of which somebody holds a lease.",
    "spares": "Workspaces that are open and nobody's yet.",
    "making": "Workspaces that are being made.",
    "waiting": "Workspaces that wait for a turn or for another process.",
}


class Watched(Protocol):
    """What has numbers: a manager."""

    def stats(self) -> Stats:
        """Return the numbers of now."""
        ...


class Sums:
    """The numbers of several managers together."""

    def __init__(self) -> None:
        self._watched: list[Watched] = []

    def add(self, manager: Watched) -> None:
        """Add a manager's numbers from now on; again is nothing."""
        if manager not in self._watched:
            self._watched.append(manager)

    def of(self, field: str) -> int:
        """Return the sum of a field of Stats."""
        return sum(int(getattr(each.stats(), field)) for each in self._watched)
