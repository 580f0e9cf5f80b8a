"""Who has lost a workspace cannot use it, whatever it still holds in its hand."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.worlds import World, no_threads  # noqa: F401 - a fixture

from isobox import LocalWorkspace
from isobox._core.ops import Scan
from isobox.errors import StoreError, WorkspaceClosedError
from isobox.manager import SqlStore, WorkspaceManager
from isobox.manager.clock import SystemClock
from isobox.manager.holder import Holder
from isobox.testing.clock import VirtualClock
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
                process.fails_in = None
                await world.done(process.manager.aclose())
                assert not process.open
        await world.end()


async def get(world, process, *ids, **how):
    return await world.done(process.manager.get_workspace(*(ids or ME), **how))


class TestAfterAStop:
    async def test_a_handle_of_before_does_nothing(self, world):
        one, other = await world.start(), await world.start()
        first = await get(world, one)
        one.stalled = True
        await world.advance(30)
        await get(world, other)
        # It goes on, and the first that happens is not its heart's beat.
        one.stalled, one.late = False, []
        with pytest.raises(WorkspaceClosedError):
            await first.write("note", "x")
        with pytest.raises(WorkspaceClosedError):
            await first.run(["true"])

    async def test_one_that_nobody_took_goes_on_after_its_next_beat(self, world):
        one = await world.start()
        first = await get(world, one)
        one.stalled = True
        await world.advance(30)
        one.stalled, one.late = False, []
        with pytest.raises(WorkspaceClosedError):
            await first.write("note", "x")
        second = await get(world, one)
        assert second is not first
        await second.write("note", "x")

    async def test_a_late_beat_that_comes_in_time_keeps_it(self, world):
        one = await world.start(heartbeat=5.0, holder_timeout=20.0)
        first = await get(world, one)
        one.stalled = True
        await world.advance(19)
        one.stalled, one.late = False, []
        await first.write("note", "x")

    async def test_who_cannot_ask_the_store_does_not_guess(self, world):
        one = await world.start()
        first = await get(world, one)
        one.stalled = True
        await world.advance(30)
        one.stalled, one.late = False, []
        one.fails_in = 2
        with pytest.raises(StoreError):
            await first.write("note", "x")


class TestHandles:
    async def test_one_that_was_closed_is_not_opened_behind_the_manager(self, world):
        process = await world.start()
        workspace = await get(world, process)
        await world.done(process.manager.close_workspace(workspace.workspace_id))
        for again in (workspace.initialize, workspace.reset, workspace.__aenter__):
            with pytest.raises(WorkspaceClosedError):
                await again()
        assert not process.open
        assert await get(world, process) is not workspace

    async def test_one_that_was_deleted_does_not_touch_the_next(self, tmp_path):
        async with WorkspaceManager(LocalWorkspace, basedir=tmp_path / "b") as manager:
            old = await manager.get_workspace(*ME)
            await manager.delete_workspace(old.workspace_id)
            new = await manager.get_workspace(*ME)
            await new.write("file", "new")
            assert new.workspace_id == old.workspace_id
            with pytest.raises(WorkspaceClosedError):
                await old.initialize()
            with pytest.raises(WorkspaceClosedError):
                await old.write("file", "old")
            assert await new.read_text("file") == "new"

    async def test_one_that_its_user_closed_or_reset_is_the_managers_still(self, world):
        process = await world.start()
        workspace = await get(world, process)
        await workspace.close()
        await workspace.initialize()
        await workspace.reset()
        assert await get(world, process) is workspace
        await workspace.close()
        assert await get(world, process) is workspace

    async def test_after_the_managers_end_it_is_no_holder_again(self, world):
        process = await world.start()
        workspace = await get(world, process)
        perform = workspace._funnel()
        await world.done(process.manager.aclose())
        with pytest.raises(WorkspaceClosedError):
            await perform(Scan(path="/workspace", depth=0))
        assert await world.store.holders(world.clock.time()) == []

    async def test_after_the_managers_end_nothing_is_opened(self, tmp_path):
        async with WorkspaceManager(MemoryWorkspace, basedir=tmp_path / "b") as manager:
            workspace = await manager.get_workspace(*ME)
        with pytest.raises(WorkspaceClosedError):
            await workspace.initialize()


class TestNames:
    async def test_processes_that_were_forked_are_different_holders(self, tmp_path):
        base = tmp_path / "base"
        manager = WorkspaceManager(MemoryWorkspace, basedir=base)
        named = manager._running.site.holder
        async with manager:
            first = named.name
        async with WorkspaceManager(MemoryWorkspace, basedir=base) as other:
            assert other._running.site.holder.name != first
        # As after a fork: the same object is opened in another process.
        async with manager:
            assert named.name != first
            assert await manager.get_workspace(*ME)


class TimedStore:
    """A store with a clock; what it is asked may take a while."""

    def __init__(self, clock, *, ahead=0.0):
        self.clock = clock
        self.ahead = ahead
        self.takes = []
        self.beats = []

    async def time(self):
        now = self.clock.time() + self.ahead
        if self.takes:
            self.clock.advance(self.takes.pop(0))
        return now

    async def beat(self, holder, now, until, used):
        self.beats.append((self.clock.time() + self.ahead, now, until))
        return ()


def holder(store, clock):
    return Holder(store, clock, timeout=20.0, used=dict, on_lost=lambda name: None)


class SteppedClock(VirtualClock):
    """A clock whose wall clock somebody has set."""

    stepped = 0.0

    def time(self):
        return super().time() + self.stepped


class TestClocks:
    async def test_a_stop_while_the_time_is_asked_makes_nobody_live_longer(self):
        clock = VirtualClock()
        store = TimedStore(clock)
        one = holder(store, clock)
        store.takes = [60.0]
        await one.ensure()
        server, now, until = store.beats[-1]
        assert abs(now - server) < 1
        assert clock.time() + 20 >= until
        clock.advance(until - clock.time())
        assert not one.lives

    async def test_an_answer_that_is_always_slow_is_believed_to_its_doubt(self):
        clock = VirtualClock()
        store = TimedStore(clock)
        one = holder(store, clock)
        store.takes = [8.0] * 10
        await one.ensure()
        until = store.beats[-1][-1]
        # The store may have given it away as soon as `until` by its own clock.
        clock.advance(until - clock.time())
        assert not one.lives

    async def test_a_wall_clock_that_is_set_is_no_matter_if_the_store_has_one(self):
        clock = SteppedClock()
        one = holder(TimedStore(clock.__class__(), ahead=0.0), clock)
        await one.ensure()
        before = one.now()
        clock.stepped = 3600.0
        assert one.now() == pytest.approx(before)

    async def test_a_wall_clock_that_is_set_is_asked_about_if_it_has_none(self, world):
        clock = SteppedClock()

        class NoTime(TimedStore):
            async def time(self):
                return None

        one = holder(NoTime(clock), clock)
        await one.ensure()
        assert one.lives
        clock.stepped = 3600.0
        assert not one.lives

    def test_a_machine_that_slept_has_lived_meanwhile(self, monkeypatch):
        asked = []
        monkeypatch.setattr(time, "clock_gettime", asked.append)
        SystemClock().monotonic()
        assert asked == [getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)]


async def test_work_that_was_begun_before_a_close_is_waited_for(tmp_path):
    async with WorkspaceManager(LocalWorkspace, basedir=tmp_path / "b") as manager:
        workspace = await manager.get_workspace(*ME)
        running = asyncio.ensure_future(workspace.run("sleep 100"))
        await asyncio.sleep(0)
        await manager.delete_workspace(workspace.workspace_id)
        assert (await asyncio.gather(running, return_exceptions=True))[0] is not None
