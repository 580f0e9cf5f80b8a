"""The error tree is whole, exported and drawn."""

from __future__ import annotations

import inspect

import pytest

from isobox import errors

ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_error_is_exported_and_in_the_tree(kind):
    assert issubclass(kind, errors.IsoboxError)
    assert kind.__name__ in errors.__all__
    assert kind.__name__ in errors.__doc__


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_tree_names_the_builtin_that_it_is(kind):
    line = next(line for line in errors.__doc__.splitlines() if kind.__name__ in line)
    builtins = [base for base in kind.__bases__ if base.__module__ == "builtins"]
    for builtin in builtins:
        assert builtin is Exception or builtin.__name__ in line
    assert kind.__doc__


def test_all_is_what_there_is():
    assert sorted(errors.__all__) == sorted(kind.__name__ for kind in ERRORS)
