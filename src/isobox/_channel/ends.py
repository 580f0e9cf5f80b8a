"""Which limit a command ran into, as its host can tell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobox._core.ops import Spawn
    from isobox._core.results import Exit


@dataclass(frozen=True, slots=True)
class Tally:
    """How often each limit of a sandbox has struck so far."""

    memory: int = 0
    processes: int = 0
    disk: int = 0


def explained(op: Spawn, before: Tally, after: Tally, end: Exit) -> Exit:
    """Return how a command ended, with the limit that it ran into.

    Args:
        op: The command.
        before: The tally when it started.
        after: The tally when it ended.
        end: What the guest says of its end.
    """
    if end.exit_code == 0 and not end.timed_out:
        return end
    limit = _struck(before, after) or _by_signal(op, end)
    killed = end.exit_code == 137 and not end.timed_out
    return replace(end, limit=limit, oom_killed=limit == "memory" and killed)


def _struck(before: Tally, after: Tally) -> str | None:
    if after.disk > before.disk:
        return "disk"
    if after.memory > before.memory:
        return "memory"
    return "processes" if after.processes > before.processes else None


def _by_signal(op: Spawn, end: Exit) -> str | None:
    if end.exit_code == 153:
        return "file_size"
    if end.exit_code == 152:
        return "cpu"
    allowed = op.limits.get("cpu")
    # The kernel kills at once where the soft limit is the hard one.
    overdrawn = allowed is not None and end.duration >= allowed
    return "cpu" if overdrawn and end.exit_code == 137 and not end.timed_out else None
