"""How a command ended, in words."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from isobox._core.results import signal_name

if TYPE_CHECKING:
    from isobox._core.results import Exit, RunResult


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
