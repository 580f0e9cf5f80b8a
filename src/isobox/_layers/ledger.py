"""What a workspace has spent, and what is left of its budget."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, runtime_checkable

import anyio

from isobox._core.budget import Budget, Spent
from isobox._core.given import is_number
from isobox._core.ops import (
    Connect,
    Diff,
    Pull,
    Read,
    ReadLines,
    Scan,
    Script,
    Search,
    Spawn,
)
from isobox._core.results import (
    ByteStream,
    Changes,
    Connection,
    Edited,
    Listing,
    Matches,
    Ongoing,
    Page,
    Patched,
    Process,
)
from isobox._layers.metered import Metered, MeteredProcess
from isobox._layers.returned import size
from isobox.errors import (
    BudgetError,
    InvalidArgumentError,
    SandboxLostError,
    UnsupportedError,
    WorkspaceClosedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox._core.ops import Op
    from isobox._core.results import Usage

R = TypeVar("R")

#: Pieces in which a command tells of the output that it has left, and bytes of
#: one at most.
_STEPS: Final = 16
_LARGEST_STEP: Final = 1 << 20
#: Operations that change nothing, so that what they return can be held back.
_LOOKS: Final = (Read, ReadLines, Pull, Scan, Search, Diff)
#: Seconds between two looks at what nobody reports.
_PERIOD: Final = 0.5


@runtime_checkable
class _Traffic(Protocol):
    """A connection that counts its bytes."""

    bytes_in: int
    bytes_out: int


class Ledger:
    """Counts what is spent; refuses once it is too much.

    Args:
        budget: The most of each.
        usage: Says what the sandbox uses.
    """

    def __init__(self, budget: Budget, usage: Callable[[], Awaitable[Usage]]) -> None:
        self._account = _Account(budget)
        self._usage = usage
        self._cpu = 0.0

    def shared(self, usage: Callable[[], Awaitable[Usage]]) -> Ledger:
        """Return a ledger that draws on the same account, for another sandbox."""
        other = Ledger(self._account.budget, usage)
        other._account = self._account
        return other

    def begin(self) -> None:
        """Go on with a fresh sandbox, whose processor time begins at nothing."""
        account = self._account
        if account.began is None:
            account.began = time.monotonic()
        account.ledgers.add(self)
        self._cpu = 0.0

    def spent(self) -> Spent:
        """Return what was spent by now."""
        account = self._account
        began = time.monotonic() if account.began is None else account.began
        return replace(
            account.spent,
            seconds=time.monotonic() - began,
            egress=account.spent.egress
            + sum(each.bytes_in + each.bytes_out for each in account.open),
        )

    def spend(self, cost: float) -> None:
        """Count units that the program around the workspace gives.

        Raises:
            BudgetError: There are not as many left; they are counted all the same.
            InvalidArgumentError: It is no number from 0 on.
        """
        if not (is_number(cost) and math.isfinite(cost) and cost >= 0):
            raise InvalidArgumentError(f"cost={cost!r} is no number from 0 on")
        self._account.spent.cost += cost
        self.check()

    def check(self) -> None:
        """Return if nothing is spent.

        Raises:
            BudgetError: Something is; it says what.
        """
        spent = self.spent()
        for each in fields(Spent):
            most = getattr(self._account.budget, each.name)
            used = getattr(spent, each.name)
            if most is not None and used > most:
                raise _error(each.name, used, most)

    async def admit(self, op: Op[object]) -> None:
        """Count an operation that is about to happen.

        Raises:
            BudgetError: Something is spent; it must not happen.
            UnsupportedError: Nobody can tell whether it is.
        """
        if isinstance(op, Spawn | Script) and not await self.look():
            raise UnsupportedError(
                "budget.cpu: this backend cannot tell how much processor time its "
                "commands take; give `seconds` instead, or use bubblewrap"
            )
        try:
            self.check()
            self._count_one()
        except BudgetError as error:
            error.op = op.name
            self._account.refusal = error
            raise

    def _count_one(self) -> None:
        most, spent = self._account.budget.ops, self._account.spent
        if most is not None and spent.ops >= most:
            raise _error("ops", spent.ops, most)
        spent.ops += 1

    def metered(self, op: Spawn) -> Spawn:
        """Return a command whose captured output is told of while it arrives."""
        most = self._account.budget.output
        if most is None or op.capture is None:
            return op
        left = most - self._account.spent.output
        return replace(op, meter=max(1, min(_LARGEST_STEP, left // _STEPS)))

    def settled(self, op: Op[object], result: R) -> R:
        """Return what an operation brings, counted by now or while it arrives.

        Raises:
            BudgetError: It is more output than is left, and nothing but that.
        """
        match result:
            case Process():
                # A shell's output is counted here, not again with its scripts.
                return cast("R", MeteredProcess(result, self._printed))
            case Page() | Matches() | Listing() | Changes() | Edited() | Patched():
                self._returned(op, size(result))
            case Ongoing() if isinstance(op, Connect):
                self._count_traffic(result)
            # A port inside is neither output nor a host outside.
            case ByteStream() if not isinstance(result, Connection):
                return cast("R", Metered(result, partial(self._returned, op)))
            case _:
                pass
        return result

    def _returned(self, op: Op[object], count: int) -> None:
        """Count what an operation returns; refuse it if it is too much.

        What has changed something is told of all the same, and so is nothing.
        """
        error = self._printed(count)
        if error is not None and count and isinstance(op, _LOOKS):
            error.op = op.name
            raise error

    def _count_traffic(self, result: Ongoing) -> None:
        if isinstance(result, _Traffic):
            self._account.open.add(result)

        def ended(end: dict[str, object]) -> None:
            if isinstance(result, _Traffic):
                self._account.open.discard(result)
            self._account.spent.egress += _sum(end, ("bytes_in", "bytes_out"))

        result.on_end(ended)

    def _printed(self, count: int) -> BudgetError | None:
        """Count output; return why what brings it must be stopped, if it must."""
        self._account.spent.output += count
        most, used = self._account.budget.output, self._account.spent.output
        if most is None or used <= most:
            return None
        return _error("output", used, most)

    async def look(self) -> bool:
        """Look at what nobody reports; whether the backend tells what has a budget."""
        if self._account.budget.cpu is None:
            return True
        for other in self._account.ledgers - {self}:
            await other._look()
        return await self._look()

    async def _look(self) -> bool:
        try:
            used = (await self._usage()).cpu
        except (SandboxLostError, WorkspaceClosedError):
            # What a sandbox that is gone had used was counted before.
            self._account.ledgers.discard(self)
            return True
        if used is None:
            return False
        self._account.spent.cpu += max(0.0, used - self._cpu)
        self._cpu = max(used, self._cpu)
        return True

    async def exhausted(self) -> BudgetError:
        """Wait until something is spent; return what."""
        while True:
            await self.look()
            try:
                self.check()
            except BudgetError as error:
                return error
            if self._account.refusal is not None:
                return self._account.refusal
            await anyio.sleep(_PERIOD)


@dataclass(eq=False)
class _Account:
    """What is spent together: by a workspace and by its forks."""

    budget: Budget
    spent: Spent = field(default_factory=Spent)
    began: float | None = None
    open: set[_Traffic] = field(default_factory=set[_Traffic])
    refusal: BudgetError | None = None
    ledgers: set[Ledger] = field(default_factory=set[Ledger])


def _error(name: str, used: float, most: float) -> BudgetError:
    return BudgetError(
        f"the workspace has spent {round(used, 3)} {_UNITS[name]} of {most} "
        f"(budget.{name})",
        budget=name,
    )


def _sum(end: dict[str, object], names: tuple[str, ...]) -> int:
    found = (end.get(name) for name in names)
    return sum(number for number in found if isinstance(number, int))


_UNITS: Final = {
    "ops": "operations",
    "seconds": "seconds",
    "cpu": "seconds of processor time",
    "output": "bytes of output",
    "egress": "bytes of traffic",
    "cost": "units",
}
