"""What a policy says of one operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Let it happen, refuse it, or ask a person.
Verdict = Literal["allow", "deny", "ask"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy says of one operation.

    Attributes:
        verdict: Whether it may happen.
        rule: The rule that decided.
        reason: Why, in words for a person or a model.
        source: Where the rule stands, such as `policy.toml:12`.
    """

    verdict: Verdict
    rule: str
    reason: str
    source: str = ""
