"""What the command line says of a container."""

from __future__ import annotations

import pytest

from isobox.cli import containers
from isobox.errors import InvalidArgumentError


def test_where_python_comes_from():
    (given,) = containers.options("docker", image="x", python="none")
    (usual,) = containers.options("docker", image="x")
    assert [each.python for each in (given, usual)] == ["none", "auto"]


def test_python_from_nowhere_is_refused():
    with pytest.raises(InvalidArgumentError, match="--python nix: there are auto"):
        containers.options("docker", image="x", python="nix")


def test_what_is_for_containers_alone():
    with pytest.raises(InvalidArgumentError, match="--runtime, --python: for cont"):
        containers.options("local", runtime="runsc", python="none")


def test_a_backend_that_is_not_there_is_for_others_to_name():
    assert containers.options("dokcer", image="x") == ()
