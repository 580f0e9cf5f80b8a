"""What a policy knows without a look is what it says after one."""

from __future__ import annotations

from unittest.mock import AsyncMock

import pytest

from isobox import Policy, Rule
from isobox._core import ops
from isobox._core.patch import FileChange
from isobox._core.results import SnapshotRef

STRICT = {"allow": 0, "ask": 1, "deny": 2}
AUTO = Policy.auto()
POLICIES = {
    "allow": Policy.allow_all(),
    "deny": Policy.deny_all(),
    "read only": Policy.preset("read_only"),
    "auto": AUTO,
    "paths": AUTO.with_rules([Rule(verdict="deny", ops=("write",), paths=("*.key",))]),
    "sizes": AUTO.with_rules([Rule(verdict="ask", larger_than=3)]),
    "reads": AUTO.with_rules([Rule(verdict="deny", ops=("read",))]),
    "tools": AUTO.with_rules([Rule(verdict="ask", tools=("Edit",))]),
    "tightened": AUTO.tightened(Policy.preset("read_only")),
    "twice": AUTO.tightened(AUTO.tightened(Policy.deny_all())),
    "denied": Policy.deny_all().tightened(Policy.allow_all()),
}
OPS = [
    ops.Spawn(argv=("ls",), cwd="/workspace"),
    ops.Spawn(argv=("ls",), cwd="/workspace", spool="/workspace/x.key"),
    ops.Spawn(script="rm -r x", cwd="/workspace"),
    ops.Attach(id="a"),
    ops.Running(),
    ops.Read(path="/workspace/x"),
    ops.Read(path="/workspace/x", caller="Edit"),
    ops.ReadLines(path="/workspace/x"),
    ops.Write(path="/workspace/x.key", body=b"long"),
    ops.Write(path="/workspace/x", body=b"x"),
    ops.Edit(path="/workspace/x", replacements=(ops.Replacement(b"a", b"b"),)),
    ops.Patch(changes=(FileChange("/workspace/x.key", "delete"),)),
    ops.Scan(path="/workspace"),
    ops.Search(path="/workspace", pattern="x"),
    ops.Remove(path="/workspace/x.key"),
    ops.Pull(path="/workspace"),
    ops.Dial(port=80),
    ops.Listen(port=80),
    ops.Connect(host="example.org", port=443, via="direct", reach=AsyncMock()),
    ops.Snapshot(),
    ops.Restore(snapshot=SnapshotRef("s", 1, 0.0)),
    ops.Diff(),
    ops.Apply(),
    ops.Apply(paths=("/workspace/x.key",)),
    ops.Discard(),
]


def _name(op):
    return f"{type(op).__name__}-{OPS.index(op)}"


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("op", OPS, ids=_name)
def test_a_decision_is_the_strictest_of_what_is_said_of_its_parts(policy, op):
    said = [decision for _, decision in policy.explain(op)]
    strictest = max(said, key=lambda decision: STRICT[decision.verdict])
    assert policy.decide(op) == strictest
    assert policy.decide(op) == strictest
    assert policy.remembered(op) in (None, strictest)


def test_what_no_rule_is_about_takes_no_look():
    assert AUTO.remembered(ops.Read(path="/workspace/x")) is AUTO.default
    listens = ops.Listen(port=80)
    assert AUTO.remembered(listens) is None
    assert AUTO.decide(listens).verdict == "ask"
