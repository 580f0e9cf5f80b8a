"""What a workspace has spent, and what is left of its budget."""

from __future__ import annotations

import contextlib
import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

import anyio

from isobox._core.budget import Budget, Spent
from isobox._core.ops import Connect, Script, Spawn
from isobox._core.results import Ongoing
from isobox.errors import BudgetError, SandboxLostError, WorkspaceClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox._core.ops import Op
    from isobox._core.results import Usage

#: Seconds between two looks at what nobody reports.
_PERIOD: Final = 0.5
#: Facts of an end that are bytes of output, and of traffic.
_OUTPUT: Final = ("bytes", "stdout_bytes", "stderr_bytes")
_EGRESS: Final = ("bytes_in", "bytes_out")


class Ledger:
    """Counts what is spent; refuses once it is too much.

    Args:
        budget: The most of each.
        usage: Says what the sandbox uses.
    """

    def __init__(self, budget: Budget, usage: Callable[[], Awaitable[Usage]]) -> None:
        self._budget = budget
        self._usage = usage
        self._began = time.monotonic()
        self._spent = Spent()

    def spent(self) -> Spent:
        """Return what was spent by now."""
        return replace(self._spent, seconds=time.monotonic() - self._began)

    def spend(self, cost: float) -> None:
        """Count units that the program around the workspace gives.

        Raises:
            BudgetError: There are not as many left; they are counted all the same.
        """
        self._spent.cost += cost
        self.check()

    def check(self) -> None:
        """Return if nothing is spent.

        Raises:
            BudgetError: Something is; it says what.
        """
        spent = self.spent()
        for each in fields(Spent):
            most, used = getattr(self._budget, each.name), getattr(spent, each.name)
            if most is not None and used > most:
                raise BudgetError(
                    f"the workspace has spent {used:g} {_UNITS[each.name]} of {most:g} "
                    f"(budget.{each.name})",
                    budget=each.name,
                )

    async def admit(self, op: Op[object]) -> None:
        """Count an operation that is about to happen.

        Raises:
            BudgetError: Something is spent; it must not happen.
        """
        if isinstance(op, Spawn | Script):
            await self.look()
        self._spent.ops += 1
        try:
            self.check()
        except BudgetError as error:
            error.op = op.name
            raise

    def settle(self, op: Op[object], result: object) -> None:
        """Count what an operation brings, when it ends."""
        # A shell's own output is counted with each of its scripts.
        if isinstance(op, Spawn) and op.report:
            return
        if isinstance(result, Ongoing):
            names = _EGRESS if isinstance(op, Connect) else _OUTPUT
            result.on_end(lambda facts: self._add(names, facts))

    def _add(self, names: tuple[str, ...], facts: dict[str, object]) -> None:
        found = [facts.get(name) for name in names]
        total = sum(number for number in found if isinstance(number, int))
        if names is _EGRESS:
            self._spent.egress += total
        else:
            self._spent.output += total

    async def look(self) -> None:
        """Look at what nobody reports: the processor time."""
        if self._budget.cpu is None:
            return
        # What a sandbox that is gone had used was counted before.
        with contextlib.suppress(SandboxLostError, WorkspaceClosedError):
            used = (await self._usage()).cpu or 0.0
            self._spent.cpu = max(self._spent.cpu, used)

    async def exhausted(self) -> BudgetError:
        """Wait until something is spent; return what."""
        while True:
            await self.look()
            try:
                self.check()
            except BudgetError as error:
                return error
            await anyio.sleep(_PERIOD)


_UNITS: Final = {
    "ops": "operations",
    "seconds": "seconds",
    "cpu": "seconds of processor time",
    "output": "bytes of output",
    "egress": "bytes of traffic",
    "cost": "units",
}
