"""A clock that moves when the test says so."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from typing_extensions import override

from isobox.manager.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["VirtualClock"]


class VirtualClock(Clock):
    """A manager's clock in virtual time.

    Args:
        now: Seconds since the epoch at which it begins.
    """

    def __init__(self, now: float = 1_000_000_000.0) -> None:
        self._began = now
        self._passed = 0.0
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, _Timer]] = []

    @override
    def time(self) -> float:
        return self._began + self._passed

    @override
    def monotonic(self) -> float:
        return self._passed

    @override
    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(callback)
        due = self._passed + max(seconds, 0.0)
        heapq.heappush(self._timers, (due, next(self._numbers), timer))
        return timer

    @property
    def next(self) -> float | None:
        """Seconds until something is due; None if nothing is."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] - self._passed if self._timers else None

    def advance(self, seconds: float) -> None:
        """Let time pass; what is due happens in its order."""
        until = self._passed + seconds
        while (wait := self.next) is not None and self._passed + wait <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._passed = max(self._passed, due)
            timer.fire()
        self._passed = until


class _Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()
