"""What goes on in a workspace: whether it is in use, and when it last was."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from isobox._core.ops import Dial, Listen, Spawn
from isobox._core.results import Ongoing

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._core.ops import Op
    from isobox._core.stack import Perform

R = TypeVar("R")


class Activity:
    """A layer that counts what goes on: operations, and commands until they end.

    A persistent shell and an MCP server that wait for work are no use, nor is a
    connection or a port that is open: what is done with them is.

    Attributes:
        used: When something last began or ended, by its clock.
    """

    def __init__(self) -> None:
        self._going = _Going()
        self.go_by(time.monotonic)

    def go_by(self, clock: Callable[[], float]) -> None:
        """Take the time from a clock, by which it is used now."""
        self._clock = clock
        self.used = clock()

    @property
    def in_use(self) -> bool:
        """Whether something goes on."""
        return self._going.count > 0

    def begin_anew(self) -> None:
        """Count from nothing: what went on ended with its sandbox."""
        self._going = _Going()

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        going = self._going
        going.count += 1
        self.used = self._clock()
        try:
            result = await inner(op)
        except BaseException:
            self._ended(going)
            raise
        if isinstance(result, Ongoing) and not _waits(op):
            result.on_end(lambda _: self._ended(going))
        else:
            self._ended(going)
        return result

    def _ended(self, going: _Going) -> None:
        going.count -= 1
        self.used = self._clock()


class _Going:
    """What goes on in one sandbox."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def _waits(op: Op[R]) -> bool:
    if isinstance(op, Spawn):
        return op.report or op.declared
    return isinstance(op, Dial | Listen)
