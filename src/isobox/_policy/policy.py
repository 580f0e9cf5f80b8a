"""Policies and their decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from isobox._core.ops import Op

Verdict = Literal["allow", "deny"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy says of one operation.

    Attributes:
        verdict: Whether it may happen.
        rule: The rule that decided.
        reason: Why, in words for a person or a model.
    """

    verdict: Verdict
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What may happen in a workspace; the same operation, the same decision."""

    default: Decision

    @classmethod
    def allow_all(cls) -> Policy:
        """Allow every operation; the sandbox alone limits the damage."""
        return cls(Decision("allow", "allow_all", "everything is allowed"))

    @classmethod
    def deny_all(cls) -> Policy:
        """Deny every operation."""
        return cls(Decision("deny", "deny_all", "nothing is allowed"))

    def decide(self, op: Op[object]) -> Decision:
        """Say whether `op` may happen."""
        del op
        return self.default
