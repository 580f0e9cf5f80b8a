"""Managers in virtual time, each a process that may die at any step."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, ClassVar

import anyio.to_thread
import pytest
from typing_extensions import override

from isobox.errors import StoreError
from isobox.manager import WorkspaceManager
from isobox.manager.clock import Clock
from isobox.manager.sql import sqlite
from isobox.manager.store import Store
from isobox.testing.clock import VirtualClock
from isobox.testing.fake import MemoryWorkspace

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def no_threads(monkeypatch):
    """Do in the loop what threads would do: a test then always runs the same."""

    async def inline(function, *arguments, **_):
        return function(*arguments)

    monkeypatch.setattr(anyio.to_thread, "run_sync", inline)
    monkeypatch.setattr(sqlite, "Lane", Inline)


class Inline:
    """A store's lane without threads."""

    def __init__(self, threads, *, acquire, release):
        self._acquire, self._release = acquire, release
        self._resource = None

    async def do(self, work):
        if self._resource is None:
            self._resource = self._acquire()
        return work(self._resource)

    def end(self):
        if self._resource is not None:
            self._release(self._resource)


class OwnClock(Clock):
    """A process's view of the time: it stands still once the process is dead."""

    def __init__(self, clock: VirtualClock, process: Process) -> None:
        self._clock = clock
        self._process = process

    @override
    def time(self):
        return self._clock.time()

    @override
    def monotonic(self):
        return self._clock.monotonic()

    @override
    def call_later(self, seconds, callback):
        return self._clock.call_later(seconds, lambda: self._process.call(callback))


class FragileStore(Store):
    """A store, with a step before and after each of its calls."""

    def __init__(self, inner: Store, process: Process) -> None:
        self._inner = inner
        self._process = process

    async def _call(self, name, *args, **named):
        return await self._process.call_out(
            name, lambda: getattr(self._inner, name)(*args, **named)
        )

    @override
    async def open(self):
        pass

    @override
    async def aclose(self):
        pass

    @override
    async def time(self):
        return None


def _passed_on(name):
    async def passed_on(self, *args, **named):
        return await self._call(name, *args, **named)

    return passed_on


for _name in sorted(Store.__abstractmethods__ - {"open", "aclose", "time"}):
    setattr(FragileStore, _name, _passed_on(_name))
FragileStore.__abstractmethods__ = frozenset()


class Space(MemoryWorkspace):
    """A workspace in memory with a directory on the host, of one process."""

    process: ClassVar[Process]

    def __init__(self, workdir, **options) -> None:
        super().__init__(**options)
        self.place = os.path.dirname(workdir)
        self.files = workdir

    @override
    async def initialize(self):
        await self.process.call_out("initialize", self._begin)

    async def _begin(self):
        assert os.path.isdir(self.files), "it has no directory"
        await super().initialize()
        self.process.open.add(self)

    @override
    async def close(self):
        await self.process.call_out("close", self._end)

    async def _end(self):
        await super().close()
        self.process.open.discard(self)

    def marks(self):
        """Return whose files it has."""
        return set(os.listdir(self.files))

    def mark(self, name):
        """Leave a file of a tenant's."""
        with open(f"{self.files}/{name}", "w"):
            pass


class Process:
    """One manager, until it is killed.

    Attributes:
        open: The workspaces that it has open.
        dies_in: Steps until it dies; None is never.
        fails_in: Steps until a call of its store fails; None is never.
    """

    def __init__(self, world: World, dies_in: int | None = None, **options) -> None:
        self.world = world
        self.open: set[Space] = set()
        self.dead = False
        self.dies_in = dies_in
        self.fails_in: int | None = None
        self.stalled = False
        self.late: list[Callable[[], None]] = []
        kind = type("Space", (Space,), {"process": self})
        self.manager = WorkspaceManager(
            kind,
            basedir=world.basedir,
            store=FragileStore(world.store, self),  # type: ignore[abstract]
            clock=OwnClock(world.clock, self),
            audit=False,
            **options,
        )

    @property
    def site(self):
        return self.manager._running.site

    @property
    def lives(self):
        return not self.dead and self.site.holder.lives

    def call(self, callback):
        if self.stalled:
            self.late.append(callback)
        elif not self.dead:
            callback()

    def resume(self):
        """Go on after a stall."""
        self.stalled, late = False, self.late
        self.late = []
        for callback in late:
            self.call(callback)

    def kill(self):
        """Die: nothing of it happens any more, and its sandboxes end with it."""
        self.dead = True
        self.open.clear()

    async def call_out(self, name, call):
        """Do something that is seen outside; the process may die before or after."""
        await self._step()
        # Others have their say while this is on its way.
        await asyncio.sleep(0)
        with self.world.flight():
            failing = self._fails(name)
            if failing == "before":
                raise StoreError("the store is not reached")
            result = await call()
        await asyncio.sleep(0)
        await self._step()
        if failing == "after":
            raise StoreError("the store's answer is lost")
        return result

    def _fails(self, name):
        if self.fails_in is None or name in ("initialize", "close"):
            return None
        self.fails_in -= 1
        if self.fails_in >= 2:
            return None
        when = "before" if self.fails_in == 1 else "after"
        self.fails_in = None
        return when

    async def _step(self):
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.kill()
        if self.dead:
            await self.world.nothing()


class World:
    """Processes with one directory, one store and one clock.

    Attributes:
        flights: How many calls to something real are on their way.
    """

    def __init__(self, basedir: str, store: Store) -> None:
        self.basedir = basedir
        self.store = store
        self.clock = VirtualClock()
        self.processes: list[Process] = []
        self.flights = 0
        self._landed = asyncio.Event()
        self._over = False
        self._limbo: list[asyncio.Future[None]] = []

    async def nothing(self):
        """Wait, as what is dead does, until all is over."""
        if not self._over:
            waiting = asyncio.get_running_loop().create_future()
            self._limbo.append(waiting)
            await waiting
        raise StoreError("it is dead")

    async def end(self):
        """Let go of what is left of the processes."""
        self._over = True
        for process in self.processes:
            process.kill()
        for waiting in self._limbo:
            if not waiting.done():
                waiting.set_exception(StoreError("it is dead"))
        for process in self.processes:
            await process.site.jobs.aclose()

    def flight(self):
        """Count a call to something real."""
        return _Flight(self)

    async def start(self, **options) -> Process:
        """Start a process; it is done when nothing happens any more."""
        process = Process(self, **options)
        self.processes.append(process)
        await self.done(process.manager.open())
        return process

    async def settle(self):
        """Wait until nothing happens without the clock."""
        ready = asyncio.get_running_loop()._ready
        while True:
            await asyncio.sleep(0)
            if ready:
                continue
            if not self.flights:
                return
            self._landed.clear()
            await self._landed.wait()

    async def done(self, what, *, most=1000.0):
        """Return what something leads to, however the clock has to move for it."""
        task = asyncio.ensure_future(what)
        began = self.clock.monotonic()
        await self.settle()
        while not task.done():
            assert self.clock.monotonic() - began < most, "it never ends"
            await self.advance(0.25)
        return task.result()

    async def advance(self, seconds):
        """Let time pass, as finely as something happens."""
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            self.clock.advance(min(left, self.clock.next or left))
            await self.settle()

    def landed(self):
        self._landed.set()


class _Flight:
    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self):
        self._world.flights += 1

    def __exit__(self, *_):
        self._world.flights -= 1
        self._world.landed()
