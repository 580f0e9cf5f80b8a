"""What callers pass, checked before anything of it is used."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from isobox import LocalWorkspace, Pending
from isobox._workspace import arguments
from isobox.errors import InvalidArgumentError
from isobox.sync import LocalWorkspace as BlockingWorkspace


def test_a_string_is_a_script_and_a_sequence_an_argv():
    assert arguments.command("a | b") == ((), "a | b")
    assert arguments.command("") == ((), "")
    assert arguments.command(["a", "b c", ""]) == (("a", "b c", ""), None)
    assert arguments.command(("a",)) == (("a",), None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a\0b", "NUL"),
        (["a", "b\0"], "NUL"),
        ([], "empty"),
        ([""], "empty"),
        (["a", 1], "1 is no string"),
        (["a", b"b"], "is no string"),
        (b"ls", "a string"),
        (bytearray(b"ls"), "a string"),
        (None, "a string"),
        (5, "a string"),
        ({"a": 1}, "a string"),
    ],
)
def test_what_is_no_command_is_refused(given, message):
    with pytest.raises(InvalidArgumentError, match=message):
        arguments.command(given)


@pytest.mark.parametrize("value", [None, 0, 0.0, 1, 2.5, 1e9])
def test_a_time_stays_as_it_is(value):
    assert arguments.seconds("timeout", value) == value


@pytest.mark.parametrize(
    "value", [-1, -0.1, math.inf, math.nan, -math.inf, True, "5", b"5", [5]]
)
def test_what_is_no_time_is_refused_by_name(value):
    with pytest.raises(InvalidArgumentError, match="timeout="):
        arguments.seconds("timeout", value)


@pytest.mark.parametrize("value", [None, 0, 1, 1 << 40])
def test_a_count_stays_as_it_is(value):
    assert arguments.count("limit", value) == value


@pytest.mark.parametrize("value", [-1, 1.0, math.nan, True, "5"])
def test_what_is_no_count_is_refused_by_name(value):
    with pytest.raises(InvalidArgumentError, match="limit="):
        arguments.count("limit", value)


def test_a_session_takes_nothing_that_its_shell_has():
    arguments.nothing_but_a_script(cwd=None, env=None)
    with pytest.raises(InvalidArgumentError, match=r"cwd, env: .*session_id"):
        arguments.nothing_but_a_script(cwd=".", stdin=None, env={})


def test_variables_are_copied():
    given = {"A": "1", "B_": "", "gone": None}
    found = arguments.environment(given)
    assert found == given
    assert found is not given


@pytest.mark.parametrize(
    "given",
    [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}, {"A": 1}, {1: "x"}],
)
def test_what_is_no_variable_is_refused(given):
    with pytest.raises(InvalidArgumentError, match="env"):
        arguments.environment(given)


def test_a_workspace_without_an_id_gets_one_that_is_valid_and_new():
    first, second = arguments.identifier(None), arguments.identifier(None)
    assert first != second
    assert arguments.identifier(first) == first


@pytest.mark.parametrize("given", ["a", "0", "a-b", "a" * 63])
def test_an_id_stays_as_it_is(given):
    assert arguments.identifier(given) == given


@pytest.mark.parametrize(
    "given", ["", "A", "-a", "a-", "a_b", "a/b", "a\n", "ü", "a" * 64]
)
def test_what_is_no_id_is_refused(given):
    with pytest.raises(InvalidArgumentError, match="workspace_id"):
        arguments.identifier(given)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "auto"}, r"give Policy\.preset\('auto'\)"),
        ({"policy": "policy.toml"}, r"give load_policy\('policy\.toml'\)"),
        ({"policy": Path("p.toml")}, r"give load_policy\('p\.toml'\)"),
        ({"policy": ["auto"]}, r"Policy\.preset\('auto'\), or load_policy"),
        ({"approve": True}, "give a function of one question"),
        ({"approve": lambda: True}, "give a function of one question"),
        ({"approve": lambda one, other: one == other}, "missing .* 'other'"),
        ({"budget": 5}, r"give Budget\(\.\.\.\)"),
        ({"limits": {"memory": 5}}, r"give Limits\(\.\.\.\)"),
        ({"retention": "30d"}, r"give Retention\(\.\.\.\)"),
    ],
)
@pytest.mark.parametrize("kind", [LocalWorkspace, BlockingWorkspace])
def test_what_is_of_another_kind_is_refused_at_once(kind, options, words):
    with pytest.raises(InvalidArgumentError, match=words):
        kind(**options)


def test_whoever_takes_a_question_may_answer():
    for one in (bool, Pending(), min, lambda *_: True):
        assert arguments.approve(one) is one
    assert arguments.approve(None) is None
