"""Where the engine is looked for."""

import socket

import pytest

from isobox._backends.docker import places
from isobox.errors import BackendUnavailableError, InvalidArgumentError


@pytest.fixture
def listening(tmp_path):
    (tmp_path / "podman").mkdir()
    path = tmp_path / "podman" / "podman.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        yield path


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("unix:///run/x.sock", "unix:///run/x.sock"),
        ("unix:///run/../run/x.sock", "unix:///run/x.sock"),
        ("/run/x.sock", "unix:///run/x.sock"),
        ("tcp://127.0.0.1:2375", "tcp://127.0.0.1:2375"),
        ("tcp://engine.example:2376/", "tcp://engine.example:2376"),
    ],
)
def test_an_address_is_taken(given, url):
    assert places.find(given, {}).url == url


@pytest.mark.parametrize(
    "given",
    [
        "",
        "docker",
        "unix://",
        "unix://run/x",
        "tcp://",
        "tcp://h:0",
        "tcp://h:99999",
        "ssh://host",
        "http://host",
        "npipe:////./pipe/x",
    ],
)
def test_what_is_no_address_is_refused(given):
    with pytest.raises(InvalidArgumentError, match=r"engine: .* no address"):
        places.find(given, {})


def test_what_is_named_comes_before_the_environment():
    environ = {"DOCKER_HOST": "unix:///a", "CONTAINER_HOST": "unix:///b"}
    assert places.find("unix:///c", environ).url == "unix:///c"
    assert places.find(None, environ).url == "unix:///a"
    assert places.find(None, {"CONTAINER_HOST": "unix:///b"}).url == "unix:///b"


def test_a_wrong_variable_is_named():
    with pytest.raises(InvalidArgumentError, match="DOCKER_HOST"):
        places.find(None, {"DOCKER_HOST": "what"})


def test_podmans_socket_is_found(listening, monkeypatch):
    monkeypatch.setattr(
        places, "_is_socket", lambda path: path.startswith(str(listening.parent))
    )
    runtime = str(listening.parent.parent)
    assert places.find(None, {"XDG_RUNTIME_DIR": runtime}).path == str(listening)


def test_no_engine_is_told(monkeypatch):
    monkeypatch.setattr(places, "_is_socket", lambda _: False)
    with pytest.raises(BackendUnavailableError, match="DOCKER_HOST") as caught:
        places.find(None, {})
    assert caught.value.fix is not None


@pytest.mark.parametrize(("program", "said"), [("dockerd", "Docker"), ("podman", "P")])
def test_an_engine_that_does_not_run_is_told(monkeypatch, tmp_path, program, said):
    monkeypatch.setattr(places, "_is_socket", lambda _: False)
    (tmp_path / program).touch(0o755)
    with pytest.raises(BackendUnavailableError, match="does not run") as caught:
        places.find(None, {"PATH": str(tmp_path)})
    assert str(caught.value).startswith(said)
    assert caught.value.fix is not None


def test_only_a_socket_is_one(tmp_path, listening):
    (tmp_path / "file").write_text("")
    assert places._is_socket(str(listening))
    assert not places._is_socket(str(tmp_path / "file"))
    assert not places._is_socket(str(tmp_path / "none"))


def test_an_address_has_a_host_and_a_port():
    place = places.find("tcp://engine.example", {})
    assert place.address == ("engine.example", 2375)
    assert place.path is None
    assert not place.is_local


def test_a_socket_that_may_not_be_used_leads_to_the_group():
    place = places.find("unix:///run/x.sock", {})
    assert "groups docker" in places.remedy(place, "[Permission denied]")
    assert places.remedy(place, "[No such file]") == "start it, or name another: engine"


def test_the_sockets_that_were_tried_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "_usual", lambda _: iter(("/no/a.sock", "/no/b.sock")))
    with pytest.raises(BackendUnavailableError, match=r"at /no/a\.sock, /no/b\.sock"):
        places.find(None, {"PATH": str(tmp_path)})
