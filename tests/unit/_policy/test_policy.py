"""Policies: pure data, pure functions."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit._layers.test_layers import EVERY, named

from isobox import Network, Rule
from isobox._policy.decision import Decision
from isobox._policy.policy import Policy
from isobox.errors import InvalidArgumentError

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


@pytest.mark.parametrize("wrong", [["x"], "x", 5, None, [None], Rule(verdict="deny")])
def test_what_are_no_rules_is_refused(wrong):
    for take in (
        lambda: Policy.auto(rules=wrong),
        lambda: Policy.allow_all().with_rules(wrong),
        lambda: dataclasses.replace(Policy.allow_all(), rules=wrong),
    ):
        with pytest.raises(InvalidArgumentError, match="rules"):
            take()


def test_what_is_no_decision_and_no_network_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"default='deny'.*Policy\.deny_all"):
        Policy("deny")
    with pytest.raises(InvalidArgumentError, match=r"network='open'.*Network\.of"):
        dataclasses.replace(Policy.allow_all(), network="open")


def test_only_a_policy_tightens():
    with pytest.raises(InvalidArgumentError, match="'read_only' is no Policy"):
        Policy.allow_all().tightened("read_only")
