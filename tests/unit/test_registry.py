"""Backends by name."""

from __future__ import annotations

from importlib import metadata
from importlib.metadata import EntryPoint

import pytest

from isobox import _registry
from isobox._backends.local import LocalProvider
from isobox.errors import BackendMissingError


@pytest.fixture
def third_party(monkeypatch):
    """Pretend that a distribution offers a backend called `mine`."""

    def offer(place: str) -> None:
        point = EntryPoint("mine", place, _registry.GROUP)
        monkeypatch.setattr(metadata, "entry_points", lambda *, group: [point])

    return offer


def test_our_own_are_named_and_made():
    assert {"local", "bubblewrap"} <= set(_registry.names())
    for name in ("local", "bubblewrap"):
        assert _registry.provider(name).name == name
    assert _registry.provider("local") is not _registry.provider("local")


@pytest.mark.parametrize("name", ["", "nope", "Local", "local ", "../local"])
def test_an_unknown_one_says_which_there_are(name):
    with pytest.raises(
        BackendMissingError, match="there are: local, bubblewrap"
    ) as error:
        _registry.provider(name)
    assert error.value.backend == name
    assert isinstance(error.value, ImportError)


def test_a_third_partys_is_found(third_party):
    third_party("isobox._backends.local:LocalProvider")
    assert _registry.names()[-1] == "mine"
    assert isinstance(_registry.provider("mine"), LocalProvider)


def test_a_third_party_does_not_take_our_names(monkeypatch):
    point = EntryPoint("local", "os:getpid", _registry.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: [point])
    assert isinstance(_registry.provider("local"), LocalProvider)
    assert _registry.names().count("local") == 1


@pytest.mark.parametrize("place", ["no_such_module_at_all:X", "isobox.no_such:X"])
def test_one_that_cannot_be_imported_says_so(third_party, place):
    third_party(place)
    with pytest.raises(BackendMissingError, match="cannot be imported") as error:
        _registry.provider("mine")
    assert isinstance(error.value.__cause__, ImportError)


def test_one_that_is_no_provider_is_refused(third_party):
    third_party("os:getcwd")
    with pytest.raises(BackendMissingError, match=r"not an isobox\.abc\.Provider"):
        _registry.provider("mine")


def test_one_whose_name_is_not_there_is_refused(third_party):
    third_party("os:no_such_name")
    with pytest.raises(BackendMissingError):
        _registry.provider("mine")


def test_a_missing_extra_names_the_command_that_helps(monkeypatch):
    row = _registry.Row("no_such_module_at_all:X", extra="docker")
    monkeypatch.setitem(_registry._ROWS, "docker", row)
    with pytest.raises(BackendMissingError, match=r"pip install 'isobox\[docker\]'"):
        _registry.provider("docker")
