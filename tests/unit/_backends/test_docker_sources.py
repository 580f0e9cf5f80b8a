"""Whether what a container shows of the host is what was checked."""

from __future__ import annotations

import os

import pytest

from isobox._backends.docker import remains, sources
from isobox._backends.docker.places import Place
from isobox._backends.docker.sources import Sources
from isobox.errors import ConflictError, InvalidArgumentError, PathMissingError

PLACE = Place("unix:///nowhere/socket", "a test")


@pytest.fixture
def shown(tmp_path):
    place = tmp_path / "shown"
    place.mkdir()
    return place


@pytest.fixture(params=["/data", "/workspace"])
def bind(request, shown):
    return [(str(shown), request.param)]


@pytest.fixture
def checked(bind):
    made = Sources(None, PLACE)
    made.check(bind)
    return made


def exchange(shown):
    shown.rename(shown.with_name("aside"))
    shown.mkdir()


def test_what_stays_is_shown_again(checked, bind):
    checked.check(bind)


def test_another_directory_in_its_place_is_told(checked, bind, shown):
    exchange(shown)
    with pytest.raises(ConflictError, match="another than when"):
        checked.check(bind)


def test_what_is_gone_is_told(checked, bind, shown):
    shown.rmdir()
    with pytest.raises((InvalidArgumentError, PathMissingError)):
        checked.check(bind)


def test_where_nothing_is_seen_inside_the_path_is_looked_at(
    checked, bind, shown, monkeypatch
):
    monkeypatch.setattr(remains, "processes", lambda *_: [])
    checked.check_shown(bind, "container", 1)
    exchange(shown)
    with pytest.raises(ConflictError):
        checked.check_shown(bind, "container", 1)


def test_what_lacks_inside_is_not_what_was_checked(checked, bind, monkeypatch):
    def below(root, target):
        raise FileNotFoundError(2, "no such file")

    monkeypatch.setattr(remains, "processes", lambda *_: [os.getpid()])
    monkeypatch.setattr(sources, "_below", below)
    with pytest.raises(ConflictError):
        checked.check_shown(bind, "container", 1)


def test_processes_of_another_container_are_not_looked_into():
    assert remains.processes("f" * 64, os.getpid()) == []
