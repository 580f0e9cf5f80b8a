"""Limits that can hold, and those that cannot."""

from __future__ import annotations

import dataclasses
import math

import pytest

from isobox import Limits
from isobox.errors import InvalidArgumentError

LEAST = {
    "timeout": 0,
    "max_timeout": 0,
    "output": 0,
    "processes": 8,
    "open_files": 64,
    "file_size": 1,
    "memory": 32 << 20,
    "tmp": 1 << 20,
    "cpus": 0.05,
    "disk": 1,
}
FRACTIONS = ("timeout", "max_timeout", "cpus")
ALWAYS = ("output", "tmp")


def test_every_limit_is_here():
    assert {field.name for field in dataclasses.fields(Limits)} == set(LEAST)


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_the_least_is_taken(name, least):
    assert getattr(Limits(**{name: least}), name) == least


@pytest.mark.parametrize(
    ("name", "value", "least"), [("memory", 1000, "33554432"), ("cpus", 0, "0.05")]
)
def test_the_least_is_said_as_it_is_written(name, value, least):
    with pytest.raises(InvalidArgumentError, match=rf"the least is {least}$"):
        Limits(**{name: value})


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_less_is_refused_by_name(name, least):
    less = least / 2 if name == "cpus" else least - 1
    with pytest.raises(InvalidArgumentError, match=rf"{name}=.*least is"):
        Limits(**{name: less})


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("value", ["1", b"1", True, [1], math.nan, math.inf])
def test_what_is_no_number_is_refused(name, value):
    with pytest.raises(InvalidArgumentError, match=f"{name}="):
        Limits(**{name: value})


@pytest.mark.parametrize("name", LEAST)
def test_a_fraction_is_taken_where_it_means_something(name):
    if name in FRACTIONS:
        assert getattr(Limits(**{name: 1.5}), name) == 1.5
        return
    with pytest.raises(InvalidArgumentError, match="whole number"):
        Limits(**{name: 1.5e9})


@pytest.mark.parametrize("name", LEAST)
def test_none_is_no_limit_where_there_may_be_none(name):
    if name in ALWAYS:
        with pytest.raises(InvalidArgumentError, match=f"{name}=None"):
            Limits(**{name: None})
        return
    assert getattr(Limits(**{name: None}), name) is None


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_limit_without_end_is_left_out(value):
    with pytest.raises(InvalidArgumentError, match="limits nothing; leave it out"):
        Limits(cpus=value)
