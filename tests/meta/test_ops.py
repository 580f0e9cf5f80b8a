"""No operation is without facts, and none is left out."""

from __future__ import annotations

import dataclasses
import json
import typing
from unittest.mock import AsyncMock

import pytest

from isobox import abc
from isobox._core import ops
from isobox._core.facts import facts, path_of
from isobox._core.patch import FileChange
from isobox._core.results import SnapshotRef

VALUES = {
    "path": "/workspace/x",
    "cwd": "/workspace",
    "body": b"12345",
    "replacements": (ops.Replacement(b"a", b"b"),),
    "pattern": "x",
    "changes": (FileChange("/workspace/x", "delete"),),
    "host": "www.example.org",
    "port": 80,
    "via": "direct",
    "stage": "plan",
    "server": "git",
    "tool": "git_log",
    "call": AsyncMock(),
    "reach": AsyncMock(),
    "snapshot": SnapshotRef("s", 1, 0.0),
    "process": AsyncMock(spec=abc.Process),
    "session_id": "default",
    "id": "fedcba9876543210",
    "script": "true",
}


def example(kind):
    required = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    return kind(**{name: VALUES[name] for name in required})


@pytest.mark.parametrize("kind", abc.OPS, ids=lambda kind: kind.__name__)
def test_op_has_facts_that_json_can_hold(kind):
    told = facts(example(kind))
    assert json.loads(json.dumps(told)) == told
    assert "12345" not in json.dumps(told)


@pytest.mark.parametrize("kind", abc.OPS, ids=lambda kind: kind.__name__)
def test_op_names_its_path(kind):
    names = {field.name for field in dataclasses.fields(kind)}
    assert (path_of(example(kind)) is not None) == bool(names & {"path", "cwd"})


@pytest.mark.parametrize("kind", abc.OPS, ids=lambda kind: kind.__name__)
def test_op_is_frozen_and_a_method_of_the_sandbox(kind):
    assert kind.__dataclass_params__.frozen
    # What leaves the sandbox, what asks a server, and what only waits.
    outside = (abc.Connect, abc.CallTool, abc.Checkpoint)
    assert kind in outside or callable(getattr(abc.Sandbox, kind.name))


def test_every_op_is_listed():
    defined = {
        kind
        for kind in vars(ops).values()
        if isinstance(kind, type) and issubclass(kind, ops.Op) and kind is not ops.Op
    }
    assert set(abc.OPS) == defined == set(typing.get_args(ops.AnyOp))
    assert len({kind.name for kind in abc.OPS}) == len(abc.OPS)


def test_what_is_not_an_op_has_no_facts():
    with pytest.raises(TypeError, match="not an operation"):
        facts("spawn")
