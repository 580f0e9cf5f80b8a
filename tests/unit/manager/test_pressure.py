"""What one user, one failure or one hook does is no other's harm."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest
from tests.worlds import Space, World, no_threads  # noqa: F401 - a fixture

from isobox.errors import (
    HolderExpiredError,
    IsoboxError,
    QuotaError,
    SandboxLostError,
    StoreError,
)
from isobox.manager import SqlStore, State
from isobox.manager.turns import Turns
from isobox.testing.clock import VirtualClock

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


def places(world):
    """Return the names of workspaces' directories."""
    return {each for each in os.listdir(world.basedir) if each[0] != "."}


async def get(world, process, *ids, **how):
    return await world.done(process.manager.get_workspace(*(ids or ME), **how))


async def soon(task):
    """Wait for a task without the clock; it ends by itself."""
    async with asyncio.timeout(30):
        while not task.done():
            await asyncio.sleep(0)


def kinds(process):
    return dict(process.site.events.counters)


class TestHooks:
    @pytest.mark.parametrize(
        "error", [asyncio.CancelledError, RuntimeError, RecursionError]
    )
    async def test_whatever_one_raises_nobody_hangs(self, world, error):
        def raises(event):
            raise error

        process = await world.start(on_event=raises, ttl=30.0)
        workspace = await get(world, process)
        await world.done(process.manager.close_workspace(workspace.workspace_id))
        assert await get(world, process)
        await world.advance(60)
        assert kinds(process)["reaped"] == 1
        assert await get(world, process)


class TestDeletes:
    async def test_who_asks_again_and_again_does_not_stop_it(self, world):
        process = await world.start()
        name = (await get(world, process)).workspace_id
        over = False

        async def asks():
            while not over:
                with contextlib.suppress(IsoboxError):
                    await process.manager.get_workspace(*ME)
                await asyncio.sleep(0)

        asking = [asyncio.ensure_future(asks()) for _ in range(5)]
        for _ in range(50):
            await asyncio.sleep(0)
        deleting = asyncio.ensure_future(process.manager.delete_workspace(name))
        await soon(deleting)
        over = True
        await world.done(asyncio.gather(*asking))
        await deleting
        assert kinds(process)["created"] == 2

    async def test_one_that_waits_in_the_queue_is_deleted_at_once(self, world):
        process = await world.start(max_live=1, queue_timeout=500.0)
        name = (await get(world, process)).workspace_id
        await world.done(process.manager.close_workspace(name))
        async with process.manager.lease("bob", "a", "1"):
            asked = asyncio.ensure_future(process.manager.get_workspace(*ME))
            await world.settle()
            began = world.clock.monotonic()
            await world.done(process.manager.delete_workspace(name))
            assert world.clock.monotonic() - began < 1
            await world.done(process.manager.close_workspace(name_of(process, "bob")))
        assert not (await world.done(asked)).marks()

    async def test_one_that_waits_in_the_queue_is_not_open(self, world):
        process = await world.start(max_live=1, queue_timeout=500.0)
        name = (await get(world, process)).workspace_id
        await world.done(process.manager.close_workspace(name))
        async with process.manager.lease("bob", "a", "1"):
            asked = asyncio.ensure_future(process.manager.get_workspace(*ME))
            await world.settle()
            began = world.clock.monotonic()
            assert not await world.done(process.manager.close_workspace(name))
            assert world.clock.monotonic() - began < 1
            asked.cancel()


def name_of(process, user):
    (found,) = [each for each in process.site.entries if each.tenant.user == user]
    return found.workspace_id


class TestWhoGivesUp:
    @pytest.mark.parametrize("steps", range(0, 60, 3))
    async def test_at_any_moment_leaves_nothing(self, world, steps):
        process = await world.start(max_creating=1, max_live=2, evict_after=0.0)
        await get(world, process, "old", "a", "1")
        turns = process.site.turns
        tasks = [
            asyncio.ensure_future(each)
            for each in (
                process.manager.get_workspace(*ME),
                process.manager.lease("bob", "a", "1").__aenter__(),
                process.manager.get_workspace("old", "a", "1"),
            )
        ]
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await world.settle()
        await world.advance(1)
        assert (turns._running, turns._waiting, dict(turns._tickets)) == (0, 0, {})
        stats = process.manager.stats()
        assert (stats.waiting, stats.making) == (0, 0)
        assert all(each.waiting == 0 for each in process.site.entries)
        for user in ("u1", "u2", "u3"):
            assert await get(world, process, user, "a", "1")


class TestQueues:
    async def test_one_user_does_not_fill_it_for_all(self, world):
        process = await world.start(max_live=1, queue_limit=10, queue_timeout=50.0)
        lease = process.manager.lease(*ME)
        await world.done(lease.__aenter__())
        flood = [
            asyncio.ensure_future(process.manager.get_workspace("eve", f"a{n}", "1"))
            for n in range(10)
        ]
        await world.settle()
        mine = asyncio.ensure_future(process.manager.get_workspace("bob", "a", "1"))
        await world.settle()
        assert not mine.done()
        refused = [each for each in flood if each.done()]
        assert len(refused) == 1
        assert isinstance(refused[0].exception(), QuotaError)
        with pytest.raises(QuotaError):
            await get(world, process, "eve", "more", "1")
        await lease.__aexit__(None, None, None)
        for each in (*flood, mine):
            each.cancel()
        await asyncio.wait([*flood, mine])

    @pytest.mark.parametrize("most", [1, 2])
    @pytest.mark.parametrize("hold", [0.05, 0.2, 1.0])
    async def test_users_take_turns_where_room_has_to_be_made(self, world, most, hold):
        process = await world.start(max_live=most, evict_after=0.1)
        order, asking = [], []

        async def uses(user, number):
            async with process.manager.lease(user, f"a{number}", "1"):
                order.append(user)
                await world.clock.sleep(hold)

        async def ask(user, numbers):
            asking.extend(asyncio.ensure_future(uses(user, each)) for each in numbers)
            await world.settle()

        await ask("H", range(most))
        await world.advance(0.05)
        await ask("H", range(most, most + 12))
        await world.advance(0.05)
        await ask("L", range(3))
        await world.done(asyncio.gather(*asking))
        first = order.index("L")
        assert first <= most + 1, order
        assert "".join(order[first : first + 5]) == "LHLHL"

    async def test_users_at_their_quota_do_not_stop_the_others(self):
        clock = VirtualClock()
        turns = Turns(clock, most=1, rate=None, limit=1000)
        over, got = False, []

        async def full(user):
            with turns.ticket(user) as ticket:
                while not over:
                    async with turns.turn(ticket):
                        # As long as the store takes.
                        await clock.sleep(0.01)
                        turns.full(ticket, of_user=True)

        async def asks():
            with turns.ticket("bob") as ticket:
                async with turns.turn(ticket):
                    got.append(clock.monotonic())

        crowd = [asyncio.ensure_future(full(f"u{n}")) for n in range(100)]
        await passing(clock, 5)
        began = clock.monotonic()
        asked = asyncio.ensure_future(asks())
        await passing(clock, 5)
        over = True
        await passing(clock, 10)
        await asyncio.gather(*crowd, asked)
        # Each of the hundred had one turn before it at most.
        assert got[0] - began < 1.5

    async def test_who_waits_for_other_processes_does_not_stop_the_others(self):
        clock = VirtualClock()
        turns = Turns(clock, most=1, rate=None, limit=1000)
        over, got = False, []

        async def held(user):
            with turns.ticket(user) as ticket:
                while not over:
                    async with turns.turn(ticket):
                        await clock.sleep(0.01)
                        turns.unused(ticket)
                    await clock.sleep(0.1)

        async def asks():
            with turns.ticket("bob") as ticket:
                async with turns.turn(ticket):
                    got.append(clock.monotonic())

        crowd = [asyncio.ensure_future(held("eve")) for _ in range(100)]
        await passing(clock, 5)
        began = clock.monotonic()
        asked = asyncio.ensure_future(asks())
        await passing(clock, 5)
        over = True
        await passing(clock, 10)
        await asyncio.gather(*crowd, asked)
        assert got[0] - began < 0.1


class TestSpares:
    @pytest.mark.parametrize("most", [1, 2, 4])
    async def test_those_being_made_count_as_well(self, world, monkeypatch, most):
        initialize, open_at_once = Space.initialize, []

        async def slow(space):
            await initialize(space)
            open_at_once.append(len(space.process.open))
            await world.clock.sleep(0.5)

        monkeypatch.setattr(Space, "initialize", slow)
        process = await world.start(max_live=most, prewarm=3, evict_after=0.0)
        asking = [
            asyncio.ensure_future(process.manager.get_workspace("ann", f"a{n}", "1"))
            for n in range(6)
        ]
        await world.done(asyncio.gather(*asking))
        await world.advance(5)
        await world.done(process.manager.sweep())
        await world.advance(5)
        assert max(open_at_once) == most
        assert len(process.open) == most

    async def test_the_end_waits_for_one_that_is_being_made(self, world, monkeypatch):
        initialize, steps = Space.initialize, []

        async def slow(space):
            steps.append("begun")
            await world.clock.sleep(5)
            await initialize(space)
            steps.append("made")

        monkeypatch.setattr(Space, "initialize", slow)
        process = await world.start(prewarm=1)
        await world.settle()
        assert steps == ["begun"]
        await world.done(process.manager.aclose())
        assert steps == ["begun", "made"]
        assert not process.open
        assert not await world.store.records(world.clock.time())
        assert not spares_of(world)

    async def test_what_cannot_be_made_is_sought_on_its_engine(
        self, world, monkeypatch
    ):
        sought = []

        async def fails(space):
            raise SandboxLostError("the engine does not answer", backend="memory")

        async def discard(record):
            sought.append(record.workspace_id)

        monkeypatch.setattr(Space, "initialize", fails)
        process = await world.start(prewarm=1, max_live=1)
        monkeypatch.setattr(process.site.making, "discard", discard)
        await world.settle()
        await world.done(process.manager.sweep())
        await world.settle()
        assert sought
        assert not await world.store.records(world.clock.time())
        assert not spares_of(world)

    async def test_what_a_dead_process_was_making_is_deleted(self, world, monkeypatch):
        initialize = Space.initialize

        async def slow(space):
            await world.clock.sleep(5)
            await initialize(space)

        monkeypatch.setattr(Space, "initialize", slow)
        process = await world.start(prewarm=1)
        await world.settle()
        (row,) = await world.store.records(world.clock.time())
        assert (row.state, row.tenant) == (State.MAKING, None)
        process.kill()
        other = await world.start()
        await world.advance(30)
        await world.done(other.manager.sweep())
        assert not await world.store.records(world.clock.time())
        assert not spares_of(world)


def spares_of(world):
    return [each for each in os.listdir(world.basedir) if each.startswith("spare-")]


async def passing(clock, seconds):
    until = clock.monotonic() + seconds
    while clock.monotonic() < until:
        for _ in range(5):
            await asyncio.sleep(0)
        clock.advance(min(clock.next or 0.01, 0.01))


class TestLost:
    async def test_a_sandbox_that_always_dies_is_not_made_for_ever(
        self, world, monkeypatch
    ):
        process = await world.start()
        kind, made = process.site.making.kind, 0
        begin = kind._begin

        async def dies(space):
            nonlocal made
            made += 1
            await begin(space)
            space._sandbox.crash()

        await get(world, process)
        monkeypatch.setattr(kind, "_begin", dies)
        for space in process.open:
            space._sandbox.crash()
        asked = asyncio.ensure_future(process.manager.get_workspace(*ME))
        await soon(asked)
        monkeypatch.undo()
        (failure,) = await asyncio.gather(asked, return_exceptions=True)
        assert isinstance(failure, SandboxLostError)
        assert made < 5
        assert await get(world, process)

    async def test_many_that_die_at_once_are_not_made_at_once(self, world, monkeypatch):
        process = await world.start(max_creating=2)
        users = [f"u{n}" for n in range(8)]
        for user in users:
            await get(world, process, user, "a", "1")
        kind, now, most = process.site.making.kind, 0, 0
        begin = kind._begin

        async def counted(space):
            nonlocal now, most
            now += 1
            most = max(most, now)
            for _ in range(10):
                await asyncio.sleep(0)
            now -= 1
            await begin(space)

        monkeypatch.setattr(kind, "_begin", counted)
        for space in process.open:
            space._sandbox.crash()
        asked = [process.manager.get_workspace(user, "a", "1") for user in users]
        await world.done(asyncio.gather(*asked))
        assert most == 2
        assert kinds(process)["recovered"] == 8

    async def test_spares_that_died_are_made_again(self, world):
        process = await world.start(prewarm=2)
        await world.settle()
        for space in list(process.open):
            space._sandbox.crash()
        await world.done(process.manager.sweep())
        await world.settle()
        assert process.manager.stats().spares == 2
        assert not any(space._is_lost() for space in process.open)
        assert len(places(world)) == 2


class TestStores:
    async def test_many_requests_wait_for_one_failure_of_it(self, world, monkeypatch):
        process = await world.start()
        await get(world, process)
        process.stalled = True
        await world.advance(30)
        process.stalled, process.late = False, []
        tries = 0

        async def hangs(*_):
            nonlocal tries
            tries += 1
            await world.clock.sleep(15)
            raise StoreError("nobody answers")

        with monkeypatch.context() as patched:
            patched.setattr(process.site.store, "beat", hangs)
            began = world.clock.monotonic()
            asked = [process.manager.get_workspace("u", "a", str(n)) for n in range(50)]
            found = await world.done(asyncio.gather(*asked, return_exceptions=True))
            took = world.clock.monotonic() - began
        assert {type(each) for each in found} == {StoreError}
        assert took < 60
        assert tries <= 4
        assert await get(world, process)

    async def test_one_that_takes_it_for_dead_always_is_not_asked_for_ever(
        self, world, monkeypatch
    ):
        process = await world.start()

        async def expired(*_):
            raise HolderExpiredError("it has to beat first")

        with monkeypatch.context() as patched:
            patched.setattr(process.site.store, "claim", expired)
            asked = asyncio.ensure_future(process.manager.get_workspace(*ME))
            await soon(asked)
        assert isinstance(asked.exception(), StoreError)
        assert await get(world, process)

    @pytest.mark.parametrize("steps", range(1, 14))
    async def test_a_spare_that_was_given_is_not_dropped(self, world, steps):
        """Its claim's answer was lost, and somebody needs room meanwhile."""
        process = await world.start(prewarm=1, max_live=1)
        await world.settle()
        process.fails_in = steps
        with contextlib.suppress(StoreError):
            await get(world, process)
        process.fails_in = None
        first = process.manager._running._spares
        dropping = first.drop()
        mine = await get(world, process)
        mine.mark("mine")
        await world.settle()
        assert dropping in (True, False)
        again = await get(world, process)
        assert again is mine
        assert again.marks() == {"mine"}
        assert os.path.isdir(again.files)

    @pytest.mark.parametrize("steps", range(1, 7))
    async def test_what_was_claimed_and_never_made_has_a_place(self, world, steps):
        one, last = await world.start(), await world.start()
        one.dies_in = steps
        asked = asyncio.ensure_future(one.manager.get_workspace(*ME))
        last.fails_in = steps
        with contextlib.suppress(StoreError):
            await get(world, last, "bob", "a", "1")
        last.fails_in = None
        await world.advance(60)
        one.kill()
        await world.advance(30)
        await world.done(last.manager.sweep())
        rows = await last.manager.list_workspaces()
        assert {row.place for row in rows} == places(world)
        asked.cancel()


async def test_a_tree_that_takes_long_to_remove_keeps_nothing_open(world, monkeypatch):
    process = await world.start(ttl=30.0, retention=60.0)
    await get(world, process, "eve", "a", "1")
    removing = asyncio.Event()
    over = asyncio.Event()

    async def removes(record):
        removing.set()
        await over.wait()

    await world.advance(70)
    with monkeypatch.context() as patched:
        patched.setattr(process.site.places, "remove", removes)
        await world.advance(60)
        assert removing.is_set()
        workspace = await get(world, process)
        await world.advance(70)
        assert workspace._is_lost()
        over.set()
        await world.settle()
