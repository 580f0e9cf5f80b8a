"""Answers that are kept for a project, where its sandboxes cannot write."""

from __future__ import annotations

import json
import os
import threading
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isobox import abc
from isobox._approval import project as module
from isobox._approval.memory import ApprovalsWarning
from isobox._approval.project import Project
from isobox._approval.question import Answer, Answers
from isobox._workdir import state as files

pytestmark = pytest.mark.anyio

A, B = ("rule", "remove", "/workspace/a"), ("rule", "run", "git", "push")
YES = Answer(True, "project", by="ann")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "isobox" / "approvals"


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def kept(project):
    with open(project.path, "rb") as file:
        return json.load(file)


def test_what_is_kept_is_read_by_others(work):
    no = Answer(False, "project", "not today", "bob")
    Project(work).keep([A], YES)
    Project(work).keep([B], no)
    assert Project(work).read() == {A: YES, B: no}
    assert Project("/usr").read() == {}


def test_a_later_answer_replaces_an_earlier_one(work):
    Project(work).keep([A, B], YES)
    Project(work).keep([A], Answer(False, "project"))
    assert {key: each.allow for key, each in Project(work).read().items()} == {
        A: False,
        B: True,
    }


def test_the_file_is_its_owners_alone(work, state):
    project = Project(work)
    project.keep([A], YES)
    assert os.stat(project.path).st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
    assert sorted(os.path.splitext(name)[1] for name in os.listdir(state)) == [
        ".json",
        ".lock",
    ]


def test_a_directory_has_one_file_by_whatever_name(work, tmp_path):
    (tmp_path / "link").symlink_to(work)
    Project(tmp_path / "link").keep([A], YES)
    assert Project(f"{work}/../work").read() == {A: YES}


def test_a_relative_state_directory_is_none(work, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    Project(work).keep([A], YES)
    assert (tmp_path / "home/.local/state/isobox/approvals").is_dir()


def test_bytes_that_are_no_text_are_kept(work):
    key = ("rule", "run", "rm", os.fsdecode(b"\xff\xfe"), "\n\u202e\0")
    Project(work).keep([key], YES)
    assert Project(work).read() == {key: YES}


# -- what is not trusted ------------------------------------------------------------


def refused(work, match=None):
    with pytest.warns(ApprovalsWarning, match=match):
        assert Project(work).read() == {}
    with pytest.raises(OSError, match=match):
        Project(work).keep([B], YES)


def test_inside_the_workspace_nothing_is_read_or_kept(work, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(work / "state"))
    refused(work, "inside the workspace's directory")
    Project(work.parent / "other").keep([A], YES)
    assert len(os.listdir(work / "state/isobox/approvals")) == 2


def test_through_a_link_into_the_workspace_neither(work, monkeypatch, tmp_path):
    (tmp_path / "link").symlink_to(work)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "link"))
    refused(work, "inside the workspace's directory")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_used(work, mode):
    project = Project(work)
    project.keep([A], YES)
    os.chmod(project.path, mode)
    refused(work, "others can write .*chmod go-w")
    assert len(kept(project)["answers"]) == 1


def test_a_directory_that_others_can_write_is_not_used(work, state):
    Project(work).keep([A], YES)
    state.chmod(0o777)
    refused(work, "others can write")


def test_what_is_another_users_is_not_used(work, monkeypatch):
    Project(work).keep([A], YES)
    monkeypatch.setattr(module.os, "geteuid", lambda: 4321)
    refused(work, f"belongs to user {os.getuid()}")


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_file_is_not_used(work, kind):
    project = Project(work)
    project.keep([A], YES)
    os.rename(project.path, project.path + ".other")
    if kind == "link":
        os.symlink(project.path + ".other", project.path)
    elif kind == "fifo":
        os.mkfifo(project.path, 0o600)
    else:
        os.mkdir(project.path, 0o700)
    refused(work)


ROW = {"question": ["r", "a"], "allow": True, "message": "", "by": ""}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"project": "/elsewhere"},
        {"answers": {}},
        {"answers": [1]},
        {"answers": [{**ROW, "allow": 1}]},
        {"answers": [{**ROW, "allow": "true"}]},
        {"answers": [{**ROW, "question": "ra"}]},
        {"answers": [{**ROW, "question": [["r"], "a"]}]},
        {"answers": [{**ROW, "message": None}]},
        {"answers": [{**ROW, "message": "x" * 5000}]},
        {"answers": [{**ROW, "scope": "project"}]},
        {"answers": [{"question": ["r", "a"], "allow": True}]},
        {"answers": [ROW] * 1001},
        {"more": 1},
    ],
)
def test_a_file_that_is_not_ours_to_the_letter_is_not_used(work, change):
    project = Project(work)
    project.keep([A], YES)
    data = json.dumps({**kept(project), **change})
    with open(project.path, "w", encoding="utf-8") as file:
        file.write(data)
    refused(work)
    with open(project.path, encoding="utf-8") as file:
        assert file.read() == data


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.binary(max_size=300) | st.text(alphabet='{}[]":,1ae').map(str.encode))
def test_whatever_is_in_the_file_reading_it_does_not_fail(work, data):
    project = Project(work)
    project.keep([A], YES) if not os.path.exists(project.path) else None
    with open(project.path, "wb") as file:
        file.write(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApprovalsWarning)
        assert project.read() == {}


@pytest.mark.parametrize("data", [b"[" * 100_000, b" " * (8 << 20) + b"{}"])
def test_a_file_that_is_deep_or_large_is_not_used(work, data):
    Project(work).keep([A], YES)
    with open(Project(work).path, "wb") as file:
        file.write(data)
    refused(work)


def test_so_many_answers_are_kept(work, monkeypatch):
    monkeypatch.setattr(module, "_MOST", 2)
    Project(work).keep([A, B], YES)
    with pytest.raises(OSError, match="holds 2 answers"):
        Project(work).keep([("rule", "c")], YES)
    assert len(Project(work).read()) == 2


def test_what_is_written_at_once_is_all_kept(work):
    def keep(number):
        for each in range(5):
            Project(work).keep([("rule", str(number), str(each))], YES)

    threads = [threading.Thread(target=keep, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Project(work).read()) == 40


def test_who_waits_too_long_for_the_lock_gives_up(work, monkeypatch):
    project = Project(work)
    project.keep([A], YES)
    monkeypatch.setattr(files, "_PATIENCE", 0.05)
    folder = os.open(os.path.dirname(project.path), os.O_RDONLY)
    try:
        with (
            files._locked(folder, project._state._name(".lock")),
            pytest.raises(OSError, match="another process"),
        ):
            project.keep([B], YES)
    finally:
        os.close(folder)


# -- with Answers -------------------------------------------------------------------


def ask(answers, keys):
    op = abc.Remove(path="/workspace/a")
    return answers.ask(op, rule="rule", reason="", deadline=30, keys=keys)


async def test_a_later_workspace_asks_nobody(work):
    asked, records = [], []

    async def approve(question):
        asked.append(question)
        return Answer(True, "project", by="ann")

    def record(question):
        records.append(question.op)
        return records.append

    first = Answers(approve, project=Project(work))
    assert (await ask(first, [A])).allow
    later = Answers(None, project=Project(work), record=record)
    for _ in range(2):
        assert (await ask(later, [A])).allow
    assert not (await ask(later, [A, B])).allow
    assert len(asked) == 1
    assert records == ["remove", "allow project by ann, as kept for the project"]


async def test_what_cannot_be_kept_holds_for_the_session(work, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(work))
    asked = []

    async def approve(question):
        asked.append(question)
        return Answer(True, "project")

    answers = Answers(approve, project=Project(work))
    with pytest.warns(ApprovalsWarning, match="inside the workspace"):
        assert (await ask(answers, [A])).allow
    assert (await ask(answers, [A])).allow
    assert len(asked) == 1
    assert list(work.iterdir()) == []


async def test_an_answer_for_the_session_is_not_kept(work):
    async def approve(_):
        return Answer(True, "session")

    assert (await ask(Answers(approve, project=Project(work)), [A])).allow
    assert Project(work).read() == {}
