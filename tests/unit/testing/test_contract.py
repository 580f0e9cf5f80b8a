"""The contract is whole: no test hides another, and every topic is in it."""

import inspect

import pytest

from isobox.testing import contract
from isobox.testing.contract import Contract, WorkspaceContract

TOPICS = [
    base for base in WorkspaceContract.__mro__[1:] if base.__name__ in dir(contract)
]


def _tests(topic: type) -> list[str]:
    return [name for name in vars(topic) if name.startswith("test_")]


def test_no_test_hides_another():
    names = [name for topic in TOPICS for name in _tests(topic)]
    assert len(names) == len(set(names))


def test_there_are_behaviours_enough():
    assert len([name for topic in TOPICS for name in _tests(topic)]) >= 130


def test_every_topic_is_in_it():
    topics = {
        value
        for value in vars(contract).values()
        if inspect.isclass(value) and issubclass(value, Contract)
    }
    assert topics == {*TOPICS, WorkspaceContract}


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.__name__)
def test_a_topic_needs_nothing_as_a_whole(topic):
    # Marks of a base class would reach every test of the class that joins them.
    marks = vars(topic).get("pytestmark", [])
    assert all(mark.name == "anyio" for mark in [marks] if marks)


def test_a_contract_without_a_workspace_says_so():
    with pytest.raises(NotImplementedError, match="Contract does not say"):
        Contract().make_workspace()
