"""Asks the policy before each operation, and a person where it says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from isobox._approval.key import keys_of
from isobox._approval.question import LATE, UNASKED, UNSAID
from isobox._approval.risk import risk
from isobox._core.facts import path_of
from isobox._core.ops import Apply, Connect, Diff
from isobox._core.results import Changes
from isobox._layers import reader
from isobox._layers.preview import chosen, preview
from isobox._policy.policy import ROOT
from isobox.errors import ConflictError, PolicyDeniedError

if TYPE_CHECKING:
    from isobox._approval.question import Answer, Answers, Question
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
        self._looks_inside = policy.looks_inside

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        if self._looks_inside:
            await reader.read(op)
        decision = self._policy.decide(op, self._root)
        reason = decision.reason
        if decision.verdict == "ask":
            seen = _Seen(inner)
            answer = await self._asked(op, decision, seen)
            reason += _said(answer)
            if answer.allow:
                await seen.check(op)
                return await inner(op)
        elif decision.verdict == "allow":
            return await inner(op)
        raise PolicyDeniedError(
            f"the policy denies {op.name}: {reason} (rule {decision.rule!r}"
            f"{decision.source and f' at {decision.source}'})",
            rule=decision.rule,
            reason=reason,
            op=op.name,
            path=path_of(op),
        )

    async def _asked(
        self, op: Op[object], decision: Decision, inner: Perform
    ) -> Answer:
        async def describe(question: Question) -> Question:
            if self._looks_inside:
                await reader.read(op)
            # Below the policy: to look is no question of its own.
            shown = await preview(op, inner, self._answers.redact)
            return replace(question, risk=risk(op, self._root), preview=shown)

        network = self._policy.network if isinstance(op, Connect) else None
        return await self._answers.ask(
            op,
            rule=decision.rule,
            reason=decision.reason,
            deadline=_DEADLINE if network is None else network.ask_timeout,
            keys=keys_of(
                op,
                [
                    (part, said.rule)
                    for part, said in self._policy.explain(op, self._root)
                    if said.verdict == "ask"
                ],
            ),
            describe=describe,
        )


class _Seen:
    """Performs what a preview needs, and knows what changes it has shown."""

    def __init__(self, inner: Perform) -> None:
        self._inner = inner
        self._changes: Changes | None = None

    async def __call__(self, op: Op[R], /) -> R:
        result = await self._inner(op)
        if isinstance(result, Changes):
            self._changes = result
        return result

    async def check(self, op: Op[object]) -> None:
        """Return if what would be applied is what was shown.

        Raises:
            ConflictError: It has changed since.
        """
        if not isinstance(op, Apply) or self._changes is None:
            return
        shown = chosen(op, self._changes)
        # SAFETY: commands go on while a person reads.
        if chosen(op, await self._inner(Diff())) != shown:
            raise ConflictError(
                "apply: the changes are no longer those that were shown; nothing was "
                "applied. Wait until no command writes, and ask again"
            )


def _said(answer: Answer) -> str:
    if answer.message:
        return f", and whoever was asked says: {answer.message}"
    if answer is UNASKED:
        why = ": there is no `approve`"
    elif answer is LATE:
        why = ": there was no answer in time"
    else:
        why = "" if answer is UNSAID else ": the answer was no"
    return f", and nobody allowed it{why}"
