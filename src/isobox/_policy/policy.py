"""Policies and their decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isobox._core.ops import Connect
from isobox._policy.decision import Decision
from isobox._policy.network import NONE, Network

if TYPE_CHECKING:
    from isobox._core.ops import Op


@dataclass(frozen=True, slots=True)
class Policy:
    """What may happen in a workspace; the same operation, the same decision.

    Attributes:
        default: What it says of everything inside the sandbox.
        network: What may be reached outside.
    """

    default: Decision
    network: Network = field(default=NONE)

    @classmethod
    def allow_all(cls) -> Policy:
        """Allow every operation; the sandbox alone limits the damage."""
        return cls(Decision("allow", "allow_all", "everything inside is allowed"))

    @classmethod
    def deny_all(cls) -> Policy:
        """Deny every operation."""
        return cls(Decision("deny", "deny_all", "nothing is allowed"))

    def decide(self, op: Op[object]) -> Decision:
        """Say whether `op` may happen."""
        if isinstance(op, Connect) and self.default.verdict == "allow":
            return self.network.decide(op)
        return self.default
