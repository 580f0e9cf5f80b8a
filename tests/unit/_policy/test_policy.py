"""Policies: pure data, pure functions."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit._layers.test_layers import EVERY, named

from isobox import Network
from isobox._policy.decision import Decision
from isobox._policy.policy import Policy

OPEN = dataclasses.replace(Policy.allow_all(), network=Network.of("open"))


@pytest.mark.parametrize("op", EVERY, ids=named)
def test_everything_is_allowed_or_denied_by_a_rule_with_a_reason(op):
    for policy, verdict in ((OPEN, "allow"), (Policy.deny_all(), "deny")):
        decision = policy.decide(op)
        assert decision.verdict == verdict
        assert decision.rule
        assert decision.reason
        assert policy.decide(op) == decision


@pytest.mark.parametrize("op", EVERY, ids=named)
def test_without_a_network_everything_inside_is_allowed_and_nothing_else(op):
    verdict = Policy.allow_all().decide(op).verdict
    assert verdict == ("deny" if op.name == "connect" else "allow")


def test_policies_are_data():
    assert Policy.allow_all() == Policy.allow_all()
    assert Policy.allow_all() != Policy.deny_all()
    assert hash(Policy.deny_all()) == hash(Policy.deny_all())
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy.deny_all().default = Decision("allow", "x", "y")
