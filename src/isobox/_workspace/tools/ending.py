"""How a command ended, in words."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from isobox._core.results import signal_name

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


def refused(denials: Sequence[Denial]) -> str:
    """Return what the network filter refused, and what a model can do about it."""
    shown = "; ".join(map(str, denials[:_MOST]))
    more = f"; and {len(denials) - _MOST} more" if len(denials) > _MOST else ""
    return (
        f"the network filter refused {shown}{more}. If the task needs it, say what "
        "for, and the user can allow it"
    )
