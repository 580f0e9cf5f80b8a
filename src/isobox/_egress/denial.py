"""The latest of what was refused, or failed."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from isobox._core.network import Denial
from isobox._egress.sources import SecretError
from isobox.errors import LimitError, PolicyDeniedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from isobox.errors import IsoboxError

#: Denials that are remembered for the results of commands.
_MOST: Final = 256


class Denials:
    """What one workspace was refused of late, and what failed."""

    def __init__(self) -> None:
        self._latest: OrderedDict[Denial, None] = OrderedDict()
        self._open: Counter[Denial] = Counter()

    def add(self, denial: Denial) -> None:
        """Remember what was refused just now."""
        denial = replace(denial, when=time.monotonic())
        # What is refused again and again must not push out the rest.
        self._latest.pop(denial, None)
        self._latest[denial] = None
        if len(self._latest) > _MOST:
            self._latest.popitem(last=False)

    @contextlib.contextmanager
    def unanswered(self, denial: Denial) -> Generator[Callable[[], None]]:
        """Count something as refused while nobody has answered whether it may be.

        Yields a function to be called once somebody has.
        """
        answered = False

        def answer() -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._open[denial] -= 1
                self._open += Counter()  # without what is at nothing

        self._open[denial] += 1
        try:
            yield answer
        finally:
            answer()

    def since(self, moment: float) -> tuple[Denial, ...]:
        """Return what was refused since a moment of `time.monotonic`, each once.

        What waits for an answer comes last, whenever that began.
        """
        latest = (denial for denial in self._latest if denial.when >= moment)
        return (*latest, *self._open)


def denial_of(error: IsoboxError, host: str, port: int) -> Denial | None:
    """Return what an error means for whoever wanted to connect; None for nothing."""
    if isinstance(error, PolicyDeniedError):
        return Denial(host, port, error.rule, error.reason)
    if isinstance(error, LimitError):
        return Denial(host, port, "limit", str(error))
    if isinstance(error, (SecretError, UnreachableError)):
        return Denial(host, port, "unreachable", str(error), kind="unreachable")
    return None
