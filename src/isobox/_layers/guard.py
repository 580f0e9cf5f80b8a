"""Asks the policy before each operation, and a person where it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from isobox._core.facts import path_of
from isobox._core.ops import Connect
from isobox._policy.policy import ROOT
from isobox.errors import PolicyDeniedError

if TYPE_CHECKING:
    from isobox._approval.question import Answers
    from isobox._core.ops import Op
    from isobox._core.stack import Perform
    from isobox._policy.decision import Decision
    from isobox._policy.policy import Policy

R = TypeVar("R")

#: Seconds that a person has to answer where the policy names none.
_DEADLINE: Final = 60.0


class Guard:
    """Lets through what the policy, or a person whom it asks, allows."""

    def __init__(self, policy: Policy, answers: Answers, root: str = ROOT) -> None:
        self._policy = policy
        self._answers = answers
        self._root = root

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        decision = self._policy.decide(op, self._root)
        if decision.verdict == "allow" or await self._is_approved(op, decision):
            return await inner(op)
        reason = decision.reason
        if decision.verdict == "ask":
            reason += ", and nobody allowed it"
        raise PolicyDeniedError(
            f"the policy denies {op.name}: {reason} (rule {decision.rule!r}"
            f"{decision.source and f' at {decision.source}'})",
            rule=decision.rule,
            reason=reason,
            op=op.name,
            path=path_of(op),
        )

    async def _is_approved(self, op: Op[object], decision: Decision) -> bool:
        if decision.verdict != "ask":
            return False
        network = self._policy.network if isinstance(op, Connect) else None
        return await self._answers.ask(
            op,
            rule=decision.rule,
            reason=decision.reason,
            deadline=_DEADLINE if network is None else network.ask_timeout,
        )
