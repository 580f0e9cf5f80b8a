"""Time in interleaved rounds, and the memory of processes."""

import gc
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

MB = 1_000_000
MiB = 1024 * 1024

Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call took: seconds, and bytes that this process grew at its peak."""

    seconds: float
    growth: int


async def interleaved(
    contenders: Mapping[str, Callable[[], Awaitable[Sample]]],
    *,
    rounds: int,
    warmup: int = 0,
    at_a_time: int = 1,
) -> dict[str, list[Sample]]:
    """Call each contender in turn (A B A B ...) and return what each returned.

    A turn has `at_a_time` calls: after a rival that starts processes, the first
    call of whoever comes next pays for cold caches.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for turn in range(warmup + rounds):
        for name, call in contenders.items():
            took = [await call() for _ in range(at_a_time)]
            if turn >= warmup:
                samples[name].extend(took)
    return samples


def timed(call: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[float]]:
    """Return a contender that gives the seconds that `call` takes."""

    async def contender() -> float:
        start = time.perf_counter()
        await call()
        return time.perf_counter() - start

    return contender


def weighed(call: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[Cost]]:
    """Return a contender that gives the seconds and the peak growth of `call`."""

    async def contender() -> Cost:
        gc.collect()
        _forget_peak()
        before = _status("VmRSS")
        start = time.perf_counter()
        await call()
        seconds = time.perf_counter() - start
        return Cost(seconds, max(0, _status("VmHWM") - before))

    return contender


def medians(samples: Mapping[str, list[float]]) -> dict[str, float]:
    """Return each contender's median, and show its spread on stderr."""
    for name, values in samples.items():
        low, high = min(values), max(values)
        print(
            f"  {name}: median {duration(statistics.median(values))}"
            f" ({duration(low)} to {duration(high)}, {len(values)} rounds)",
            file=sys.stderr,
        )
    return {name: statistics.median(values) for name, values in samples.items()}


def duration(seconds: float) -> str:
    """Return seconds in the unit that reads best."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of processes in bytes: shared pages divided, whole, and not shared."""

    pss: int
    rss: int
    private: int
    processes: int


def footprint(pids: Iterable[int]) -> Footprint:
    """Return the memory of these processes together."""
    rollups = [_rollup(pid) for pid in pids]
    return Footprint(
        pss=sum(rollup["Pss"] for rollup in rollups),
        rss=sum(rollup["Rss"] for rollup in rollups),
        private=sum(
            rollup["Private_Clean"] + rollup["Private_Dirty"] for rollup in rollups
        ),
        processes=len(rollups),
    )


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    return _status("VmRSS")


def descendants() -> list[int]:
    """Return every process below this one."""
    children: dict[int, list[int]] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        children.setdefault(_parent(pid), []).append(pid)
    found = list(children.get(os.getpid(), []))
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _rollup(pid: int) -> dict[str, int]:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        next(file)
        return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file}


def _status(field: str) -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
