"""What callers pass, checked before anything of it is used."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from isobox import Budget, LocalWorkspace, Pending, Secret
from isobox._workspace import arguments
from isobox.errors import InvalidArgumentError, WrongEncodingError
from isobox.sync import LocalWorkspace as BlockingWorkspace

SECRET = Secret("TOKEN", source="env:TOKEN", hosts=["a.test"])


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
        ({"audit": 5}, "audit=5 is no sink"),
        ({"env": "A=b"}, "env='A=b' is no mapping"),
        ({"env": ["A=b"]}, "is no mapping; give one such as"),
        ({"labels": "a"}, "labels='a' is no mapping"),
        ({"skills": 5}, "skills=5: give a list of sources"),
        ({"max_mcps": "3"}, "max_mcps='3' is no whole number from 1 on"),
        ({"secrets": SECRET}, r"secrets is no list; give a list such as \[Secret"),
        ({"secrets": "TOKEN"}, r"secrets is no list; give a list such as \[Secret"),
        ({"secrets": {"T": SECRET}}, "secrets is no list"),
        ({"secrets": ["TOKEN"]}, "one of them is no Secret"),
        ({"secrets": [SECRET], "network": ["a.test"], "env": {"TOKEN": "x"}},
         "env: TOKEN is the variable of a secret"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [LocalWorkspace, BlockingWorkspace])
def test_what_is_of_another_kind_is_refused_at_once(kind, options, words):
    with pytest.raises(InvalidArgumentError, match=words):
        kind(**options)


def test_whoever_takes_a_question_may_answer():
    for one in (bool, Pending(), min, lambda *_: True):
        assert arguments.approve(one) is one
    assert arguments.approve(None) is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ws: ws.run("cat", stdin=5), "stdin=5 is not a string or bytes"),
        (lambda ws: ws.write("c", 3), "data=3 is not a string, bytes, or an async"),
        (lambda ws: ws.write("c", "x", mode="755"), "mode='755' is not a number such"),
        (lambda ws: ws.write("c", "x", mode=0o4755), "mode=0o4755 is not between 0"),
        (lambda ws: ws.write(b"c", "x"), "path=b'c' is not a string"),
        (lambda ws: ws.read_text(5), "path=5 is not a string"),
        (lambda ws: ws.read_text("f", encoding="klingon"), "encoding='klingon' is no"),
        (lambda ws: ws.read_text("f", encoding="hex"), "encoding='hex' is no encoding"),
        (lambda ws: ws.read_text("f", encoding=None), "encoding=None is not a string"),
        (lambda ws: ws.glob(5), "pattern=5 is not a string"),
        (lambda ws: ws.glob(""), "the pattern is empty"),
        (lambda ws: ws.edit("f", 5, "x"), "the text=5 is not a string"),
        (lambda ws: ws.restore("/nope"), "snapshot='/nope' is no SnapshotRef"),
        (lambda ws: ws.restore(None), "snapshot=None is no SnapshotRef"),
        (
            lambda ws: ws.run("true", limits={"nofile": "x"}),
            "limits: nofile='x' is not a whole number",
        ),
        (
            lambda ws: ws.run("true", limits={"nofile": None}),
            "limits: nofile=None is not a whole number",
        ),
        (lambda ws: ws.run("true", limits={"nofile": -1}), "limits: nofile=-1 is not"),
        (lambda ws: ws.run("true", limits=["nofile"]), "is not a mapping such as"),
    ],
)
@pytest.mark.anyio
async def test_a_wrong_type_is_told_by_name(call, words):
    async with LocalWorkspace() as workspace:
        await workspace.write("f", "caf\xe9")
        with pytest.raises(InvalidArgumentError, match=re.escape(words)):
            await call(workspace)


@pytest.mark.anyio
async def test_another_encoding_is_told_with_what_helps():
    async with LocalWorkspace() as workspace:
        await workspace.write("f", b"caf\xe9\n")
        with pytest.raises(WrongEncodingError) as error:
            await workspace.read_text("f")
        assert str(error.value) == (
            "'f' is not in utf-8: invalid continuation byte at byte 3; say which it is "
            "in with encoding=, such as 'latin-1', or use read_bytes"
        )
        assert error.value.object == b"caf\xe9\n"
        assert await workspace.read_text("f", encoding="latin-1") == "caf\xe9\n"


@pytest.mark.anyio
async def test_whatever_holds_bytes_may_be_given():
    async with LocalWorkspace() as workspace:
        for data in (bytearray(b"ab"), memoryview(b"ab")):
            assert (await workspace.run("cat", stdin=data)).stdout == "ab"
            await workspace.write("f", data)
            assert await workspace.read_bytes("f") == b"ab"


@pytest.mark.parametrize("wrong", ["1", None, True, -1, float("nan"), float("inf")])
def test_what_is_no_cost_is_refused_also_without_a_budget(wrong):
    with pytest.raises(InvalidArgumentError, match="is no number from 0 on"):
        LocalWorkspace().spend(wrong)


def test_a_budget_closes_or_does_not():
    with pytest.raises(InvalidArgumentError, match="close='no' is not True or False"):
        Budget(close="no")
