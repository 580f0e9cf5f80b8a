"""What doctor says of container engines."""

from __future__ import annotations

import os
import socket

import pytest

from isobox._backends.docker import doctor
from isobox._backends.docker.ability import Ability
from isobox._backends.docker.places import Place
from isobox.errors import BackendUnavailableError

PLACE = Place("unix:///x", "DOCKER_HOST")
SECCOMP = ["name=seccomp,profile=default"]


def ability(**info):
    return Ability.of({"ServerVersion": "20.10", "SecurityOptions": SECCOMP, **info})


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """A machine without an engine; returns its environment."""
    monkeypatch.setattr("isobox._backends.docker.places._usual", lambda _: iter(()))
    return {"PATH": str(tmp_path)}


def install(environ, name):
    path = os.path.join(environ["PATH"], name)
    with open(path, "w") as file:
        file.write("#!/bin/sh\n")
    os.chmod(path, 0o755)


ERROR = BackendUnavailableError("no engine is found", fix="apt-get install docker.io")


def test_an_engine_that_answers_is_named_with_its_runtimes():
    found = doctor.of_engine(PLACE, ability(Runtimes={"runsc": {}, "runc": {}}))
    assert found.ok
    assert found.reason == "Docker 20.10 at unix:///x, runtimes runc, runsc"


def test_one_without_a_filter_says_so():
    found = doctor.of_engine(PLACE, ability(SecurityOptions=[]))
    assert "without a filter of system calls" in found.reason


def test_podman_is_recognised_and_what_it_lacks_is_named():
    found = doctor.of_engine(PLACE, ability(BuildahVersion="1.28.2"))
    assert not found.ok
    assert found.reason.startswith("Podman 20.10 at unix:///x: its API")
    assert "DOCKER_HOST" in (found.fix or "")


def test_where_nothing_is_installed_the_error_says_it(nothing):
    found = doctor.of_failure(ERROR, nothing)
    assert found.reason == "no engine is found"
    assert found.fix == "apt-get install docker.io"


@pytest.mark.parametrize(
    ("program", "reason", "fix"),
    [
        ("dockerd", "Docker is installed", "systemctl start docker"),
        ("podman", "Podman is installed", "install docker.io"),
    ],
)
def test_what_is_installed_and_does_not_run_is_named(nothing, program, reason, fix):
    install(nothing, program)
    found = doctor.of_failure(ERROR, nothing)
    assert reason in found.reason
    assert fix in (found.fix or "")


def test_an_address_that_was_named_is_what_is_spoken_of(nothing):
    install(nothing, "dockerd")
    found = doctor.of_failure(ERROR, {**nothing, "DOCKER_HOST": "unix:///nowhere"})
    assert found.reason == "no engine is found"


def test_a_socket_that_may_not_be_used(tmp_path, monkeypatch):
    path = str(tmp_path / "s")
    monkeypatch.setattr("isobox._backends.docker.places._usual", lambda _: iter([path]))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)
        found = doctor.of_failure(ERROR, {})
    assert f"listens at {path}" in found.reason
    assert "may not use it" in found.reason
