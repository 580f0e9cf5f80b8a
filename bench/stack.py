"""Print what the layers cost each operation, over a sandbox that does nothing.

    bench/.venv/bin/python bench/stack.py
    bench/.venv/bin/python bench/stack.py --rounds 20000

`bench/run.py` makes the environment. The audit file is made in the temporary
directory, which should be on a disk.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import duration

from isobox import JsonlSink, MemorySink, Policy
from isobox._approval.question import Answers
from isobox._core.ops import Op, Read, Spawn, Write
from isobox._core.spec import Limits
from isobox._core.stack import Layer, compose
from isobox._layers import Audit, Errors, Guard, Limited

TARGET = 60e-6
KEY = b"a key of the bench, long enough"

OPS: dict[str, Op] = {
    "spawn": Spawn(argv=("python", "-m", "pytest", "-q"), cwd="/workspace"),
    "spawn, a script": Spawn(script="git status --short | head -20", cwd="/workspace"),
    "read": Read(path="/workspace/src/module.py"),
    "write": Write(path="/workspace/src/module.py", body=b"x" * 4096),
}

Perform = Callable[[Op], Awaitable[object]]


class Nothing:
    """A sandbox of which every operation is over at once."""

    root = "/workspace"

    def __getattr__(self, name: str) -> Callable[[Op], Awaitable[None]]:
        async def method(*_: Op) -> None:
            return None

        setattr(self, name, method)
        return method


@dataclass(frozen=True, slots=True)
class Row:
    """One stack: what it is called, and whether the target is for it."""

    title: str
    perform: Perform
    counts: bool = False


def _layers(sink: object) -> list[Layer]:
    return [
        Audit(sink, workspace="bench", backend="none"),
        Guard(Policy.auto(), Answers(None)),
        Limited(Limits()),
        Errors(backend="none"),
    ]


def rows(directory: Path) -> list[Row]:
    """Return the stacks, the sandbox alone first."""
    sandbox = Nothing()
    plain = JsonlSink(directory / "plain.jsonl")
    keyed = JsonlSink(directory / "keyed.jsonl", key=KEY)
    later = JsonlSink(directory / "later.jsonl", defer_outcomes=True)
    both = JsonlSink(directory / "both.jsonl", key=KEY, defer_outcomes=True)
    return [
        Row("the sandbox alone", compose(sandbox, [])),
        Row("all layers, no sink", compose(sandbox, _layers(None))),
        Row("all layers, records kept in memory", compose(sandbox, _layers(Short()))),
        Row("all layers, JSONL", compose(sandbox, _layers(plain)), counts=True),
        Row("all layers, JSONL with a key", compose(sandbox, _layers(keyed)), True),
        Row(
            "all layers, JSONL, outcomes deferred",
            compose(sandbox, _layers(later)),
            True,
        ),
        Row(
            "all layers, JSONL with a key, outcomes deferred",
            compose(sandbox, _layers(both)),
            True,
        ),
        Row("Audit alone, JSONL", compose(sandbox, _layers(plain)[:1])),
    ]


class Short(MemorySink):
    """Keeps no more than a few records, as a long bench has many."""

    def put(self, record: object, /) -> None:
        super().put(record)
        if len(self.records) > 1000:
            self.records.clear()


async def measured(stacks: Sequence[Row], op: Op, rounds: int) -> list[float]:
    """Return the median of each stack; they take turns, ten calls each."""
    samples: list[list[float]] = [[] for _ in stacks]
    for turn in range(rounds // 10 + 10):
        for row, kept in zip(stacks, samples, strict=True):
            took = [await _timed(row.perform, op) for _ in range(10)]
            if turn >= 10:
                kept.extend(took)
    return [statistics.median(each) for each in samples]


async def _timed(perform: Perform, op: Op) -> float:
    start = time.perf_counter()
    await perform(op)
    return time.perf_counter() - start


async def main(rounds: int) -> int:
    print("| operation | stack | median | added | target | met? |")
    print("|---|---|---|---|---|---|")
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        stacks = rows(Path(directory))
        for name, op in OPS.items():
            medians = await measured(stacks, op, rounds)
            for row, median in zip(stacks, medians, strict=True):
                added = median - medians[0]
                met = added <= TARGET
                missed += row.counts and not met
                target = f"≤ {duration(TARGET)}" if row.counts else ""
                verdict = ("yes" if met else "**no**") if row.counts else ""
                print(
                    f"| {name} | {row.title} | {median * 1e6:.1f} µs "
                    f"| {added * 1e6:.1f} µs | {target} | {verdict} |"
                )
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5000)
    sys.exit(asyncio.run(main(parser.parse_args().rounds)))
