"""Asks the policy before each operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from isobox._core.facts import path_of
from isobox.errors import PolicyDeniedError

if TYPE_CHECKING:
    from isobox._core.ops import Op
    from isobox._core.stack import Perform
    from isobox._policy.policy import Policy

R = TypeVar("R")


class Guard:
    """Lets through what the policy allows."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        decision = self._policy.decide(op)
        if decision.verdict == "allow":
            return await inner(op)
        raise PolicyDeniedError(
            f"the policy denies {op.name}: {decision.reason} (rule {decision.rule!r})",
            op=op.name,
            path=path_of(op),
        )
