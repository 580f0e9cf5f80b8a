"""What is no name, no option and no hook is refused with words, and harms nobody."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from tests.worlds import World, no_threads  # noqa: F401 - a fixture

from isobox.errors import (
    InvalidArgumentError,
    NotEntitledError,
    PathError,
    StoreError,
)
from isobox.manager import PER_USER, SqlStore, WorkspaceManager, keys
from isobox.manager.places import Places
from isobox.manager.records import Record, State, Tenant
from isobox.testing.fake import MemoryWorkspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_threads")]

ME = ("ann", "coder", "1")


@pytest.fixture
async def world(tmp_path):
    async with SqlStore(tmp_path / "manager.db") as store:
        world = World(str(tmp_path / "places"), store)
        yield world
        for process in world.processes:
            if not process.dead:
                await world.done(process.manager.aclose())
                assert not process.open
        await world.end()


def places(world):
    """Return the names of workspaces' directories."""
    return {each for each in os.listdir(world.basedir) if each[0] != "."}


async def get(world, process, *ids, **how):
    return await world.done(process.manager.get_workspace(*(ids or ME), **how))


class Everybody(str):
    """Text that says of itself that it is everybody's."""

    __slots__ = ()

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __hash__(self):
        return str.__hash__(self)

    def __str__(self):
        return "ann"

    def __getitem__(self, _):
        return "../../"


class TestNames:
    async def test_text_that_lies_is_taken_as_the_text_it_is(self, world):
        process = await world.start()
        name = (await get(world, process)).workspace_id
        liar = Everybody("eve")
        with pytest.raises(NotEntitledError):
            await get(world, process, liar, "a", "1", workspace_id=name)
        with pytest.raises(NotEntitledError):
            await process.manager.delete_workspace(name, user_id=liar)
        with pytest.raises(NotEntitledError):
            await process.manager.close_workspace(name, user_id=liar)
        with pytest.raises(NotEntitledError):
            await process.manager.delete_workspace(Everybody("x"), user_id="ann")
        theirs = await get(world, process, liar, Everybody("a"), Everybody("1"))
        assert theirs.workspace_id.startswith("eve-a-")
        assert await get(world, process, "eve", "a", "1") is theirs
        (row,) = await process.manager.list_workspaces(liar)
        assert type(row.tenant.user) is str

    @pytest.mark.parametrize("wrong", [b"x", 7, ["x"], {}, object()])
    async def test_what_is_no_text_is_no_name(self, world, wrong):
        manager = (await world.start()).manager
        for asked in (
            manager.get_workspace(*ME, workspace_id=wrong),
            manager.get_workspace(wrong, "a", "1"),
            manager.lease("u", wrong, "1").__aenter__(),
            manager.close_workspace(wrong),
            manager.delete_workspace(wrong),
            manager.close_workspace("x", user_id=wrong),
            manager.delete_workspace("x", user_id=wrong),
            manager.list_workspaces(wrong),
            manager.list_workspaces(agent_id=wrong),
            manager.list_workspaces(session_id=wrong),
            manager.list_workspaces(after=wrong),
            manager.purge_session("u", "a", wrong),
            manager.purge_agent("u", wrong),
        ):
            with pytest.raises(InvalidArgumentError):
                await asked

    @pytest.mark.parametrize(
        "wrong", ["\0", "\ud800", "x" * 10**6, "..", "a/b", "%s%n", "'; drop table x"]
    )
    async def test_an_id_that_cannot_be_is_nobodys(self, world, wrong):
        process = await world.start()
        for asked in (
            process.manager.get_workspace(*ME, workspace_id=wrong),
            process.manager.close_workspace(wrong),
            process.manager.delete_workspace(wrong, user_id="ann"),
        ):
            with pytest.raises(NotEntitledError) as caught:
                await asked
            assert len(str(caught.value)) < 300
            assert str(caught.value).isprintable()

    @pytest.mark.parametrize(
        "wrong",
        [{"limit": "1"}, {"limit": -1}, {"states": ["gone"]}, {"states": "live"}],
    )
    async def test_a_list_of_what_there_is_not(self, world, wrong):
        process = await world.start()
        with pytest.raises(InvalidArgumentError):
            await process.manager.list_workspaces(**wrong)

    async def test_states_may_be_words(self, world):
        process = await world.start()
        await get(world, process)
        (row,) = await process.manager.list_workspaces(states=["live"])
        assert row.state is State.LIVE


class TestOptions:
    @pytest.mark.parametrize(
        "options",
        [
            lambda tenant: None,
            lambda tenant: [("env", {})],
            lambda tenant: {1: 2},
            lambda tenant: {"labels": None},
            lambda tenant: {"labels": ["a"]},
            lambda tenant: {"workspace_id": "mine"},
            lambda tenant: {"nobody": "knows this"},
        ],
    )
    async def test_what_a_function_may_not_return(self, world, options):
        process = await world.start(options=options)
        with pytest.raises(InvalidArgumentError):
            await get(world, process)
        assert not places(world)

    async def test_a_failure_of_it_is_its_callers(self, world):
        def fails(tenant):
            raise ZeroDivisionError

        process = await world.start(options=fails)
        with pytest.raises(ZeroDivisionError):
            await get(world, process)
        assert not places(world)
        assert not await process.manager.list_workspaces()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"options": 7},
            {"options": ["image"]},
            {"on_event": 7},
            {"entitled": True},
            {"audit": "yes"},
        ],
    )
    async def test_what_cannot_be_called_or_read(self, tmp_path, wrong):
        with pytest.raises(InvalidArgumentError):
            WorkspaceManager(MemoryWorkspace, basedir=tmp_path / "b", **wrong)

    async def test_hooks_that_would_have_to_be_awaited(self, tmp_path):
        async def waits(_):
            pass

        class Waits:
            async def __call__(self, event):
                pass

        for wrong in ({"options": waits}, {"on_event": waits}, {"on_event": Waits()}):
            with pytest.raises(InvalidArgumentError, match="async"):
                WorkspaceManager(MemoryWorkspace, basedir=tmp_path / "b", **wrong)

    @pytest.mark.parametrize("answer", [1, "yes", [True], None])
    async def test_only_yes_is_yes(self, world, answer):
        process = await world.start(entitled=lambda caller, record: answer)
        name = (await get(world, process)).workspace_id
        with pytest.raises(NotEntitledError):
            await get(world, process, "eve", "a", "1", workspace_id=name)


class TestEntitlement:
    async def test_who_was_entitled_to_the_last_one_is_asked_about_the_next(
        self, world
    ):
        asked = []

        async def entitled(caller, record):
            asked.append(record.place)
            if len(asked) == 1:
                # Meanwhile its user deletes it and begins anew.
                await process.manager.delete_workspace(record.workspace_id)
                await process.manager.get_workspace(*ME)
            return len(asked) == 1

        process = await world.start(entitled=entitled)
        name = (await get(world, process)).workspace_id
        with pytest.raises(NotEntitledError):
            await get(world, process, "eve", "a", "1", workspace_id=name)
        assert len(set(asked)) == 2

    async def test_a_spare_that_was_deleted_is_not_made_again_by_its_name(self, world):
        async def entitled(caller, record):
            await process.manager.delete_workspace(record.workspace_id)
            return True

        process = await world.start(entitled=entitled, prewarm=1)
        await world.settle()
        name = (await get(world, process)).workspace_id
        assert name.startswith("spare-")
        with pytest.raises(NotEntitledError):
            await get(world, process, "eve", "a", "1", workspace_id=name)
        rows = await process.manager.list_workspaces("ann")
        assert name not in [row.workspace_id for row in rows]


RECORD = Record(
    workspace_id="w",
    key=keys.key(keys.PER_USER, "local", Tenant(user="u")),
    tenant=Tenant(user="u"),
    backend="local",
    place="w.00000001",
    state=State.LIVE,
    created_at=5.0,
    used_at=5.0,
)


class TestPlaces:
    async def test_a_full_disk_leaves_nothing_half_written(self, tmp_path, monkeypatch):
        places = Places(tmp_path / "b")
        places.open()

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
        for _ in range(3):
            with pytest.raises(PathError, match="No space"):
                places.make(RECORD, "holder")
        assert os.listdir(f"{places.path}/{RECORD.place}") == []

    async def test_what_cannot_be_read_is_left_out(self, tmp_path, monkeypatch):
        places = Places(tmp_path / "b")
        places.open()
        places.make(RECORD, "holder")

        def broken(*_, **__):
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fstat", broken)
            found = list(places.owners())
        assert found == []


async def test_a_manager_is_opened_again_after_its_end(tmp_path):
    manager = WorkspaceManager(MemoryWorkspace, basedir=tmp_path / "b", prewarm=1)
    for _ in range(3):
        async with manager:
            assert await manager.get_workspace(*ME)
    assert not manager.stats().live


def test_also_in_another_loop(tmp_path):
    manager = WorkspaceManager(MemoryWorkspace, basedir=tmp_path / "b")

    async def once():
        async with manager:
            await asyncio.gather(*(manager.get_workspace(*ME) for _ in range(5)))

    for _ in range(2):
        asyncio.run(once())


async def test_a_debt_among_many_workspaces_is_found(world):
    process = await world.start(isolation=PER_USER)
    now = process.site.holder.now()
    for number in range(150):
        whose = Tenant(user="ann", agent=f"a{number}")
        key = keys.key_of("memory", whose)
        name = f"aaa-{number}"
        other = Record(
            workspace_id=name,
            key=key,
            tenant=whose,
            backend="memory",
            place=keys.place(name),
            state=State.LIVE,
            created_at=now,
            used_at=now,
        )
        await world.store.adopt(other, now)
    # Its claim is done and the answer lost: nobody else has it until that is told.
    process.fails_in = 1
    with pytest.raises(StoreError):
        await get(world, process)
    await world.done(process.manager.sweep())
    other = await world.start(isolation=PER_USER, queue_timeout=5.0)
    assert await get(world, other)


async def test_looking_for_orphans_stops_no_beat(tmp_path, monkeypatch):
    base = tmp_path / "b"
    async with WorkspaceManager(MemoryWorkspace, basedir=base) as manager:
        await manager.get_workspace(*ME)
    read = []
    owner = Places._owner

    def told(self, name):
        read.append((name, threading.current_thread() is threading.main_thread()))
        return owner(self, name)

    monkeypatch.undo()
    monkeypatch.setattr(Places, "_owner", told)
    async with WorkspaceManager(MemoryWorkspace, basedir=base) as manager:
        await manager.get_workspace(*ME)
        await asyncio.sleep(0.1)
    # It is somebody's, as its name says: there is nothing to read.
    assert read == []
