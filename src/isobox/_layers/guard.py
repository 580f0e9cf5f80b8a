"""Asks the policy before each operation, and a person where it says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar, cast

from isobox._approval.key import keys_of
from isobox._approval.question import LATE, NOBODY, UNASKED, UNSAID
from isobox._approval.risk import risk
from isobox._core.facts import path_of
from isobox._core.links import asked_of, elsewhere
from isobox._core.ops import Apply, Connect, Diff, Script, Spawn
from isobox._core.results import Changes
from isobox._layers import reader
from isobox._layers.preview import preview
from isobox._policy.policy import ROOT
from isobox.errors import PolicyDeniedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from isobox._approval.question import Answer, Answers, Question
    from isobox._core.ops import Op, Place
    from isobox._core.results import Change
    from isobox._core.stack import Perform
    from isobox._policy.decision import Decision
    from isobox._policy.policy import Policy

    #: Says where paths lead, see `Sandbox.places`.
    Places = Callable[[Sequence[tuple[str, bool]]], Awaitable[tuple[Place, ...]]]

R = TypeVar("R")

#: Links that a refusal names.
_LED: Final = 4
#: Seconds that a person has to answer where the policy names none.
_DEADLINE: Final = 60.0


class Guard:
    """Lets through what the policy, or a person whom it asks, allows.

    Args:
        policy: What may happen.
        answers: Asks the person.
        root: Absolute path inside of the workspace's directory.
        places: Says where paths lead; None where there are no links.
    """

    def __init__(
        self,
        policy: Policy,
        answers: Answers,
        root: str = ROOT,
        places: Places | None = None,
    ) -> None:
        self._policy = policy
        self._answers = answers
        self._root = root
        self._places = places
        self._looks_inside = policy.looks_inside
        self._names_paths = policy.names_any_paths

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        decision = self._policy.remembered(op, self._root)
        if decision is None or decision.verdict == "ask":
            decision = await self._decided(op)
        if self._names_paths and decision.verdict != "deny":
            op = await self._followed(op)
            decision = self._policy.decide(op, self._root) if op.places else decision
        if decision.verdict == "allow":
            return await inner(op)
        if decision.verdict == "deny":
            raise _denied(op, decision, decision.reason)
        if _is_declared(op):
            return await inner(op)
        op = await self._standing(op)
        seen = _Seen(inner)
        answer = await self._asked(op, decision, seen)
        if not answer.allow:
            raise _denied(op, decision, decision.reason + _said(answer))
        return await inner(seen.bound(op))

    async def _decided(self, op: Op[object]) -> Decision:
        # Before a question too, which says what the script runs.
        if self._looks_inside:
            await reader.read(op)
        return self._policy.decide(op, self._root)

    async def _followed(self, op: Op[R]) -> Op[R]:
        """Return an operation with where its paths lead."""
        asked = asked_of(op) if self._policy.names_paths(op) else []
        if self._places is None or not asked:
            return op
        return replace(op, places=await self._places(asked))

    async def _standing(self, op: Op[R]) -> Op[R]:
        """Return a shell's script with the directory that it begins in."""
        script: object = op
        if not isinstance(script, Script) or self._places is None:
            return op
        # The kernel's word, and not the shell's, which obeys its scripts.
        link = f"/proc/{script.process.pid}/cwd"
        (place,) = await self._places([(link, True)])
        cwd = None if place.real == link else place.real
        return cast("Op[R]", replace(script, stands_in=cwd))

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


def _is_declared(op: Op[object]) -> bool:
    """Whether whoever made the workspace has answered already."""
    return isinstance(op, Spawn) and op.declared


class _Seen:
    """Performs what a preview needs, and knows what changes it has shown."""

    def __init__(self, inner: Perform) -> None:
        self._inner = inner
        self._shown: tuple[Change, ...] | None = None

    async def __call__(self, op: Op[R], /) -> R:
        self._looks_at(op)
        result = await self._inner(op)
        self._saw(result)
        return result

    def _looks_at(self, op: Op[object]) -> None:
        if isinstance(op, Diff):
            self._shown = ()  # what could not be shown is not applied

    def _saw(self, result: object) -> None:
        if isinstance(result, Changes):
            self._shown = result.changes

    def bound(self, op: Op[R]) -> Op[R]:
        """Return an operation that does what was shown, and nothing else."""
        apply: object = op
        if not isinstance(apply, Apply) or self._shown is None:
            return op
        # SAFETY: commands go on while a person reads.
        return cast("Op[R]", replace(apply, shown=self._shown))


def _denied(op: Op[object], decision: Decision, reason: str) -> PolicyDeniedError:
    led = [f"{place.path} leads to {place.real}" for place in elsewhere(op)[:_LED]]
    reason += f" ({'; '.join(led)})" if led else ""
    return PolicyDeniedError(
        f"the policy denies {op.name}: {reason} (rule {decision.rule!r}"
        f"{decision.source and f' at {decision.source}'})",
        rule=decision.rule,
        reason=reason,
        op=op.name,
        path=path_of(op),
    )


def _said(answer: Answer) -> str:
    if answer.message:
        return f", and whoever was asked says: {answer.message}"
    if answer is UNASKED:
        why = (
            ": there is nobody to ask (on the command line add --ask, in Python give "
            "`approve`)"
        )
    elif answer is NOBODY:
        why = ": there is no terminal to ask on"
    elif answer is LATE:
        why = ": there was no answer in time"
    else:
        why = "" if answer is UNSAID else ": the answer was no"
    return f", and nobody allowed it{why}"
