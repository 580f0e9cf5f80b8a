"""What is put on record at a bounded pace, and counted beyond it."""

from __future__ import annotations

import time
from typing import Final

#: Records that may come at once, and those that may follow in each second: to be
#: refused costs a program nothing, and the log is not to be flooded.
_AT_ONCE: Final = 256
_PER_SECOND: Final = 50.0


class Pace:
    """So many records at once, and so many in each second after that.

    Attributes:
        missed: What was passed over since `take_missed`.
    """

    def __init__(
        self, *, at_once: int = _AT_ONCE, per_second: float = _PER_SECOND
    ) -> None:
        self._most = at_once
        self._per_second = per_second
        self._left = float(at_once)
        self._since = time.monotonic()
        self.missed = 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is to be put on record just now."""
        return self._now() < 1

    @property
    def due(self) -> float:
        """Seconds until one more may be put on record."""
        return max(1 - self._now(), 0.0) / self._per_second

    def _now(self) -> float:
        now = time.monotonic()
        gained = (now - self._since) * self._per_second
        self._left, self._since = min(self._left + gained, self._most), now
        return self._left

    def spend(self) -> None:
        """Count a record."""
        self._left -= 1

    def take_missed(self) -> int:
        """Return how many were passed over, once."""
        missed, self.missed = self.missed, 0
        return missed
