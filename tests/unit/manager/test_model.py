"""Managers of several processes, in any order of events and deaths.

Whatever happens: a place has one open sandbox among living processes, nobody sees
another's files, a lease keeps its workspace, every request ends, and when all are
dead a sweep leaves nothing open and nothing on the disk that no row names.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.worlds import World, no_threads  # noqa: F401 - a fixture

from isobox.errors import (
    NotEntitledError,
    QueueTimedOutError,
    StoreError,
    WorkspaceClosedError,
    WorkspaceHeldError,
)
from isobox.manager import PER_AGENT, PER_SESSION, PER_USER, SqlStore
from isobox.manager.records import State

USERS, AGENTS, SESSIONS = ("ann", "bob"), ("a", "b"), ("1", "2")
TTL = 60.0
REFUSALS = (
    QueueTimedOutError,
    StoreError,
    WorkspaceClosedError,
    WorkspaceHeldError,
)
IDS = st.tuples(*(st.sampled_from(each) for each in (USERS, AGENTS, SESSIONS)))
NUMBERS = st.integers(0, 2)


class Managers(RuleBasedStateMachine):
    isolation = PER_AGENT
    where = staticmethod(str)

    def __init__(self):
        super().__init__()
        self.base = tempfile.mkdtemp()
        self.runner = asyncio.Runner()
        self.asked = []
        self.leases = []

    def run(self, coroutine):
        return self.runner.run(coroutine)

    @initialize(prewarm=st.sampled_from((0, 0, 1)), most=st.sampled_from((None, 2)))
    def begin(self, prewarm, most):
        self.options = {
            "isolation": self.isolation,
            "ttl": TTL,
            "queue_timeout": 30.0,
            "evict_after": 5.0,
            "prewarm": prewarm,
            "max_live": most,
        }
        self.run(self._begin())

    async def _begin(self):
        self.store = SqlStore(self.where(self.base))
        await self.store.open()
        self.world = World(f"{self.base}/places", self.store)
        for _ in range(2):
            await self.world.start(**self.options)

    @property
    def living(self):
        return [one for one in self.world.processes if not one.dead]

    def process(self, number):
        living = [one for one in self.living if not one.stalled]
        return living[number % len(living)] if living else None

    # -- what users do -----------------------------------------------------------

    @rule(number=NUMBERS, ids=IDS)
    def get(self, number, ids):
        self.ask(number, ids)
        self.run(self._answer())

    @rule(number=NUMBERS, ids=IDS)
    def ask(self, number, ids):
        process = self.process(number)
        if process is not None:
            self.run(self._ask(process, ids))

    async def _ask(self, process, ids):
        task = asyncio.ensure_future(process.manager.get_workspace(*ids))
        self.asked.append((process, ids, task))
        await self.world.settle()
        self._look()

    async def _answer(self):
        """Wait for all that was asked; what asked a process that died is lost."""
        began = self.world.clock.monotonic()
        while any(not process.dead for process, *_ in self.asked):
            assert self.world.clock.monotonic() - began < 150, "it never ends"
            await self.world.advance(0.25)
            self._look()

    def _look(self):
        """Look at the answers that there are."""
        for asked in list(self.asked):
            _, ids, task = asked
            if task.done():
                self.asked.remove(asked)
                with contextlib.suppress(*REFUSALS):
                    self._own(task.result(), ids)

    def _own(self, workspace, ids):
        user, agent, _ = ids
        name = {PER_USER: user, PER_AGENT: user + agent, PER_SESSION: "".join(ids)}
        mine = name[self.isolation]
        assert workspace.marks() <= {mine}, "another's files"
        workspace.mark(mine)

    @rule(number=NUMBERS, ids=IDS)
    def give_up(self, number, ids):
        process = self.process(number)
        if process is not None:
            self.run(self._give_up(process, ids))

    async def _give_up(self, process, ids):
        task = asyncio.ensure_future(process.manager.get_workspace(*ids))
        await asyncio.sleep(0)
        task.cancel()
        await self.world.settle()

    @rule(number=NUMBERS, ids=IDS)
    def lease(self, number, ids):
        process = self.process(number)
        if process is not None:
            self.run(self._lease(process, ids))

    async def _lease(self, process, ids):
        lease = process.manager.lease(*ids)
        task = asyncio.ensure_future(lease.__aenter__())
        for _ in range(400):
            await self.world.settle()
            if task.done() or process.dead:
                break
            await self.world.advance(0.25)
        self._look()
        if not process.dead:
            assert task.done(), "it never ends"
            try:
                self._own(task.result(), ids)
            except REFUSALS:
                return
            self.leases.append((process, lease, task.result()))

    @precondition(lambda self: self.leases)
    @rule(number=NUMBERS)
    def end_lease(self, number):
        process, lease, _ = self.leases.pop(number % len(self.leases))
        if not process.dead:
            self.run(lease.__aexit__(None, None, None))

    @rule(number=NUMBERS, ids=IDS, which=NUMBERS, delete=st.booleans())
    def remove(self, number, ids, which, delete):
        process = self.process(number)
        if process is not None:
            self.run(self._remove(process, ids[0], which, delete=delete))

    async def _remove(self, process, user, which, *, delete):
        rows = await self.store.records(self.world.clock.time(), user=user)
        if not rows:
            return
        name = rows[which % len(rows)].workspace_id
        manager = process.manager
        act = manager.delete_workspace if delete else manager.close_workspace
        # Whoever closes or deletes it means that, lease or not.
        self.leases = [one for one in self.leases if one[2].workspace_id != name]
        task = asyncio.ensure_future(act(name, user_id=user))
        await self._finish(process, task)

    async def _finish(self, process, task):
        for _ in range(400):
            await self.world.settle()
            if task.done() or process.dead:
                break
            await self.world.advance(0.25)
        self._look()
        if not process.dead:
            assert task.done(), "it never ends"
            with contextlib.suppress(*REFUSALS, NotEntitledError):
                task.result()

    @rule(number=NUMBERS, ids=IDS, which=NUMBERS)
    def join(self, number, ids, which):
        process = self.process(number)
        if process is not None:
            self.run(self._join(process, ids, which))

    async def _join(self, process, ids, which):
        rows = await self.store.records(self.world.clock.time())
        if not rows:
            return
        row = rows[which % len(rows)]
        named = process.manager.get_workspace(*ids, workspace_id=row.workspace_id)
        task = asyncio.ensure_future(named)
        await self._finish(process, task)
        if task.done() and not task.cancelled() and task.exception() is None:
            assert row.tenant is None or row.tenant.user == ids[0], "not entitled"

    # -- what happens ------------------------------------------------------------

    @rule(seconds=st.sampled_from((0.5, 2.0, 6.0, 25.0, 70.0)))
    def wait(self, seconds):
        self.run(self.world.advance(seconds))

    @rule(number=NUMBERS)
    def crash(self, number):
        """A sandbox dies by itself."""
        spaces = [space for one in self.living for space in one.open]
        if spaces:
            space = sorted(spaces, key=lambda one: one.place)[number % len(spaces)]
            space._sandbox.crash()
            self.leases = [one for one in self.leases if one[2] is not space]
        self.run(self.world.settle())

    @rule(number=NUMBERS, steps=st.integers(0, 12))
    def doom(self, number, steps):
        """A process dies some steps from now."""
        if process := self.process(number):
            process.dies_in = steps

    @rule(number=NUMBERS)
    def kill(self, number):
        if process := self.process(number):
            process.kill()

    @rule(number=NUMBERS, steps=st.integers(1, 10))
    def fail(self, number, steps):
        """The store of a process fails, some steps from now."""
        if process := self.process(number):
            process.fails_in = steps

    @rule(number=NUMBERS, seconds=st.sampled_from((3.0, 18.0, 40.0)))
    def stall(self, number, seconds):
        """A process stands still."""
        if process := self.process(number):
            self.run(self._stall(process, seconds))

    async def _stall(self, process, seconds):
        process.stalled = True
        await self.world.advance(seconds)
        process.resume()
        await self.world.settle()

    @rule(number=NUMBERS)
    def leave(self, number):
        process = self.process(number)
        if process is not None:
            self.run(self._leave(process))

    async def _leave(self, process):
        await self._finish(process, asyncio.ensure_future(process.manager.aclose()))
        if not process.dead:
            assert not process.open, "it has left and something is open"
        process.kill()

    @precondition(lambda self: len(self.living) < 3)
    @rule()
    def start(self):
        self.run(self.world.start(**self.options))

    # -- what holds --------------------------------------------------------------

    @invariant()
    def one_sandbox_at_a_place(self):
        if hasattr(self, "world"):
            self._look()
            living = [one for one in self.world.processes if one.lives]
            places = Counter(space.place for one in living for space in one.open)
            assert not [place for place, count in places.items() if count > 1]

    @invariant()
    def leases_are_kept(self):
        for process, _, workspace in self.leases:
            if process.lives and not self.was_lost(process):
                assert not workspace._is_lost(), "a leased workspace was closed"

    def was_lost(self, process):
        return process.site.events.counters["lost"] > 0

    def teardown(self):
        try:
            if hasattr(self, "world"):
                self.run(self._end())
        finally:
            self.runner.close()
            shutil.rmtree(self.base)

    async def _end(self):
        try:
            await self._end_well()
        finally:
            await self.world.end()
            await self._forget_asked()
            await self.store.aclose()

    async def _forget_asked(self):
        tasks = [task for _, _, task in self.asked]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end_well(self):
        for process in self.living:
            process.dies_in = process.fails_in = None
        await self._answer()
        for process in self.living:
            process.kill()
        last = await self.world.start(**{**self.options, "prewarm": 0})
        await self.world.advance(TTL + 25)
        await self.world.done(last.manager.sweep())
        assert not last.open, "something is open"
        await self._agree(last)
        await self._forget(last)
        await self.world.done(last.manager.aclose())

    async def _agree(self, last):
        rows = await self.store.records(self.world.clock.time())
        assert {row.state for row in rows} <= {State.CLOSED}
        assert {row.holders for row in rows} <= {()}
        places = {name for name in os.listdir(self.world.basedir) if "." in name[1:]}
        assert places == {row.place for row in rows}, "directories and rows differ"
        assert not os.listdir(f"{self.world.basedir}/.trash")

    async def _forget(self, last):
        await self.world.done(last.manager.aclose())
        last = await self.world.start(isolation=self.isolation, retention=10.0)
        await self.world.advance(TTL + 15)
        await self.world.done(last.manager.sweep())
        assert not await self.store.records(self.world.clock.time())
        assert not [one for one in os.listdir(self.world.basedir) if one[0] != "."]
        await self.world.done(last.manager.aclose())


def run(isolation, where, examples):
    """Let hypothesis choose what happens, without looking for the least of it."""
    machine = type("Machine", (Managers,), {"isolation": isolation, "where": where})
    chosen = settings(
        max_examples=int(os.environ.get("ISOBOX_MODEL_EXAMPLES", examples)),
        stateful_step_count=25,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.usefixtures("no_threads")
@pytest.mark.parametrize("isolation", [PER_AGENT, PER_SESSION, PER_USER])
class TestModel:
    def test_with_sqlite(self, isolation):
        run(isolation, staticmethod(lambda base: f"{base}/manager.db"), 8)

    def test_with_postgresql(self, isolation, postgres):
        run(isolation, staticmethod(lambda _: postgres.place()), 4)
