"""The manager, with workspaces in memory and in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest
from tests.worlds import Space, World, no_threads  # noqa: F401 - a fixture

from isobox.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    NotEntitledError,
    PathError,
    QueueTimedOutError,
    QuotaError,
    StoreError,
    WorkspaceClosedError,
    WorkspaceHeldError,
)
from isobox.manager import (
    PER_SESSION,
    PER_USER,
    Kind,
    SqlStore,
    State,
    WorkspaceManager,
)
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
    return {each for each in os.listdir(world.basedir) if each[0] != "."}


def kinds(process):
    return dict(process.site.events.counters)


async def get(world, process, *ids, **how):
    return await world.done(process.manager.get_workspace(*(ids or ME), **how))


class TestRequests:
    async def test_one_key_is_one_workspace(self, world):
        process = await world.start()
        asked = [process.manager.get_workspace(*ME) for _ in range(20)]
        found = await world.done(asyncio.gather(*asked))
        assert len({id(each) for each in found}) == 1
        assert kinds(process)["created"] == 1

    async def test_agents_have_their_own_and_sessions_share(self, world):
        process = await world.start()
        first = await get(world, process)
        assert await get(world, process, "ann", "coder", "2") is first
        assert await get(world, process, "ann", "tester", "1") is not first

    @pytest.mark.parametrize(("sharing", "count"), [(PER_USER, 1), (PER_SESSION, 3)])
    async def test_others_ways_to_share(self, world, sharing, count):
        process = await world.start(isolation=sharing)
        ids = (ME, ("ann", "coder", "2"), ("ann", "tester", "1"))
        found = [await get(world, process, *each) for each in ids]
        assert len({each.workspace_id for each in found}) == count

    async def test_who_gives_up_ends_it_for_nobody(self, world):
        process = await world.start()
        first = asyncio.ensure_future(process.manager.get_workspace(*ME))
        second = asyncio.ensure_future(process.manager.get_workspace(*ME))
        await asyncio.sleep(0)
        first.cancel()
        assert (await world.done(second)).workspace_id

    async def test_a_failure_is_everybodys_and_leaves_nothing(self, world, monkeypatch):
        process = await world.start()
        broken = BackendUnavailableError("no", fix="this")

        async def fails(space):
            raise broken

        monkeypatch.setattr(process.manager._running.site.making.kind, "_begin", fails)
        asked = [process.manager.get_workspace(*ME) for _ in range(3)]
        found = await world.done(asyncio.gather(*asked, return_exceptions=True))
        assert found == [broken] * 3
        assert not places(world)
        assert not await process.manager.list_workspaces()
        assert kinds(process)["failed"] == 1
        monkeypatch.undo()
        assert await get(world, process)

    async def test_others_never_wait_for_a_build(self, world, monkeypatch):
        process = await world.start()
        ready = await get(world, process)
        stuck = asyncio.Event()

        async def waits(space):
            await stuck.wait()

        monkeypatch.setattr(process.manager._running.site.making.kind, "_begin", waits)
        asked = asyncio.ensure_future(process.manager.get_workspace("bob", "a", "1"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert await process.manager.get_workspace(*ME) is ready
        assert process.manager.stats().making == 1
        monkeypatch.undo()
        stuck.set()
        await world.done(asked)

    @pytest.mark.parametrize(
        "ids", [("", "a", "1"), ("u", "a", "x" * 1025), (1, "a", "1")]
    )
    async def test_what_is_no_id(self, world, ids):
        process = await world.start()
        with pytest.raises(InvalidArgumentError):
            await process.manager.get_workspace(*ids)

    async def test_any_text_is_an_id(self, world):
        process = await world.start()
        ids = ("\0\ud800", "../..", "\N{MATHEMATICAL SCRIPT CAPITAL X}" * 1024)
        assert await get(world, process, *ids)
        (row,) = await process.manager.list_workspaces("\0\ud800")
        assert row.tenant.agent == "../.."

    async def test_before_it_is_open_and_after(self, world, tmp_path):
        manager = WorkspaceManager(MemoryWorkspace, basedir=tmp_path / "other")
        with pytest.raises(WorkspaceClosedError):
            await manager.get_workspace(*ME)
        async with manager:
            await manager.get_workspace(*ME)
        with pytest.raises(WorkspaceClosedError):
            await manager.get_workspace(*ME)
        await manager.aclose()

    async def test_its_end_refuses_who_waits(self, world):
        process = await world.start(max_live=1)
        await get(world, process)
        asked = asyncio.ensure_future(process.manager.get_workspace("bob", "a", "1"))
        await world.settle()
        await world.done(process.manager.aclose())
        with pytest.raises(WorkspaceClosedError):
            await asked


class TestUse:
    async def test_idle_is_closed_and_its_files_stay(self, world):
        process = await world.start(ttl=30.0)
        workspace = await get(world, process)
        workspace.mark("mine")
        await world.advance(40)
        assert workspace._is_lost()
        assert kinds(process)["reaped"] == 1
        again = await get(world, process)
        assert again.marks() == {"mine"}
        assert kinds(process)["attached"] == 1

    async def test_each_request_is_use(self, world):
        process = await world.start(ttl=30.0)
        workspace = await get(world, process)
        for _ in range(5):
            await world.advance(20)
            assert await get(world, process) is workspace

    async def test_a_lease_keeps_it(self, world):
        process = await world.start(ttl=30.0)
        lease = process.manager.lease(*ME)
        workspace = await world.done(lease.__aenter__())
        await world.advance(200)
        assert not workspace._is_lost()
        assert process.manager.stats().leased == 1
        await lease.__aexit__(None, None, None)
        await world.advance(20)
        assert not workspace._is_lost()
        await world.advance(20)
        assert workspace._is_lost()

    async def test_a_running_command_keeps_it(self, world):
        process = await world.start(ttl=30.0)
        workspace = await get(world, process)
        command = await workspace.start(["sleep", "1000"])
        await world.advance(200)
        assert not workspace._is_lost()
        await command.kill()
        await world.advance(70)
        assert workspace._is_lost()

    async def test_after_the_retention_it_is_deleted(self, world):
        process = await world.start(ttl=30.0, retention=60.0)
        await get(world, process)
        await world.advance(60)
        (row,) = await process.manager.list_workspaces()
        assert row.state is State.CLOSED
        await world.advance(60)
        assert not await process.manager.list_workspaces()
        assert not places(world)
        assert kinds(process)["deleted"] == 1

    async def test_a_sandbox_that_died_comes_back(self, world):
        process = await world.start()
        workspace = await get(world, process)
        workspace.mark("mine")
        workspace._sandbox.crash()
        asked = [process.manager.get_workspace(*ME) for _ in range(5)]
        found = await world.done(asyncio.gather(*asked))
        assert {id(each) for each in found} == {id(workspace)}
        assert not workspace._is_lost()
        assert workspace.marks() == {"mine"}
        assert kinds(process)["recovered"] == 1

    async def test_one_that_is_silent_is_asked_and_comes_back(self, world, monkeypatch):
        process = await world.start()
        workspace = await get(world, process)

        async def silent(_):
            return False

        monkeypatch.setattr(type(workspace._sandbox), "answers", silent)
        assert await get(world, process) is workspace
        await world.advance(2)
        await get(world, process)
        assert kinds(process)["recovered"] == 1

    async def test_events_are_told_and_break_nothing(self, world):
        told = []

        def tell(event):
            told.append(event)
            raise RuntimeError

        process = await world.start(on_event=tell)
        workspace = await get(world, process)
        assert [each.kind for each in told] == [Kind.WAITED, Kind.CREATED]
        assert told[1].workspace_id == workspace.workspace_id
        assert told[1].tenant.user == "ann"


class TestOdd:
    async def test_two_surrogates_are_another_user(self, world):
        process = await world.start()
        one = await get(world, process, "\U0001f600", "a", "1")
        two = await get(world, process, "\ud83d\ude00", "a", "1")
        assert one is not two
        (row,) = await process.manager.list_workspaces("\ud83d\ude00")
        assert row.workspace_id == two.workspace_id

    async def test_a_command_that_runs_is_use(self, world):
        process = await world.start()
        workspace = await get(world, process)
        workspace._activity._going.count += 1
        await world.advance(300)
        workspace._activity._going.count -= 1
        (row,) = await process.manager.list_workspaces()
        assert process.site.holder.now() - row.used_at <= 5.0


class TestOwners:
    async def test_an_agent_joins_another_ones(self, world):
        process = await world.start()
        workspace = await get(world, process)
        name = workspace.workspace_id
        joined = await get(world, process, "ann", "helper", "7", workspace_id=name)
        assert joined is workspace
        await world.settle()
        members = await world.store.members(name)
        assert {(each.agent, each.session) for each in members} == {
            ("coder", "1"),
            ("helper", "7"),
        }

    async def test_anothers_and_none_are_refused_alike(self, world):
        process = await world.start()
        name = (await get(world, process)).workspace_id
        refusals = []
        for wanted in (name, f"{name[:-1]}0", "../x", "spare-" + "a" * 26):
            with pytest.raises(NotEntitledError) as caught:
                await get(world, process, "bob", "a", "1", workspace_id=wanted)
            refusals.append(str(caught.value).replace(wanted, ""))
        assert len(set(refusals)) == 1
        assert kinds(process)["denied"] == 4

    async def test_who_is_entitled_may(self, world):
        async def entitled(caller, record):
            return caller.user == "boss" and record.tenant.user == "ann"

        process = await world.start(entitled=entitled)
        workspace = await get(world, process)
        name = workspace.workspace_id
        assert await get(world, process, "boss", "a", "1", workspace_id=name)
        with pytest.raises(NotEntitledError):
            await get(world, process, "bob", "a", "1", workspace_id=name)

    async def test_only_its_user_closes_or_deletes_it(self, world):
        process = await world.start()
        name = (await get(world, process)).workspace_id
        with pytest.raises(NotEntitledError):
            await process.manager.close_workspace(name, user_id="bob")
        with pytest.raises(NotEntitledError):
            await process.manager.delete_workspace(name, user_id="bob")
        assert await world.done(process.manager.close_workspace(name, user_id="ann"))
        assert not await world.done(process.manager.close_workspace(name))
        await world.done(process.manager.delete_workspace(name, user_id="ann"))
        with pytest.raises(NotEntitledError):
            await process.manager.delete_workspace(name, user_id="ann")
        assert not places(world)

    async def test_who_asks_while_it_is_deleted_gets_a_new_one(self, world):
        process = await world.start()
        workspace = await get(world, process)
        workspace.mark("old")
        name = workspace.workspace_id
        deleting = asyncio.ensure_future(process.manager.delete_workspace(name))
        await asyncio.sleep(0)
        again = await get(world, process)
        await deleting
        assert again.workspace_id == name
        assert not again.marks()


class TestBounds:
    async def test_a_full_manager_closes_what_is_idle(self, world):
        process = await world.start(max_live=2, evict_after=10.0)
        old = await get(world, process, "u1", "a", "1")
        await world.advance(5)
        young = await get(world, process, "u2", "a", "1")
        await world.advance(10)
        await get(world, process, "u3", "a", "1")
        assert old._is_lost()
        assert not young._is_lost()
        assert kinds(process)["evicted"] == 1

    async def test_a_user_makes_room_with_its_own(self, world):
        process = await world.start(max_live_per_user=1, evict_after=10.0)
        other = await get(world, process, "other", "a", "1")
        first = await get(world, process, "ann", "a", "1")
        await world.advance(10)
        await get(world, process, "ann", "b", "1")
        assert first._is_lost()
        assert not other._is_lost()

    async def test_no_place_in_time(self, world):
        process = await world.start(max_live=1, queue_timeout=20.0)
        async with await self.leased(world, process):
            with pytest.raises(QueueTimedOutError, match="20 s"):
                await get(world, process, "bob", "a", "1")
            assert world.clock.monotonic() == pytest.approx(20, abs=1)
        assert process.manager.stats().waiting == 0
        assert kinds(process)["denied"] == 1

    async def test_a_place_that_becomes_free_is_given(self, world):
        process = await world.start(max_live=1)
        lease = await self.leased(world, process)
        async with lease as workspace:
            asked = asyncio.ensure_future(
                process.manager.get_workspace("bob", "a", "1")
            )
            await world.advance(5)
            assert process.manager.stats().waiting == 1
            await world.done(process.manager.close_workspace(workspace.workspace_id))
            assert await world.done(asked)

    async def leased(self, world, process):
        await get(world, process)
        return process.manager.lease(*ME)

    async def test_too_many_wait(self, world):
        process = await world.start(max_live=1, queue_limit=1, queue_timeout=20.0)
        async with await self.leased(world, process):
            asked = asyncio.ensure_future(
                process.manager.get_workspace("bob", "a", "1")
            )
            await world.settle()
            with pytest.raises(QuotaError, match="queue_limit"):
                await get(world, process, "eve", "a", "1")
            with pytest.raises(QueueTimedOutError):
                await world.done(asked)
        assert kinds(process)["denied"] == 2

    @pytest.mark.parametrize(
        "wrong",
        [
            {"ttl": 0},
            {"ttl": float("nan")},
            {"retention": -1},
            {"max_live": 0},
            {"max_live_per_user": True},
            {"max_creating": 0},
            {"creation_rate": 0},
            {"queue_limit": 0},
            {"prewarm": -1},
            {"heartbeat": 5.0, "holder_timeout": 6.0},
            {"prewarm": 1, "options": lambda tenant: {}},
            {"options": {"workspace_id": "mine"}},
            {"options": {"workdir": "/"}},
            {"isolation": "per_planet"},
        ],
    )
    async def test_what_cannot_be(self, world, wrong):
        with pytest.raises(InvalidArgumentError):
            await world.start(**wrong)


class TestSpares:
    async def test_who_comes_first_gets_one(self, world):
        process = await world.start(prewarm=2)
        await world.settle()
        assert process.manager.stats().spares == 2
        workspace = await get(world, process)
        assert workspace.workspace_id.startswith("spare-")
        await world.settle()
        assert process.manager.stats().spares == 2
        (row,) = await process.manager.list_workspaces("ann")
        assert row.workspace_id == workspace.workspace_id

    async def test_it_stays_its_tenants(self, world):
        process = await world.start(prewarm=1, ttl=30.0)
        await world.settle()
        first = await get(world, process)
        first.mark("mine")
        await world.advance(60)
        assert first._is_lost()
        again = await get(world, process)
        assert again.workspace_id == first.workspace_id
        assert again.marks() == {"mine"}
        other = await get(world, process, "bob", "a", "1")
        assert not other.marks()

    async def test_one_that_died_is_made_again_in_its_place(self, world):
        process = await world.start(prewarm=1)
        await world.settle()
        for space in process.open:
            space._sandbox.crash()
        workspace = await get(world, process)
        assert not workspace._is_lost()

    async def test_they_make_room(self, world):
        process = await world.start(prewarm=1, max_live=2)
        await world.settle()
        first = await get(world, process, "u1", "a", "1")
        await world.done(process.manager.close_workspace(first.workspace_id))
        await get(world, process, "u2", "a", "1")
        await world.settle()
        assert await get(world, process, "u1", "a", "1")

    async def test_of_the_dead_are_deleted(self, world):
        process = await world.start(prewarm=2)
        await world.settle()
        process.kill()
        last = await world.start()
        await world.advance(25)
        await world.done(last.manager.sweep())
        assert not places(world)

    @pytest.mark.parametrize("steps", range(10, 16))
    async def test_of_one_that_died_while_making_it(self, world, steps):
        process = await world.start(prewarm=1, dies_in=steps)
        await world.settle()
        process.kill()
        await world.advance(25)
        last = await world.start()
        await world.done(last.manager.sweep())
        assert not places(world)


class TestProcesses:
    async def test_one_is_handed_over(self, world):
        one, other = await world.start(), await world.start()
        first = await get(world, one)
        first.mark("mine")
        second = await get(world, other)
        assert first._is_lost()
        assert second.marks() == {"mine"}
        assert kinds(one)["handed_over"] == 1

    async def test_one_in_use_is_not(self, world):
        one, other = await world.start(), await world.start(queue_timeout=10.0)
        lease = one.manager.lease(*ME)
        await world.done(lease.__aenter__())
        with pytest.raises(WorkspaceHeldError) as caught:
            await get(world, other)
        assert caught.value.holder == one.site.holder.name
        await lease.__aexit__(None, None, None)
        assert await get(world, other)

    async def test_what_a_dead_one_had_is_taken_over(self, world):
        one, other = await world.start(), await world.start()
        first = await get(world, one)
        first.mark("mine")
        one.kill()
        second = await get(world, other)
        assert second.marks() == {"mine"}
        assert world.clock.monotonic() < 30

    async def test_one_that_stood_still_begins_anew(self, world):
        one, other = await world.start(), await world.start()
        first = await get(world, one)
        one.stalled = True
        await world.advance(30)
        second = await get(world, other)
        one.resume()
        await world.settle()
        assert first._is_lost()
        assert not second._is_lost()
        assert kinds(one)["lost"] == 1

    async def test_it_asks_before_it_trusts_what_it_had(self, world):
        one, other = await world.start(), await world.start()
        first = await get(world, one)
        one.stalled = True
        await world.advance(30)
        await get(world, other)
        one.stalled, one.late = False, []
        again = await get(world, one)
        assert again is not first
        assert first._is_lost()

    async def test_one_deletes_what_another_has(self, world):
        one, other = await world.start(), await world.start()
        name = (await get(world, one)).workspace_id
        await world.done(other.manager.delete_workspace(name, user_id="ann"))
        assert not one.open
        assert not places(world)

    async def test_a_deletion_that_waited_spares_the_next_one(self, world):
        one, other = await world.start(), await world.start()
        lease = one.manager.lease(*ME)
        name = (await world.done(lease.__aenter__())).workspace_id
        late = asyncio.ensure_future(other.manager.delete_workspace(name))
        await world.advance(1)
        await lease.__aexit__(None, None, None)
        await world.done(one.manager.delete_workspace(name))
        again = await get(world, one)
        again.mark("new")
        await world.done(late)
        assert again.workspace_id == name
        assert again.marks() == {"new"}
        assert await get(world, one) is again

    async def test_also_one_that_waited_in_the_same(self, world):
        one, other = await world.start(), await world.start()
        name = (await get(world, one)).workspace_id
        (record,) = await other.manager.list_workspaces()
        await world.done(other.manager.delete_workspace(name))
        again = await get(world, other)
        assert again.workspace_id == name
        assert not await world.done(other.manager._running.deleting.delete(record))
        assert await get(world, other) is again

    async def test_quotas_are_of_all(self, world):
        one = await world.start(max_live=1)
        other = await world.start(max_live=1, queue_timeout=5.0)
        await get(world, one)
        with pytest.raises(QueueTimedOutError):
            await get(world, other, "bob", "a", "1")


class TestStores:
    async def test_one_that_fails_is_told_and_breaks_nothing(self, world):
        process = await world.start()
        process.fails_in = 2
        with pytest.raises(StoreError):
            await get(world, process)
        assert await get(world, process)

    @pytest.mark.parametrize("steps", range(1, 8))
    async def test_what_it_could_not_be_told_it_is_told_later(self, world, steps):
        one, other = await world.start(), await world.start()
        workspace = await get(world, one)
        workspace.mark("mine")
        one.fails_in = steps
        with contextlib.suppress(StoreError):
            await world.done(one.manager.close_workspace(workspace.workspace_id))
        one.fails_in = None
        assert (await get(world, other)).marks() == {"mine"}

    async def test_one_that_is_empty_learns_what_there_is(self, world, tmp_path):
        process = await world.start(prewarm=1)
        workspace = await get(world, process)
        workspace.mark("mine")
        process.kill()
        async with SqlStore(tmp_path / "another.db") as store:
            world.store = store
            again = await world.start()
            (row,) = await again.manager.list_workspaces()
            assert row.workspace_id == workspace.workspace_id
            assert (await get(world, again)).marks() == {"mine"}
            await world.done(again.manager.aclose())


class TestRemains:
    async def test_files_that_cannot_be_removed_are_told(self, world, monkeypatch):
        told = []
        process = await world.start(on_event=told.append)
        name = (await get(world, process)).workspace_id
        with monkeypatch.context() as patched:
            patched.setattr("isobox.manager.trash.sweep_tree", lambda path: None)
            with pytest.raises(PathError, match=r"\.trash") as caught:
                await world.done(process.manager.delete_workspace(name))
        assert os.path.isdir(caught.value.filename)
        assert [each.kind for each in told][-2:] == [Kind.CLOSED, Kind.FAILED]
        assert told[-1].reason.startswith("deleting: ")
        assert not (await get(world, process)).marks()
        await world.done(process.manager.sweep())
        assert not os.path.exists(caught.value.filename)

    async def test_one_deletion_is_one_event(self, world, monkeypatch):
        process = await world.start()
        name = (await get(world, process)).workspace_id
        places, begun, over = process.site.places, asyncio.Event(), asyncio.Event()
        remove, count = places.remove, []

        async def removes(record):
            count.append(record)
            begun.set()
            await over.wait()
            return await remove(record)

        monkeypatch.setattr(places, "remove", removes)
        deleting = asyncio.ensure_future(process.manager.delete_workspace(name))
        await world.done(begun.wait())
        await world.done(process.manager.sweep())
        over.set()
        await world.done(deleting)
        assert len(count) == 1
        assert kinds(process)["deleted"] == 1

    async def test_files_that_are_gone_at_its_end_are_one_line(
        self, world, monkeypatch, caplog
    ):
        process = await world.start()
        name = (await get(world, process)).workspace_id

        async def gone(space):
            process.open.discard(space)
            raise FileNotFoundError(2, "No such file", "audit.jsonl")

        monkeypatch.setattr(Space, "_end", gone)
        await world.done(process.manager.close_workspace(name))
        (line,) = [each for each in caplog.records if "closing" in each.message]
        assert line.exc_info is None
        assert "audit.jsonl" in line.message


class TestPurges:
    async def test_a_session_that_joined(self, world):
        process = await world.start()
        leader = await get(world, process)
        name = leader.workspace_id
        await get(world, process, "ann", "helper", "h1", workspace_id=name)
        await get(world, process, "ann", "helper", "h2", workspace_id=name)
        for session in ("1", "h1", "h2"):
            await leader.offload_context(session, [{"a": 1}])
        await world.settle()
        await world.done(process.manager.purge_session("ann", "helper", "h1"))
        assert not await leader.exists("sessions/h1")
        assert await leader.exists("sessions/h2")
        await world.done(process.manager.purge_agent("ann", "helper"))
        assert not await leader.exists("sessions/h2")
        assert await leader.exists("sessions/1")
        (member,) = await world.store.members(name)
        assert (member.agent, member.session) == ("coder", "1")

    async def test_nobody_else_keeps_what_an_owner_left(self, world):
        process = await world.start(entitled=lambda caller, record: True)
        workspace = await get(world, process)
        name = workspace.workspace_id
        # The same agent and session, but for the user.
        await get(world, process, "bob", "coder", "1", workspace_id=name)
        await workspace.offload_context("1", [{"a": 1}])
        await world.settle()
        assert len(await world.store.members(name)) == 2
        await world.done(process.manager.purge_session("bob", "coder", "1"))
        assert await workspace.exists("sessions/1")
        await get(world, process, "bob", "coder", "1", workspace_id=name)
        await world.settle()
        await world.done(process.manager.purge_session(*ME))
        assert not await workspace.exists("sessions/1")

    async def test_who_joined_does_not_remove_what_an_owner_left(self, world):
        process = await world.start(
            isolation=PER_SESSION, entitled=lambda caller, record: True
        )
        workspace = await get(world, process)
        name = workspace.workspace_id
        for session in ("1", "2"):
            await get(world, process, "bob", "a", session, workspace_id=name)
            await workspace.offload_context(session, [{"a": 1}])
            await world.settle()
            await world.done(process.manager.purge_session("bob", "a", session))
        assert await workspace.exists("sessions/1")
        assert not await workspace.exists("sessions/2")

    async def test_an_agent_of_another_user_is_another(self, world):
        process = await world.start(
            isolation=PER_USER, entitled=lambda caller, record: True
        )
        workspace = await get(world, process)
        name = workspace.workspace_id
        await get(world, process, "bob", "coder", "bobs", workspace_id=name)
        for session in ("1", "bobs"):
            await workspace.offload_context(session, [{"a": 1}])
        await world.settle()
        await world.done(process.manager.purge_agent("ann", "coder"))
        assert not await workspace.exists("sessions/1")
        assert await workspace.exists("sessions/bobs")
        await world.done(process.manager.purge_agent("bob", "coder"))
        assert not await workspace.exists("sessions/bobs")

    async def test_a_session_of_its_own(self, world):
        process = await world.start(isolation=PER_SESSION)
        await get(world, process)
        other = await get(world, process, "ann", "coder", "2")
        await world.done(process.manager.purge_session(*ME))
        (row,) = await process.manager.list_workspaces()
        assert row.workspace_id == other.workspace_id

    async def test_a_session_among_others(self, world):
        process = await world.start()
        workspace = await get(world, process)
        await get(world, process, "ann", "coder", "2")
        for session in ("1", "2"):
            await workspace.offload_context(session, [{"a": 1}])
        await world.done(process.manager.purge_session(*ME))
        assert not await workspace.exists("sessions/1")
        assert await workspace.exists("sessions/2")
        members = await world.store.members(workspace.workspace_id)
        assert [each.session for each in members] == ["2"]

    async def test_an_agent(self, world):
        process = await world.start()
        await get(world, process)
        other = await get(world, process, "ann", "tester", "1")
        await world.done(process.manager.purge_agent("ann", "coder"))
        (row,) = await process.manager.list_workspaces()
        assert row.workspace_id == other.workspace_id

    async def test_an_agent_among_others(self, world):
        process = await world.start(isolation=PER_USER)
        workspace = await get(world, process)
        await get(world, process, "ann", "tester", "2")
        await get(world, process, "ann", "tester", "3")
        await get(world, process, "ann", "coder", "3")
        for session in ("1", "2", "3"):
            await workspace.offload_context(session, [{"a": 1}])
        await world.settle()
        await world.done(process.manager.purge_agent("ann", "tester"))
        kept = [each.path for each in (await workspace.scan("sessions")).entries]
        assert kept == ["/workspace/sessions/1", "/workspace/sessions/3"]

    async def test_nobody_is_nothing(self, world):
        process = await world.start()
        await world.done(process.manager.purge_session("x", "y", "z"))
        await world.done(process.manager.purge_agent("x", "y"))
        assert not process.open
