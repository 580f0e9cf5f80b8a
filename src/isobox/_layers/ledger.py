"""What a workspace has spent, and what is left of its budget."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, runtime_checkable

import anyio

from isobox._core.budget import Budget, Spent
from isobox._core.ops import Connect, Script, Spawn
from isobox._core.results import ByteStream, Connection, Matches, Ongoing, Page, Process
from isobox._layers.metered import Metered
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
        self._budget = budget
        self._usage = usage
        self._began: float | None = None
        self._spent = Spent()
        self._cpu_before = 0.0
        self._open: set[_Traffic] = set()
        self._refusal: BudgetError | None = None

    def begin(self) -> None:
        """Go on with a fresh sandbox, whose processor time begins at nothing."""
        if self._began is None:
            self._began = time.monotonic()
        self._cpu_before = self._spent.cpu

    def spent(self) -> Spent:
        """Return what was spent by now."""
        began = time.monotonic() if self._began is None else self._began
        return replace(
            self._spent,
            seconds=time.monotonic() - began,
            egress=self._spent.egress
            + sum(each.bytes_in + each.bytes_out for each in self._open),
        )

    def spend(self, cost: float) -> None:
        """Count units that the program around the workspace gives.

        Raises:
            BudgetError: There are not as many left; they are counted all the same.
            InvalidArgumentError: It is no number from 0 on.
        """
        if not (math.isfinite(cost) and cost >= 0):
            raise InvalidArgumentError(f"cost={cost!r} is no number from 0 on")
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
            self._refusal = error
            raise

    def _count_one(self) -> None:
        most = self._budget.ops
        if most is not None and self._spent.ops >= most:
            raise _error("ops", self._spent.ops, most)
        self._spent.ops += 1

    def settled(self, op: Op[object], result: R) -> R:
        """Return what an operation brings, counted by now or while it arrives."""
        match result:
            case Process():
                self._count_process(cast("Spawn", op), result)
            case Page() | Matches():
                self._print(_size(result))
            case Ongoing() if isinstance(op, Connect):
                self._count_traffic(result)
            # A port inside is neither output nor a host outside.
            case ByteStream() if not isinstance(result, Connection):
                return cast("R", Metered(result, self._print))
            case _:
                pass
        return result

    def _count_process(self, op: Spawn, process: Process) -> None:
        # A shell's output is counted here, and not again with each of its scripts.
        if op.capture is None:
            process.stdout = Metered(process.stdout, self._print)
            process.stderr = Metered(process.stderr, self._print)
        else:
            names = ("stdout_bytes", "stderr_bytes")
            process.on_end(lambda end: self._print(_sum(end, names)))

    def _count_traffic(self, result: Ongoing) -> None:
        if isinstance(result, _Traffic):
            self._open.add(result)

        def ended(end: dict[str, object]) -> None:
            if isinstance(result, _Traffic):
                self._open.discard(result)
            self._spent.egress += _sum(end, ("bytes_in", "bytes_out"))

        result.on_end(ended)

    def _print(self, count: int) -> None:
        self._spent.output += count

    async def look(self) -> bool:
        """Look at what nobody reports; whether the backend tells what has a budget."""
        if self._budget.cpu is None:
            return True
        # What a sandbox that is gone had used was counted before.
        with contextlib.suppress(SandboxLostError, WorkspaceClosedError):
            used = (await self._usage()).cpu
            if used is None:
                return False
            self._spent.cpu = max(self._spent.cpu, self._cpu_before + used)
        return True

    async def exhausted(self) -> BudgetError:
        """Wait until something is spent; return what."""
        while True:
            await self.look()
            try:
                self.check()
            except BudgetError as error:
                return error
            if self._refusal is not None:
                return self._refusal
            await anyio.sleep(_PERIOD)


def _error(name: str, used: float, most: float) -> BudgetError:
    return BudgetError(
        f"the workspace has spent {round(used, 3)} {_UNITS[name]} of {most} "
        f"(budget.{name})",
        budget=name,
    )


def _sum(end: dict[str, object], names: tuple[str, ...]) -> int:
    found = (end.get(name) for name in names)
    return sum(number for number in found if isinstance(number, int))


def _size(found: Page | Matches) -> int:
    if isinstance(found, Page):
        texts = found.lines
        data = len(found.data or b"")
    else:
        texts = tuple(match.text for match in found.matches)
        data = 0
    return data + sum(len(text.encode("utf-8", "replace")) for text in texts)


_UNITS: Final = {
    "ops": "operations",
    "seconds": "seconds",
    "cpu": "seconds of processor time",
    "output": "bytes of output",
    "egress": "bytes of traffic",
    "cost": "units",
}
