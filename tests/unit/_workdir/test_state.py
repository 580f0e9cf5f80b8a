"""What is remembered of a directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from isobox._workdir.state import State


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    return path


@pytest.fixture
def project(tmp_path):
    path = tmp_path / "project"
    path.mkdir()
    return path


def put(value):
    return lambda _: value


def test_there_is_nothing_at_first(home, project):
    assert State("kind", project).read() is None
    assert not home.exists()


def test_what_is_put_is_read(home, project):
    State("kind", project).change(put({"a": [1, "ü"]}))
    assert State("kind", project).read() == {"a": [1, "ü"]}
    assert State("other", project).read() is None
    (project / "below").mkdir()
    assert State("kind", project / "below").read() is None


def test_a_change_sees_what_was(home, project):
    state = State("kind", project)
    state.change(put([1]))
    state.change(lambda before: [*before, 2])
    assert state.read() == [1, 2]


def test_one_directory_has_one_file(home, project):
    (project.parent / "link").symlink_to(project)
    assert State("k", project.parent / "link").path == State("k", project).path


def test_it_is_the_owners_alone(home, project):
    state = State("kind", project)
    state.change(put(1))
    assert os.stat(state.path).st_mode & 0o077 == 0
    assert os.stat(os.path.dirname(state.path)).st_mode & 0o077 == 0


@pytest.mark.parametrize("at", ["path", "folder"])
def test_what_others_can_write_is_not_believed(home, project, at):
    state = State("kind", project)
    state.change(put(1))
    place = state.path if at == "path" else os.path.dirname(state.path)
    os.chmod(place, 0o777)
    with pytest.raises(PermissionError, match="chmod go-w"):
        state.read()


def test_a_link_is_not_followed(home, project, tmp_path):
    state = State("kind", project)
    state.change(put(1))
    (tmp_path / "elsewhere").write_text("2")
    os.unlink(state.path)
    os.symlink(tmp_path / "elsewhere", state.path)
    with pytest.raises(OSError, match=r"symbolic link"):
        state.read()


def test_a_fifo_is_not_waited_for(home, project):
    state = State("kind", project)
    state.change(put(1))
    os.unlink(state.path)
    os.mkfifo(state.path, 0o600)
    with pytest.raises((OSError, ValueError)):
        state.read()


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "x" * (9 << 20), "\xff\xfe"])
def test_what_is_no_json_is_an_error(home, project, text):
    state = State("kind", project)
    state.change(put(1))
    Path(state.path).write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError):  # noqa: PT011 - json's own
        state.read()


def test_too_much_is_not_kept(home, project):
    state = State("kind", project)
    state.change(put(1))
    with pytest.raises(ValueError, match="too large"):
        state.change(put("x" * (9 << 20)))
    assert state.read() == 1
    assert len(os.listdir(os.path.dirname(state.path))) == 2


def test_nothing_is_kept_inside_of_the_directory(project, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(project / ".state"))
    state = State("kind", project)
    for work in (state.read, lambda: state.change(put(1))):
        with pytest.raises(PermissionError, match="inside the workspace"):
            work()


ADD = """
import sys
from isobox._workdir.state import State
State("kind", sys.argv[1]).change(lambda before: [*(before or []), int(sys.argv[2])])
"""


def test_what_many_change_at_once_is_all_there(home, project):
    workers = [
        subprocess.Popen([sys.executable, "-c", ADD, project, str(n)]) for n in range(8)
    ]
    assert [worker.wait() for worker in workers] == [0] * 8
    state = State("kind", project)
    assert sorted(state.read()) == list(range(8))
    assert json.loads(Path(state.path).read_text()) == state.read()
