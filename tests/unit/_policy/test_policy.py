"""Policies: pure data, pure functions."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit._layers.test_layers import EVERY, named

from isobox._policy.policy import Decision, Policy


@pytest.mark.parametrize("op", EVERY, ids=named)
def test_everything_is_allowed_or_denied_by_a_rule_with_a_reason(op):
    for policy, verdict in ((Policy.allow_all(), "allow"), (Policy.deny_all(), "deny")):
        decision = policy.decide(op)
        assert decision.verdict == verdict
        assert decision.rule
        assert decision.reason
        assert policy.decide(op) == decision


def test_policies_are_data():
    assert Policy.allow_all() == Policy.allow_all()
    assert Policy.allow_all() != Policy.deny_all()
    assert hash(Policy.deny_all()) == hash(Policy.deny_all())
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy.deny_all().default = Decision("allow", "x", "y")
