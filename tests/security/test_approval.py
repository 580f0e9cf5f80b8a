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
from isobox.errors import PolicyDeniedError

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
        (work / name).mkdir(exist_ok=True)


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
