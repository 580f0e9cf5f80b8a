"""Skills that a workspace begins with: once, and what was removed stays away."""

from __future__ import annotations

import json
import os
import threading

import pytest

from isobox import LocalWorkspace, SkillsWarning
from isobox._workdir.state import State
from isobox._workspace.skills import package, seeds
from isobox._workspace.skills.seeds import Memory
from isobox.errors import ArchiveError, InvalidArgumentError
from isobox.testing.contract.skills import directory, manual, tar_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    place = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    return place


@pytest.fixture
def project(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


async def names(*seeds, project=None, work=None):
    async with LocalWorkspace(project, skills=seeds) as workspace:
        found = [skill.name for skill in await workspace.list_skills()]
        if work is not None:
            await work(workspace)
        return found


async def test_a_removed_seed_stays_away(tmp_path, project):
    one, two = directory(tmp_path, "one"), directory(tmp_path, "two")

    async def removed(workspace):
        await workspace.remove_skill("one")

    assert await names(one, project=project, work=removed) == ["one"]
    assert await names(one, two, project=project) == ["two"]
    assert await names(one, two, project=project) == ["two"]


async def test_a_seed_that_another_put_in_meanwhile_stays_away(
    tmp_path, project, monkeypatch
):
    one = directory(tmp_path, "one")

    def packed(source, name):
        # What another workspace does meanwhile: put it in, and see it removed.
        Memory(str(project)).add("one")
        return package.packed(source, name)

    monkeypatch.setattr(seeds, "packed", packed)
    assert await names(one, project=project) == []


async def test_a_file_that_another_holds_stops_no_other(tmp_path, project, monkeypatch):
    threads = set()
    change = State.change

    def changed(self, change_to):
        threads.add(threading.current_thread())
        change(self, change_to)

    monkeypatch.setattr(State, "change", changed)
    assert await names(directory(tmp_path, "one"), project=project) == ["one"]
    assert threading.main_thread() not in threads


async def test_a_seed_that_was_changed_stays_as_it_is(tmp_path, project):
    seed = directory(tmp_path, "one")

    async def changed(workspace):
        await workspace.write("skills/one/SKILL.md", manual("one", "Mine."))

    await names(seed, project=project, work=changed)
    async with LocalWorkspace(project, skills=[seed]) as workspace:
        [found] = await workspace.list_skills()
        assert found.description == "Mine."


async def test_a_skill_of_the_name_is_kept(tmp_path, project):
    seed = directory(tmp_path, "one")
    mine = project / "skills" / "one"
    mine.mkdir(parents=True)
    (mine / "SKILL.md").write_text(manual("one", "Mine."))
    async with LocalWorkspace(project, skills=[seed]) as workspace:
        [found] = await workspace.list_skills()
        assert found.description == "Mine."


async def test_a_temporary_directory_begins_anew(tmp_path, state):
    seed = directory(tmp_path, "one")
    async with LocalWorkspace(skills=[seed]) as workspace:
        await workspace.remove_skill("one")
        assert await workspace.list_skills() == []
        await workspace.initialize()
        assert await workspace.list_skills() == []
        await workspace.reset()
        assert [skill.name for skill in await workspace.list_skills()] == ["one"]
    assert not state.exists()


async def test_a_fork_has_the_skills_that_are_left(tmp_path):
    seeds = [directory(tmp_path, "one"), directory(tmp_path, "two")]
    async with LocalWorkspace(skills=seeds) as workspace:
        await workspace.remove_skill("one")
        fork = await workspace.fork()
        async with fork:
            assert [skill.name for skill in await fork.list_skills()] == ["two"]


async def test_the_memory_is_nowhere_that_commands_see(tmp_path, project, state):
    await names(directory(tmp_path, "one"), project=project)
    [kept] = (state / "isobox" / "skills").glob("*.json")
    assert json.loads(kept.read_text())["seeded"] == ["one"]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(project)) == ["skills"]


@pytest.mark.parametrize("text", ["nonsense", "{}", "[]", '{"version": 2}'])
async def test_a_memory_that_is_no_good_is_warned_of(tmp_path, project, state, text):
    seed = directory(tmp_path, "one")
    await names(seed, project=project)
    [kept] = (state / "isobox" / "skills").glob("*.json")
    kept.write_text(text)
    with pytest.warns(SkillsWarning, match="skills"):
        assert await names(seed, project=project) == ["one"]
    assert kept.read_text() == text


async def test_a_memory_inside_the_directory_is_warned_of(
    tmp_path, project, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(project))
    with pytest.warns(SkillsWarning, match="inside the workspace"):
        assert await names(directory(tmp_path, "one"), project=project) == ["one"]


async def test_a_bad_seed_is_an_error(tmp_path, project):
    bad = directory(tmp_path, "bad", text="nothing")
    with pytest.raises(InvalidArgumentError, match="/bad: it is no skill"):
        await names(directory(tmp_path, "one"), bad, project=project)
    good = directory(tmp_path, "two")
    with pytest.raises(ArchiveError, match=r"^skills\[1\]: \.\./a: "):
        await names(good, tar_of(("../a", b"")), project=project)
    for one in ("path", b"bytes", tmp_path):
        with pytest.raises(InvalidArgumentError, match="list"):
            LocalWorkspace(project, skills=one)


def test_two_processes_remember_both(project):
    one, other = Memory(str(project)), Memory(str(project))
    one.add("one")
    other.add("other")
    assert Memory(str(project)).names == {"one", "other"}
