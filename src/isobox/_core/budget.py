"""How much a workspace may spend in its life, and how much it has."""

from __future__ import annotations

from dataclasses import dataclass, fields

from isobox._core.given import is_number, truth
from isobox.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that a workspace may spend; None is without end.

    Whoever has spent it is refused further operations with BudgetError.

    Attributes:
        ops: Operations.
        seconds: Seconds since the workspace was opened.
        cpu: Seconds of processor time of its processes, where the backend tells.
        output: Bytes that commands print and that reads return.
        egress: Bytes to and from hosts outside.
        cost: Units that the program around it counts, see `spend`.
        close: Close the workspace, and end everything in it, as soon as one of
            them is spent.

    Raises:
        InvalidArgumentError: One is less than nothing, or no number; or `close` is
            not True or False.
    """

    ops: int | None = None
    seconds: float | None = None
    cpu: float | None = None
    output: int | None = None
    egress: int | None = None
    cost: float | None = None
    close: bool = False

    def __post_init__(self) -> None:
        truth("Budget: close", self.close)
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "close" or value is None:
                continue
            if not is_number(value) or not 0 <= value < float("inf"):
                raise InvalidArgumentError(
                    f"Budget: {each.name}={value!r} is no number from 0 on"
                )


@dataclass(slots=True, kw_only=True)
class Spent:
    """What a workspace has spent so far, as its Budget counts it."""

    ops: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    output: int = 0
    egress: int = 0
    cost: float = 0.0
