"""How a command ended, in words."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from isobox._core.results import signal_name
from isobox._workspace.tools.wording import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._core.network import Denial
    from isobox._core.results import Exit, RunResult

#: Refused connections that a model is told of.
_MOST: Final = 8


def ending(end: Exit | RunResult) -> str:
    """Return how a command ended: its exit code always, and a signal's name."""
    code = end.exit_code
    said = f"exit code {code}"
    if end.timed_out:
        return f"killed, with all that it started, for it ran out of time; {said}"
    if end.oom_killed:
        return f"killed for want of memory; {said}"
    if end.limit is not None:
        return f"{said}; it failed at the limit of {end.limit.replace('_', ' ')}"
    if end.signal is not None:
        return f"killed by {end.signal}; {said}"
    if code == 127:
        return f"{said}: a program was not found"
    if _names_signal(code):
        return f"{said}: 128 + {code - 128}, {signal_name(code - 128)}"
    return said


def _names_signal(code: int) -> bool:
    return code - 128 in set(signal.Signals)


def network(denials: Sequence[Denial]) -> tuple[str, ...]:
    """Return notes on what of the network was refused, and on what failed."""
    refused = [each for each in denials if each.kind != "unreachable"]
    failed = [each for each in denials if each.kind == "unreachable"]
    notes: list[str] = []
    if refused:
        notes.append(
            f"the network filter refused {_listed(refused)}. If the task needs it, "
            "say what for, and the user can allow it"
        )
    if failed:
        notes.append(f"allowed, but not reached: {_listed(failed)}")
    return tuple(map(note, notes))


def _listed(denials: Sequence[Denial]) -> str:
    shown = "; ".join(map(str, denials[:_MOST]))
    more = f"; and {len(denials) - _MOST} more" if len(denials) > _MOST else ""
    return shown + more
