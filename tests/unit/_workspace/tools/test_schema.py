"""One description gives the schema and the check: they must agree."""

from __future__ import annotations

import dataclasses

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._workspace.tools.schema import (
    BadArgumentsError,
    flag,
    number,
    optional_text,
    parsed,
    records,
    schema_of,
    strict_schema_of,
    text,
    whole,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    old: str = text("Old.")
    new: str = text("New.", empty=True)
    every: bool = flag("Everywhere.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Everything:
    name: str = text("Name.")
    kind: str = optional_text("Kind.", default="a", choices=("a", "b"))
    hint: str | None = optional_text("Hint.")
    lines: int = whole("Lines.", default=5, minimum=1, maximum=10)
    start: int | None = whole("Start.", default=None)
    seconds: float = number("Seconds.", default=2.5, minimum=0, maximum=60)
    loud: bool = flag("Loud.")
    parts: tuple[Part, ...] = records("Parts.", Part, most=2)


def test_arguments_become_an_object():
    given = {"name": "x", "parts": [{"old": "a", "new": ""}]}
    assert parsed(Everything, given) == Everything(
        name="x", parts=(Part(old="a", new="", every=False),)
    )


def test_null_is_left_out():
    given = {"name": "x", "lines": None, "parts": [{"old": "a", "new": "b"}]}
    assert parsed(Everything, given).lines == 5


NAMES = "name, kind, hint, lines, start, seconds, loud, parts"


def test_empty_text_is_left_out():
    given = {"name": "x", "hint": "", "parts": [{"old": "a", "new": "b"}]}
    assert parsed(Everything, given).hint is None


GOOD = {"name": "x", "parts": [{"old": "a", "new": "b"}]}
BAD = [
    ({**GOOD, "name": 1}, "name: 1 is no string; give a string"),
    ({**GOOD, "name": ""}, 'name: "" is empty; give some text'),
    (
        {**GOOD, "name": "\ud800"},
        "name: character 0 is half of a surrogate pair; give whole Unicode characters",
    ),
    ({**GOOD, "kind": "c"}, 'kind: "c" is not allowed; give one of "a", "b"'),
    (
        {**GOOD, "lines": "5"},
        'lines: "5" is no whole number; give a whole number from 1 to 10',
    ),
    (
        {**GOOD, "lines": True},
        "lines: true is no whole number; give a whole number from 1 to 10",
    ),
    (
        {**GOOD, "lines": 2.5},
        "lines: 2.5 is no whole number; give a whole number from 1 to 10",
    ),
    (
        {**GOOD, "lines": 11},
        "lines: 11 is out of range; give a whole number from 1 to 10",
    ),
    ({**GOOD, "start": "x"}, 'start: "x" is no whole number; give a whole number'),
    (
        {**GOOD, "seconds": -1},
        "seconds: -1 is out of range; give a number from 0 to 60",
    ),
    (
        {**GOOD, "seconds": float("nan")},
        "seconds: nan is out of range; give a number from 0 to 60",
    ),
    ({**GOOD, "loud": "yes"}, 'loud: "yes" is no boolean; give true or false'),
    ({**GOOD, "loud": 1}, "loud: 1 is no boolean; give true or false"),
    ({**GOOD, "parts": "a"}, 'parts: "a" is no list; give a list of objects'),
    ({**GOOD, "parts": {}}, "parts: an object is no list; give a list of objects"),
    ({**GOOD, "parts": []}, "parts: holds 0; give 1 to 2"),
    (
        {**GOOD, "parts": ["a"]},
        'parts[0]: "a" is no object; give one with named fields',
    ),
    (
        {**GOOD, "parts": [{"old": "a", "new": "b"}, {"old": 1, "new": "b"}]},
        "parts[1].old: 1 is no string; give a string",
    ),
    ({**GOOD, "parts": [{"old": "a"}]}, "parts[0].new: is missing; New."),
    ({"parts": GOOD["parts"]}, "name: is missing; Name."),
    (
        {**GOOD, "nome": "x"},
        f"nome: there is no such argument; did you mean name? there are {NAMES}",
    ),
    (
        {**GOOD, "qqqqq": "x"},
        f"qqqqq: there is no such argument; there are {NAMES}",
    ),
    ("text", '"text" is no object; give one with named fields'),
    ({**GOOD, "name": ["x"] * 100}, "name: a list is no string; give a string"),
    (
        {**GOOD, "kind": "k" * 100},
        f'kind: "{"k" * 60}..." is not allowed; give one of "a", "b"',
    ),
    (
        {**GOOD, "lines": 10**400},
        "lines: the number is out of range; give a whole number from 1 to 10",
    ),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_what_is_wrong_is_said(given, message):
    with pytest.raises(BadArgumentsError) as caught:
        parsed(Everything, given)
    assert str(caught.value) == message


def test_every_problem_is_told_at_once():
    with pytest.raises(BadArgumentsError) as caught:
        parsed(Everything, {"nmae": "x", "lines": 0})
    assert len(caught.value.problems) == 4


SCHEMAS = [schema_of(Everything), strict_schema_of(Everything)]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["plain", "strict"])
def test_schema_is_one(schema):
    jsonschema.Draft202012Validator.check_schema(schema)


def test_strict_schema_requires_everything():
    schema = strict_schema_of(Everything)
    assert schema["required"] == list(schema["properties"])
    assert schema["properties"]["kind"]["enum"] == ["a", "b", None]
    assert schema["properties"]["lines"]["description"] == "Lines. null is 5."


PARTS = st.fixed_dictionaries(
    {},
    optional={
        "old": st.text(max_size=2) | st.integers(),
        "new": st.text(max_size=2),
        "every": st.booleans() | st.integers(0, 1),
        "more": st.booleans(),
    },
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=2) | st.integers(),
        "kind": st.sampled_from(["a", "b", "c", 1, None]),
        "hint": st.text(max_size=2) | st.none(),
        "lines": st.integers(-1, 12) | st.sampled_from([2.0, 2.5, True, "2", None]),
        "start": st.integers() | st.sampled_from([1.0, "1", None]),
        "seconds": st.floats(-1, 61) | st.integers(-1, 61) | st.none(),
        "loud": st.booleans() | st.sampled_from([0, "true", None]),
        "parts": st.lists(PARTS, max_size=3) | st.none(),
        "more": st.text(max_size=2),
    },
)


def accepted(given):
    try:
        parsed(Everything, given)
    except BadArgumentsError:
        return False
    return True


def without_nulls(given):
    return {name: value for name, value in given.items() if value is not None}


@given(ARGUMENTS)
def test_check_and_schema_agree(given):
    given = without_nulls(given)
    valid = jsonschema.Draft202012Validator(SCHEMAS[0]).is_valid(given)
    assert accepted(given) == valid


@given(ARGUMENTS)
def test_what_the_strict_schema_allows_is_taken(given):
    full = dict.fromkeys(SCHEMAS[1]["properties"]) | given
    full["name"] = full["name"] or "x"
    parts = full["parts"] or [{"old": "a", "new": "b"}]
    full["parts"] = [
        {"every": None, **part, "old": part.get("old") or "x"} for part in parts
    ]
    if jsonschema.Draft202012Validator(SCHEMAS[1]).is_valid(full):
        assert accepted(full)
