"""A service of four real processes on one store, some of which are killed."""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest
from sqlalchemy import update
from tests.manager.worker import Config
from tests.stores import wrongs

from isobox.manager.records import State
from isobox.manager.sql import SqlStore, tables

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
ALL = bool(os.environ.get("ISOBOX_ALL"))
PROCESSES = 4

#: keys, requests, kills
FULL = (500, 20_000, 12)
SCALED = (500, 5_000, 6)
SMALL = (24, 300, 2)

#: Seconds of a life: longer than a process on a busy machine is kept waiting.
HOLDER_TIMEOUT = 60.0


class Service:
    """The processes of it.

    Attributes:
        config: What they are told.
        killed: How many were killed.
    """

    def __init__(self, config, requests, kills):
        self.config = config
        self.killed = 0
        self._requests = requests
        self._kills = kills
        self._processes = {}

    async def run(self):
        """Run until every request has ended; kill some of them in between."""
        share = self._requests // PROCESSES
        every = self._requests // (self._kills + 1)
        for number in range(PROCESSES):
            self._start(number, share)
        while self._processes:
            await anyio.sleep(random.uniform(0.01, 0.05))
            for number, process in list(self._processes.items()):
                if process.poll() is not None:
                    assert process.returncode == 0, process.returncode
                    del self._processes[number]
            done = sum(map(self.done, range(PROCESSES)))
            if self.killed < self._kills and done >= every * (self.killed + 1):
                await self._kill(share)

    def _start(self, number, share):
        left = max(share - self.done(number), 0)
        told = {
            "store": self.config.store,
            "base": str(self.config.base),
            "keys": self.config.keys,
            "options": self.config.options,
            "number": number,
            "requests": left,
            "tasks": 16 if ALL else 8,
        }
        self._processes[number] = subprocess.Popen(
            [sys.executable, "-m", "tests.manager.worker", json.dumps(told)],
            cwd=ROOT,
        )

    async def _kill(self, share):
        if self._processes:
            number, process = random.choice(list(self._processes.items()))
            process.kill()
            process.wait()
            self.killed += 1
            self._start(number, share)
            await bring_forward(self.config.store, process.pid)

    def done(self, number):
        """Return how many requests of a process have ended."""
        path = self.config.base / f"done-{number}"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def ends(self):
        """Return how the requests have ended."""
        paths = self.config.base.glob("done-*")
        return Counter(
            line for one in paths for line in one.read_text().split("\n") if line
        )

    def stop(self):
        """End what still runs."""
        for process in self._processes.values():
            process.kill()
            process.wait()


async def bring_forward(where, pid):
    """Let the time be over for which a process that is dead was to live."""
    over = update(tables.holders).where(tables.holders.c.holder.contains(f":{pid}:"))
    async with SqlStore(where) as store:
        await store._database.write(lambda t: t.change(over.values(until=1)))


async def check(where, base, size):
    """Run a service of a size, and look at what it leaves."""
    keys, requests, kills = size
    (base / "locks").mkdir()
    options = {
        "ttl": 30,
        "max_live": keys * 3 // 4,
        "max_live_per_user": keys // 4,
        "evict_after": 0.05,
        "handover_after": 0.02,
        "heartbeat": 1.0,
        "holder_timeout": HOLDER_TIMEOUT,
        "queue_timeout": 100,
        "prewarm": 2,
    }
    config = Config(store=where, base=base, keys=keys, options=options)
    service = Service(config, requests, kills)
    began = time.monotonic()
    try:
        await service.run()
    finally:
        service.stop()
    ends, seconds = service.ends(), time.monotonic() - began
    print(f"{dict(ends)} in {seconds:.1f} s, {service.killed} killed")
    wrong = config.wrong.read_text() if config.wrong.exists() else ""
    assert wrong == ""
    assert ends.total() >= requests
    assert ends["ok"] >= 0.9 * requests
    assert service.killed == kills
    await nothing_is_left(config)


async def nothing_is_left(config):
    """Make sure that all can be taken over and removed, once the dead are dead."""
    async with SqlStore(config.store) as store:
        assert await wrongs(store) == {}
        later = {"ttl": 0.001, "retention": None, "prewarm": 0}
        async with config.manager(**later) as manager:
            dead = set(await living(store)) - {manager._running.site.holder.name}
            while set(await living(store)) & dead:
                await manager.sweep()
                await anyio.sleep(0.2)
            await manager.sweep()
            await every_place_has_a_row(config, store)
        async with config.manager(**{**later, "retention": 0}) as manager:
            await anyio.sleep(0.01)
            await manager.sweep()
        assert await store.counts(0) == dict.fromkeys(State, 0)
        assert await living(store) == []
        assert await wrongs(store) == {}
    assert places(config) == set()
    for path in (config.base / "locks").iterdir():
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def living(store):
    """Return the holders that live, by the store's clock."""
    return await store.holders(await store.time() or time.time())


async def every_place_has_a_row(config, store):
    """Make sure that what is on the disk is what is closed, and nothing else."""
    counts = await store.counts(0)
    assert {state for state, number in counts.items() if number} <= {State.CLOSED}
    records = await store.records(0, limit=10_000)
    assert places(config) == {record.place for record in records}
    for record in records:
        whose = config.base / "workspaces" / record.place / "files" / "whose"
        tenant = record.tenant
        expected = f"{tenant.user}/{tenant.agent}/{tenant.session}"
        if whose.exists():
            assert set(whose.read_text().splitlines()) == {expected}


def places(config):
    """Return the directories of workspaces that there are."""
    base = config.base / "workspaces"
    found = {one.name for one in base.iterdir() if one.is_dir()}
    assert list((base / ".trash").iterdir()) == []
    return found - {".trash"}


@pytest.mark.timeout(3600 if ALL else 300)
async def test_a_service_on_a_file(tmp_path):
    where = str(tmp_path / "store" / "manager.db")
    await check(where, tmp_path, FULL if ALL else SMALL)


@pytest.mark.timeout(3600 if ALL else 300)
async def test_a_service_on_a_server(postgres, tmp_path):
    await check(postgres.place(), tmp_path, SCALED if ALL else SMALL)
