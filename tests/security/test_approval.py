"""What a person answers, on real workspaces: how long it holds, and its record."""

from __future__ import annotations

import asyncio
import json

import anyio
import pytest

from isobox import (
    Answer,
    BubblewrapWorkspace,
    LocalWorkspace,
    MemorySink,
    Pending,
    Policy,
)
from isobox.errors import InvalidArgumentError, PolicyDeniedError

pytestmark = pytest.mark.anyio

KINDS = {"local": LocalWorkspace, "bubblewrap": BubblewrapWorkspace}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


class Person:
    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def __call__(self, question):
        self.asked.append(question)
        return self.answer


def files(work):
    for name in ("a", "b"):
        (work / name).mkdir(exist_ok=True, parents=True)
        # Whoever works there may remove it.
        for each in (work, work / name):
            each.chmod(0o777)


@pytest.mark.parametrize(("scope", "asked"), [("once", 2), ("session", 1)])
async def test_an_answer_holds_as_long_as_it_says(kind, work, scope, asked):
    person = Person(Answer(True, scope))
    async with kind(work, policy=Policy.auto(), approve=person) as ws:
        where = ws.root
        for _ in range(2):
            files(work)
            assert (await ws.run("rm -r a")).ok
        assert len(person.asked) == asked
        assert (await ws.run("rm -r b")).ok
        assert len(person.asked) == asked + 1
    assert {each.workspace for each in person.asked} == {ws.workspace_id}
    assert person.asked[0].preview == f"in {where}\nrm -r a"
    assert person.asked[0].risk == "removes files"


async def test_a_yes_for_the_session_is_for_the_directory_too(kind, work):
    person = Person(Answer(True, "session"))
    async with kind(work, policy=Policy.auto(), approve=person) as ws:
        shell = ws.shell("s")

        async def removed(times):
            files(work)
            files(work / "other")
            await shell.run("rm -r a", check=True)
            assert len(person.asked) == times

        (work / "other").mkdir()
        await removed(1)
        await removed(1)
        assert not (work / "a").exists()
        await shell.run("cd other; PWD=..")
        await removed(2)
        await removed(2)
        await shell.run("cd ..")
        await removed(2)
        assert [each.facts["cwd"] for each in person.asked] == [
            ws.root,
            f"{ws.root}/other",
        ]


async def test_a_directory_of_the_same_name_is_told_by_where_it_is(kind, work):
    person = Person(Answer(True, "session"))
    async with kind(work, policy=Policy.auto(), approve=person) as ws:
        files(work / "one")
        files(work / "two")
        (work / "link").symlink_to("one")
        shell = ws.shell("s")
        await shell.run("cd link")
        await shell.run("rm -r a", check=True)
        await shell.run("cd ..")
        await ws.run("ln -sfn two link")
        await shell.run("cd link")
        await shell.run("rm -r a", check=True)
    assert len(person.asked) == 2


async def test_a_reset_begins_a_session(kind, work):
    person = Person(Answer(True, "session"))
    async with kind(work, policy=Policy.auto(), approve=person) as ws:
        await ws.run("rm -rf a")
        await ws.reset()
        await ws.run("rm -rf a")
    assert len(person.asked) == 2


async def test_an_answer_for_the_project_holds_in_later_workspaces(work, state):
    person = Person(Answer(True, "project", by="ann"))
    options = {"policy": Policy.auto()}
    async with BubblewrapWorkspace(work, approve=person, **options) as ws:
        await ws.run("rm -rf a")
    files(work)
    sink = MemorySink()
    async with BubblewrapWorkspace(work, audit=sink, **options) as ws:
        assert (await ws.run("rm -rf a")).ok
        with pytest.raises(PolicyDeniedError):
            await ws.run("rm -rf b")
        # Nothing of it is seen inside, or reached.
        assert not (await ws.run(f"ls {state}")).ok
    assert [each["answer"] for each in sink.records if each["kind"] == "answer"] == [
        "allow project by ann, as kept for the project"
    ]
    (file,) = (state / "isobox" / "approvals").glob("*.json")
    assert json.loads(file.read_text())["project"] == str(work)
    assert list(work.iterdir()) == [work / "b"]


async def test_where_commands_could_write_answers_themselves_none_are_kept(work, state):
    person = Person(Answer(True, "project"))
    for _ in range(2):
        async with LocalWorkspace(work, policy=Policy.auto(), approve=person) as ws:
            for _ in range(2):
                await ws.run("rm -rf a")
    assert len(person.asked) == 2
    assert not state.exists()


async def test_questions_and_answers_are_on_record(kind, work):
    sink = MemorySink()
    person = Person(Answer(False, message="no", by="ann"))
    async with kind(work, policy=Policy.auto(), approve=person, audit=sink) as ws:
        with pytest.raises(PolicyDeniedError):
            await ws.run("rm -r a")
    kinds = [each["kind"] for each in sink.records]
    assert kinds == [
        "lifecycle",
        "intent",
        "question",
        "answer",
        "outcome",
        "lifecycle",
    ]
    question, answer = sink.records[2:4]
    assert (question["op"], question["rule"]) == ("spawn", "rm -r")
    assert answer["answer"] == "deny once by ann"
    assert question["number"] == answer["number"]


async def test_closing_answers_everything_with_no(kind, work):
    front = Pending()
    async with kind(work, policy=Policy.auto(), approve=front) as ws:
        waiting = [asyncio.create_task(ws.run(f"rm -r {n}")) for n in range(20)]
        with anyio.fail_after(20):
            while len(front.questions()) < 20:
                await anyio.sleep(0.01)
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, PolicyDeniedError) for each in found)
    assert front.questions() == []


async def test_a_server_answers_by_id(kind, work):
    front = Pending()
    files(work)
    async with kind(work, policy=Policy.auto(), approve=front) as ws:
        waiting = [asyncio.create_task(ws.run(f"rm -r {name}")) for name in "ab"]
        async for question in front.stream():
            allow = question.preview.endswith("a")
            front.answer(question.id, Answer(allow, message="not b"))
            if not allow:
                break
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert found[0].ok
    assert "not b" in str(found[1])
    assert list(work.iterdir()) == [work / "b"]


async def test_a_workspace_on_the_home_cannot_answer_for_others(tmp_path, monkeypatch):
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME")
    forge = """
        mkdir -p .local/state/isobox/approvals; echo x > .local/state/isobox/approvals/x
        mv .local aside; mv .local/state .local/aside; mv .local/state/isobox aside
        mkdir -p .local/state/isobox/approvals; echo y > .local/state/isobox/approvals/y
        rm -r .local; touch .local/mine .local/state/mine
    """
    for mode in ("live", "copy"):
        async with BubblewrapWorkspace(home, mode=mode) as ws:
            await ws.run(forge)
            if mode == "copy":
                await ws.apply(skip_refused=True)
        kept = home / ".local/state/isobox"
        assert not kept.is_symlink()
        assert [*kept.rglob("*")] == [], mode
    # What the host keeps there is found as before.
    person = Person(Answer(True, "project"))
    for _ in range(2):
        files(project)
        async with BubblewrapWorkspace(
            project, policy=Policy.auto(), approve=person
        ) as ws:
            await ws.run("rm -r a", check=True)
    assert len(person.asked) == 1


async def test_a_workspace_where_answers_are_kept_is_refused(tmp_path, state):
    for place in (state / "isobox", state / "isobox" / "approvals"):
        place.mkdir(parents=True, exist_ok=True)
        with pytest.raises(InvalidArgumentError, match="must not write"):
            async with BubblewrapWorkspace(place):
                pass
