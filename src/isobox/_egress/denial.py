"""The latest of what was refused."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from isobox._core.network import Denial

#: Denials that are remembered for the results of commands.
_MOST: Final = 256


class Denials:
    """What one workspace was refused of late."""

    def __init__(self) -> None:
        self._latest: deque[Denial] = deque(maxlen=_MOST)

    def add(self, host: str, port: int, rule: str, reason: str) -> None:
        """Remember that a connection was refused."""
        self._latest.append(Denial(host, port, rule, reason, time.monotonic()))

    def since(self, moment: float) -> tuple[Denial, ...]:
        """Return what was refused since a moment of `time.monotonic`, each once."""
        found = [denial for denial in self._latest if denial.when >= moment]
        return tuple(dict.fromkeys(found))
