"""Simulate a day of a manager in virtual time, and plot what it cost.

    bench/.venv/bin/python bench/simulation.py --sessions 20000
    bench/.venv/bin/python bench/simulation.py --out docs/scaling

Real are the manager, its SQLite store, its directories and its sweeps; the sandboxes
do nothing, and time is what the simulation says. Each session is a tenant of its own
(PER_SESSION, the most workspaces that a policy can give) and asks for its workspace a
few times in some minutes. How many begin follows the hour: five times as many at noon
as at midnight.
"""

import argparse
import asyncio
import heapq
import itertools
import json
import math
import random
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measure import MiB, resident

from isobox import Policy
from isobox.manager import (
    PER_SESSION,
    Event,
    Kind,
    SqlStore,
    WorkspaceManager,
    loops,
)
from isobox.manager.entry import Phase
from isobox.testing._tree import Tree
from isobox.testing.clock import VirtualClock
from isobox.testing.fake import MemorySandbox, MemoryWorkspace, furnished

TTL = 600.0
RETENTION = 1800.0
SWEEP = 60.0
#: Requests of a session after its first, and seconds between them.
MORE = 3
GAP = 45.0
USERS = 50_000


@dataclass(frozen=True, slots=True)
class Sample:
    """What there was after a sweep, and what the sweep cost.

    Attributes:
        at: Virtual seconds since midnight.
        live: Workspaces that were open.
        blocks: Objects that Python had allocated.
        resident: Bytes of memory of the process.
        due: Workspaces that the sweep closed or deleted.
        sweep: Real seconds of the sweep.
    """

    at: float
    live: int
    blocks: int
    resident: int
    due: int
    sweep: float


def arrivals(
    sessions: int, length: float, chance: random.Random
) -> Iterator[tuple[float, int]]:
    """Give when each session begins, in order: most of them in the middle."""
    # As an array, so that what is to come is no object among those that are counted.
    begins = array("d", sorted(_moment(length, chance) for _ in range(sessions)))
    yield from zip(begins, range(sessions), strict=True)


def _moment(length: float, chance: random.Random) -> float:
    """Return a moment of the day, by rejection from 1 - 2/3 cos."""
    while True:
        at = chance.random() * length
        rate = 1 - 2 / 3 * math.cos(2 * math.pi * at / length)
        if chance.random() * (1 + 2 / 3) < rate:
            return at


def requests(sessions: int, length: float, seed: int) -> Iterator[tuple[float, int]]:
    """Give every request: its moment and its session's number, in order."""
    chance = random.Random(seed)
    later: list[tuple[float, int]] = []
    for at, number in arrivals(sessions, length, chance):
        while later and later[0][0] <= at:
            yield heapq.heappop(later)
        yield at, number
        moment = at
        while chance.random() < MORE / (MORE + 1):
            moment += chance.expovariate(1 / GAP)
            heapq.heappush(later, (moment, number))
    while later:
        yield heapq.heappop(later)


FILES = furnished()


class Nothing(MemorySandbox):
    """A sandbox in which nothing happens: all have the same files."""

    def _files(self) -> Tree:
        return FILES


class Workspace(MemoryWorkspace):
    """One that costs next to nothing, so that what is measured is the manager."""

    kind = Nothing


class Still(SqlStore):
    """The store, while time stands still: a beat that goes on is waited for."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._idle = asyncio.Event()
        self._idle.set()

    async def beat(self, *args: Any) -> tuple[str, ...] | None:
        self._idle.clear()
        try:
            return await super().beat(*args)
        finally:
            self._idle.set()

    async def settled(self) -> None:
        """Wait until the manager's loops have done what they woke up for."""
        for _ in range(3):
            await asyncio.sleep(0)
        await self._idle.wait()


class Day:
    """The manager's day: every request at its moment, and a sweep each minute."""

    def __init__(self, basedir: str) -> None:
        # Nobody else is there, and it is looked 345,600 times a day, whatever goes on.
        loops._LOOK = SWEEP
        self.clock = VirtualClock()
        self.store = Still(f"{basedir}/manager.db")
        self.passed = 0.0
        self.ended = 0
        self.requests = 0
        self.samples: list[Sample] = []
        self.manager = WorkspaceManager(
            Workspace,
            basedir=basedir,
            store=self.store,
            options={"policy": Policy.allow_all()},
            isolation=PER_SESSION,
            ttl=TTL,
            retention=RETENTION,
            # Done below, where it is timed.
            sweep_interval=1e9,
            audit=False,
            on_event=self._heard,
            clock=self.clock,
        )

    async def _reach(self, at: float) -> None:
        """Let time pass until so long after midnight."""
        while (wait := self.clock.next) is not None and self.passed + wait <= at:
            self.clock.advance(wait)
            self.passed += wait
            await self.store.settled()
        self.clock.advance(at - self.passed)
        self.passed = at

    def _heard(self, event: Event) -> None:
        self.ended += event.kind in (Kind.REAPED, Kind.DELETED)

    async def run(self, sessions: int, length: float, seed: int) -> None:
        """Live the day, and as long after it as anything is kept."""
        moments = itertools.count(1)
        sweep = next(moments) * SWEEP
        async with self.store, self.manager:
            await self.store.settled()
            for at, number in requests(sessions, length, seed):
                while sweep <= at:
                    await self._swept(sweep)
                    sweep = next(moments) * SWEEP
                await self._reach(at)
                await self.manager.get_workspace(
                    f"user-{number % USERS}", "agent", f"session-{number}"
                )
                self.requests += 1
            while sweep <= length + TTL + RETENTION + 10 * SWEEP:
                await self._swept(sweep)
                sweep = next(moments) * SWEEP

    async def _swept(self, at: float) -> None:
        await self._reach(at)
        ended, begun = self.ended, time.perf_counter()
        await self.manager.sweep()
        took = time.perf_counter() - begun
        entries = list(self.manager._running.site.entries)
        closing = [each.settled for each in entries if each.phase is Phase.CLOSING]
        begun = time.perf_counter()
        if closing:
            await asyncio.wait(closing)
        took += time.perf_counter() - begun
        self.samples.append(
            Sample(
                at=at,
                live=len(entries) - len(closing),
                blocks=sys.getallocatedblocks(),
                resident=resident(),
                due=self.ended - ended,
                sweep=took,
            )
        )
        if len(self.samples) % 30 == 0:
            print(f"{at / 3600:.1f} h: {self.samples[-1]}", file=sys.stderr)


async def _simulated(sessions: int, hours: float, seed: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="bench-simulation-") as directory:
        day = Day(directory)
        begun, used = time.perf_counter(), time.process_time()
        await day.run(sessions, hours * 3600, seed)
        return {
            "sessions": sessions,
            "hours": hours,
            "requests": day.requests,
            "seconds": time.perf_counter() - begun,
            "processor_seconds": time.process_time() - used,
            "samples": [asdict(sample) for sample in day.samples],
        }


def summary(told: dict[str, Any]) -> str:
    """Return the figures in a few lines."""
    samples = told["samples"]
    peak = max(samples, key=lambda each: each["live"])
    first, last = samples[0], samples[-1]
    fixed, each = fitted([(s["due"], s["sweep"]) for s in samples])
    base, per = fitted([(s["live"], s["blocks"]) for s in samples])
    hours = told["seconds"] / 3600
    return (
        f"{told['sessions']:,} sessions in {told['hours']:g} h, "
        f"{told['requests']:,} requests: took {hours:.2f} h "
        f"({told['processor_seconds']:.0f} s of processor time)\n"
        f"live: at most {peak['live']:,}, at the end {last['live']:,}\n"
        f"memory: {first['resident'] / MiB:.0f} MiB at the start, "
        f"{peak['resident'] / MiB:.0f} MiB at the peak, "
        f"{last['resident'] / MiB:.0f} MiB at the end; "
        f"{base:,.0f} blocks and {per:.0f} for each that is live\n"
        f"a sweep: {fixed * 1e3:.1f} ms and {each * 1e3:.2f} ms for each that is due"
    )


def fitted(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the line through points, by least squares: its start and slope."""
    result = statistics.linear_regression(*zip(*points, strict=True))
    return result.intercept, result.slope


def plot(told: dict[str, Any], path: str) -> None:
    """Draw memory against what is live, and sweeps against what was due."""
    import matplotlib as mpl  # noqa: PLC0415 - slow, and only for this
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "isobox"

    # One in three: the file stays small.
    samples = told["samples"][::3]

    def column(name: str) -> list[float]:
        return [each[name] for each in samples]

    figure = Figure(figsize=(10, 7))
    (day, memory), (due, sweep) = figure.subplots(2, 2)
    hours = [at / 3600 for at in column("at")]
    day.plot(hours, column("live"), linewidth=1)
    day.set(xlabel="hour", ylabel="live workspaces")
    memory.plot(column("live"), column("blocks"), ".", markersize=2)
    memory.set(xlabel="live workspaces", ylabel="objects allocated")
    due.plot(hours, column("due"), linewidth=1)
    due.set(xlabel="hour", ylabel="closed or deleted in a sweep")
    sweep.plot(column("due"), [s * 1e3 for s in column("sweep")], ".", markersize=2)
    sweep.set(xlabel="closed or deleted in a sweep", ylabel="milliseconds of the sweep")
    for axes in (day, memory, due, sweep):
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.suptitle(f"{told['sessions']:,} sessions in {told['hours']:g} hours")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Simulate, then write the figures and their plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--hours", type=float, default=24, help="of the day")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="Write OUT.json and OUT.svg.")
    chosen = parser.parse_args()
    told = asyncio.run(_simulated(chosen.sessions, chosen.hours, chosen.seed))
    print(summary(told))
    if chosen.out:
        Path(f"{chosen.out}.json").write_text(json.dumps(told) + "\n")
        plot(told, f"{chosen.out}.svg")


if __name__ == "__main__":
    main()
