"""Policies over one another: a project's can only forbid, and all is explained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox import Network, Policy, Rule, abc
from isobox._core.links import asked_of, led
from isobox._core.ops import Place, Replacement
from isobox._core.patch import FileChange
from isobox._policy.decision import Decision
from isobox._policy.load import layered
from isobox._policy.part import parts
from isobox._policy.policy import ROOT, UNSAID

ORDER = {"allow": 0, "ask": 1, "deny": 2}
VERDICTS = st.sampled_from(["allow", "ask", "deny"])
SCRIPTS = [
    "ls", "git push", "rm -rf x", "git push; rm x", "echo a > src/a", "$X",
    'eval "$(cat x)"', "sudo git push", "find . -delete", "(", "",
]  # fmt: skip
PATHS = [f"/workspace/{path}" for path in ("a", "src/a", "src/deep/b.py", ".env")]


async def unreached(_):
    raise AssertionError("nothing is reached here")


def _connect(host, port):
    return abc.Connect(host=host, port=port, via="direct", reach=unreached)


PLAIN = st.one_of(
    st.builds(
        lambda s: abc.Spawn(script=s, cwd="/workspace"), st.sampled_from(SCRIPTS)
    ),
    st.builds(
        lambda s: abc.Script(process=cast("Any", None), session_id="a", script=s),
        st.sampled_from(SCRIPTS),
    ),
    st.just(abc.Spawn(argv=("git", "push"), cwd="/workspace", label="tool")),
    st.just(abc.Spawn(argv=("bash",), cwd="/workspace", report=True)),
    st.builds(lambda p: abc.Read(path=p), st.sampled_from(PATHS)),
    st.builds(
        lambda p, n: abc.Write(path=p, body=bytes(n)),
        st.sampled_from(PATHS),
        st.sampled_from([0, 50]),
    ),
    st.builds(
        lambda p: abc.Edit(path=p, replacements=(Replacement(b"a", b"b"),)),
        st.sampled_from(PATHS),
    ),
    st.builds(
        lambda p, t: abc.Patch(changes=(FileChange(path=p, kind="update", target=t),)),
        st.sampled_from(PATHS),
        st.sampled_from([None, *PATHS]),
    ),
    st.builds(lambda p: abc.Remove(path=p, recursive=True), st.sampled_from(PATHS)),
    st.builds(
        _connect,
        st.sampled_from(["a.test", "b.a.test", "other.test", "10.0.0.1"]),
        st.sampled_from([80, 443]),
    ),
    st.sampled_from([
        abc.Checkpoint(stage="plan"), abc.Apply(), abc.Apply(paths=("src",)),
        abc.Listen(port=80), abc.Dial(port=80), abc.Diff(), abc.Discard(),
    ]),
)  # fmt: skip


def _called(op, caller, real):
    places = tuple(Place(path, follow, real) for path, follow in asked_of(op))
    return replace(op, caller=caller, places=places if real is not None else ())


#: The same by one of the model's tools, and where links lead elsewhere.
OPS = st.builds(
    _called,
    PLAIN,
    st.sampled_from([None, None, "tool", "other"]),
    st.sampled_from([None, None, *PATHS]),
)
RULES = st.builds(
    Rule,
    verdict=VERDICTS,
    name=st.sampled_from(["", "named"]),
    ops=st.sampled_from(
        [(), ("read",), ("write",), ("run",), ("network",), ("spawn",)]
    ),
    tools=st.sampled_from([(), ("t*",)]),
    programs=st.sampled_from([(), ("git",), ("rm", "find"), ("*",)]),
    arguments=st.sampled_from([(), ("push",), ("-*r*",)]),
    paths=st.sampled_from([(), ("src/*",), ("**",), ("/workspace/a",)]),
    hosts=st.sampled_from([(), ("a.test",), ("*.a.test",)]),
    larger_than=st.sampled_from([None, None, 10]),
)
NETWORKS = st.sampled_from(
    [
        Network.of("none"),
        Network.of("open"),
        Network.of(["a.test"]),
        Network.of(["?a.test", "!b.a.test", "*.a.test:443"]),
        replace(Network.of(["a.test"]), otherwise="ask"),
        UNSAID,
    ]
)
FLAT = st.builds(
    lambda verdict, network, rules, read_only: Policy(
        Decision(verdict, "default", "why"), network, tuple(rules), read_only
    ),
    VERDICTS,
    NETWORKS,
    st.lists(RULES, max_size=4),
    st.booleans(),
)
POLICIES = st.one_of(
    FLAT,
    st.builds(lambda one, other: one.tightened(other), FLAT, FLAT),
    st.sampled_from([
        Policy.preset(name) for name in ("read_only", "auto", "full_access")
    ]),
)  # fmt: skip


def strictness(policy, op):
    return ORDER[policy.decide(op).verdict]


@settings(max_examples=400, deadline=None)
@given(policy=POLICIES, other=POLICIES, op=OPS)
def test_tightening_never_widens(policy, other, op):
    both = policy.tightened(other)
    assert strictness(both, op) >= strictness(policy, op)
    assert both.read_only >= policy.read_only
    assert both.network == policy.network


@settings(max_examples=400, deadline=None)
@given(policy=POLICIES, op=PLAIN, real=st.sampled_from(PATHS))
def test_a_link_is_never_let_to_what_its_target_is_not(policy, op, real):
    by_link = _called(op, None, real)
    assert strictness(policy, by_link) >= strictness(policy, op)
    for target in led(by_link):
        assert strictness(policy, by_link) >= strictness(policy, target)


@settings(max_examples=200, deadline=None)
@given(policy=POLICIES, others=st.lists(FLAT, min_size=1, max_size=3), op=OPS)
def test_tightening_again_never_widens(policy, others, op):
    before = strictness(policy, op)
    for other in others:
        policy = policy.tightened(other)
        after = strictness(policy, op)
        assert after >= before
        before = after


@settings(max_examples=200, deadline=None)
@given(policies=st.lists(FLAT, min_size=1, max_size=3), project=FLAT, op=OPS)
def test_a_project_never_widens_the_layers_above_it(policies, project, op):
    above = layered(policies)
    assert strictness(layered(policies, project), op) >= strictness(above, op)


@settings(max_examples=200, deadline=None)
@given(one=FLAT, other=FLAT, op=OPS)
def test_a_rule_that_denies_holds_in_whatever_layer_it_is(one, other, op):
    rules = [rule for rule in (*one.rules, *other.rules) if rule.verdict == "deny"]
    denying = replace(
        Policy.allow_all(), rules=tuple(rules), network=Network.of("open")
    )
    if strictness(denying, op) == 2:
        assert strictness(layered([one, other]), op) == 2


@settings(max_examples=400, deadline=None)
@given(policy=POLICIES, op=OPS)
def test_what_is_explained_is_what_is_decided(policy, op):
    decision = policy.decide(op)
    explained = policy.explain(op)
    assert decision in [said for _, said in explained]
    assert ORDER[decision.verdict] == max(ORDER[s.verdict] for _, s in explained)
    for _, said in explained:
        assert said.rule
        assert said.reason
    assert policy.decide(op) == decision


@settings(max_examples=400, deadline=None)
@given(policy=FLAT, op=OPS)
def test_no_rule_is_missed(policy, op):
    for part in parts(op, commands=True):
        fitting = [rule for rule in policy.rules if rule.fits(part, ROOT)]
        about = policy._index.about(part)
        assert [rule for rule in about if rule.fits(part, ROOT)] == fitting


@settings(max_examples=200, deadline=None)
@given(policy=FLAT, rule=RULES, op=OPS)
def test_a_rule_that_asks_or_denies_never_widens_what_a_default_allows(
    policy, rule, op
):
    if rule.verdict == "allow" or any(each.verdict == "allow" for each in policy.rules):
        return
    policy = replace(policy, default=Decision("allow", "default", "why"))
    if strictness(policy, op) == 0:
        assert strictness(policy.with_rules([rule]), op) >= 0
    else:
        more = strictness(policy.with_rules([rule]), op)
        assert more >= 1


@pytest.mark.parametrize("path", ["./secret", "a/../secret", "//workspace/secret"])
def test_a_path_is_the_same_however_it_is_written(path):
    rule = Rule(verdict="deny", paths=("secret",))
    # One that looks at programs has scripts read.
    policy = Policy.auto(rules=[rule])
    op = abc.Spawn(script=f"echo x > {path}", cwd="/workspace")
    assert policy.decide(op).verdict == "deny"


def test_the_shell_of_a_session_is_no_script_that_nobody_understands():
    driver = abc.Spawn(
        argv=("bash", "-c", 'eval "$REPLY"'), cwd="/workspace", report=True
    )
    assert Policy.auto().decide(driver).verdict == "allow"
    rule = Rule(verdict="deny", programs=("bash",))
    assert Policy.auto(rules=[rule]).decide(driver).verdict == "deny"
    own = replace(driver, report=False)
    assert Policy.auto().decide(own).verdict == "ask"
