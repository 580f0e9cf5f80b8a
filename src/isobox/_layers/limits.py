"""Puts the workspace's limits on each operation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from isobox._core.ops import Spawn
from isobox.errors import LimitError

if TYPE_CHECKING:
    from isobox._core.ops import Op
    from isobox._core.spec import Limits
    from isobox._core.stack import Perform
    from isobox._layers.ledger import Ledger

R = TypeVar("R")


class Limited:
    """Fills in a command's limits, and refuses what is beyond them.

    Args:
        limits: The workspace's limits.
        ledger: What it may spend; None is without end.
    """

    def __init__(self, limits: Limits, ledger: Ledger | None = None) -> None:
        self._limits = limits
        self._ledger = ledger
        if ledger is not None:
            ledger.begin()

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        if isinstance(op, Spawn):
            # Bounding a Spawn gives a Spawn, which is an Op of the same result.
            op = cast("Op[R]", self._bounded(op))
        if self._ledger is None:
            return await inner(op)
        await self._ledger.admit(op)
        return self._ledger.settled(op, await inner(op))

    def _bounded(self, op: Spawn) -> Spawn:
        if op.report:
            return op  # a shell lives on; each of its scripts is bounded
        if self._ledger is not None:
            op = self._ledger.metered(op)
        timeout = bounded(self._limits, op.timeout)
        return op if timeout == op.timeout else replace(op, timeout=timeout)


def bounded(limits: Limits, timeout: float | None) -> float | None:
    """Return the seconds that a command may take, under a workspace's limits.

    Raises:
        LimitError: It asks for more than may be asked.
    """
    if timeout is None:
        timeout = limits.timeout
    if timeout is None or limits.max_timeout is None:
        return limits.max_timeout if timeout is None else timeout
    if timeout > limits.max_timeout:
        raise LimitError(
            f"timeout={timeout:g} is over the workspace's {limits.max_timeout:g} s; "
            "ask for less",
            op="spawn",
        )
    return timeout
