"""The latest of what was refused."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

from isobox._core.network import Denial

#: Denials that are remembered for the results of commands.
_MOST: Final = 256


class Denials:
    """What one workspace was refused of late."""

    def __init__(self) -> None:
        self._latest: OrderedDict[Denial, None] = OrderedDict()

    def add(self, host: str, port: int, rule: str, reason: str) -> None:
        """Remember that a connection was refused."""
        denial = Denial(host, port, rule, reason, time.monotonic())
        # What is refused again and again must not push out the rest.
        self._latest.pop(denial, None)
        self._latest[denial] = None
        if len(self._latest) > _MOST:
            self._latest.popitem(last=False)

    def since(self, moment: float) -> tuple[Denial, ...]:
        """Return what was refused since a moment of `time.monotonic`, each once."""
        return tuple(denial for denial in self._latest if denial.when >= moment)
