"""Measure one row of the table and print its lines as JSON."""

import asyncio
import contextlib
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import rivals
from measure import (
    MB,
    Cost,
    MiB,
    descendants,
    duration,
    footprint,
    interleaved,
    medians,
    resident,
    timed,
    weighed,
)
from one_bwrap import one_bwrap
from table import Line, at_most, faster, flow

from isobox import BubblewrapWorkspace

TRUE = ["/bin/true"]
PAGE = b"x" * 4096
ENTRIES = 10_000
OUTPUT = 5 * 1024 * MiB
FILE = 1024 * MiB
WORKSPACES = 200
RATE = 300 * MB
GROWTH = 32 * MiB

FIND = ["find", "many", "-mindepth", "1", "-maxdepth", "1"]
FIND += ["-printf", r"%y\t%s\t%m\t%T@\t%U\t%G\t%l\t%p\0"]


async def exec_() -> list[Line]:
    """One command in a workspace that lives, against a process per command."""
    with rivals.agentscope() as other, one_bwrap() as bwrap:
        async with BubblewrapWorkspace() as ws:
            took = medians(
                await interleaved(
                    {
                        "isobox": timed(lambda: ws.run(TRUE, check=True)),
                        "plain": timed(lambda: rivals.plain(TRUE)),
                        "bwrap": timed(lambda: bwrap.run(TRUE)),
                        "agentscope": timed(lambda: other.run(TRUE)),
                    },
                    rounds=30,
                    warmup=2,
                    at_a_time=10,
                )
            )
    work = 'run(["/bin/true"])'
    ours = took["isobox"]
    return [
        at_most(work, ours, "asyncio subprocess on the host", took["plain"], 1.6),
        faster(work, ours, "one bwrap per command", took["bwrap"], 5),
        faster(work, ours, "AgentScope exec_shell", took["agentscope"], 6),
    ]


async def files() -> list[Line]:
    """Small files, against a bwrap with a shell for each."""
    with rivals.agentscope() as other:
        async with BubblewrapWorkspace() as ws:
            wrote = medians(
                await interleaved(
                    {
                        "isobox write": timed(lambda: ws.write("page", PAGE)),
                        "agentscope write": timed(lambda: other.write("page", PAGE)),
                    },
                    rounds=20,
                    warmup=1,
                    at_a_time=10,
                )
            )
            read = medians(
                await interleaved(
                    {
                        "isobox read": timed(lambda: ws.read_bytes("page")),
                        "agentscope read": timed(lambda: other.read("page")),
                    },
                    rounds=20,
                    warmup=1,
                    at_a_time=10,
                )
            )
            same = await ws.read_bytes("page") == await other.read("page") == PAGE
            assert same, "a file did not come back as it was written"
    return [
        faster(
            "read 4 KB",
            read["isobox read"],
            "AgentScope read_file",
            read["agentscope read"],
            30,
        ),
        faster(
            "write 4 KB",
            wrote["isobox write"],
            "AgentScope write_file",
            wrote["agentscope write"],
            30,
        ),
    ]


async def scan() -> list[Line]:
    """Describe a large directory, against find in the same sandbox."""
    async with BubblewrapWorkspace() as ws:
        await ws.run(
            f"mkdir many && cd many && seq {ENTRIES} | xargs touch", check=True
        )
        found = (await ws.scan("many")).entries
        listed = (await ws.run(FIND, check=True)).stdout_bytes.count(b"\0")
        assert len(found) == listed == ENTRIES
        took = medians(
            await interleaved(
                {
                    "isobox": timed(lambda: ws.scan("many")),
                    "find": timed(lambda: ws.run(FIND, check=True)),
                },
                rounds=30,
                warmup=2,
            )
        )
    return [
        at_most(
            "scan of 10,000 entries",
            took["isobox"],
            "run(find -printf), not parsed",
            took["find"],
            2,
        )
    ]


async def create() -> list[Line]:
    """From nothing to the first result, against bwrap with a bare interpreter."""

    async def ours() -> float:
        start = time.perf_counter()
        async with BubblewrapWorkspace() as ws:
            await ws.run(TRUE, check=True)
            return time.perf_counter() - start

    with one_bwrap() as bwrap:
        python = [bwrap.python, "-c", "pass"]
        took = medians(
            await interleaved(
                {
                    "isobox": ours,
                    "bwrap": timed(lambda: bwrap.run(python)),
                },
                rounds=60,
                warmup=5,
            )
        )
    return [
        at_most(
            "create to first result",
            took["isobox"],
            "bwrap ... python3 -c pass",
            took["bwrap"],
            2.5,
        )
    ]


async def output() -> list[Line]:
    """More output than anybody keeps, against reading it and keeping nothing."""
    flood = ["head", "-c", str(OUTPUT), "/dev/zero"]

    async def theirs() -> None:
        assert await rivals.discarded(flood) == OUTPUT

    async with BubblewrapWorkspace() as ws:

        async def ours() -> None:
            result = await ws.run(flood, output_limit=MiB, check=True)
            assert result.stdout_total == OUTPUT
            assert result.truncated
            assert len(result.stdout_bytes) <= MiB

        await ws.run(["head", "-c", "4M", "/dev/zero"], output_limit=MiB)
        costs = await interleaved(
            {"isobox": weighed(ours), "plain": weighed(theirs)}, rounds=3
        )
    return [
        flow(
            "capture head + tail of 5 GiB of stdout",
            _rate(costs["isobox"], OUTPUT),
            "asyncio subprocess, read and discarded",
            _rate(costs["plain"], OUTPUT),
            rate=RATE,
            growth=GROWTH,
        )
    ]


async def transfer() -> list[Line]:
    """One large file in and out, against AgentScope's streams."""
    with (
        rivals.agentscope() as other,
        tempfile.TemporaryDirectory(prefix="bench-files-") as directory,
    ):
        source, target = Path(directory, "source"), Path(directory, "target")
        _fill(source)

        async with BubblewrapWorkspace() as ws:
            uploads = await interleaved(
                {
                    "isobox": weighed(lambda: ws.upload(source, "file")),
                    "agentscope": weighed(lambda: other.upload(source, "file")),
                },
                rounds=3,
            )
            downloads = await interleaved(
                {
                    "isobox": _checked(lambda: ws.download("file", target), target),
                    "agentscope": weighed(lambda: other.download("file", target)),
                },
                rounds=3,
            )
        assert _digest(source) == _digest(target)
    return [
        _transfer("upload of a 1 GiB file", uploads, "AgentScope write_stream"),
        _transfer("download of a 1 GiB file", downloads, "AgentScope read_stream"),
    ]


def _checked(
    call: Callable[[], Awaitable[object]], target: Path
) -> Callable[[], Awaitable[Cost]]:
    """Weigh `call`, then see that it brought a whole file."""
    contender = weighed(call)

    async def checked() -> Cost:
        target.unlink(missing_ok=True)
        cost = await contender()
        assert target.stat().st_size == FILE
        return cost

    return checked


def _transfer(work: str, costs: dict[str, list[Cost]], rival: str) -> Line:
    return flow(
        work,
        _rate(costs["isobox"], FILE),
        rival,
        _rate(costs["agentscope"], FILE),
        rate=RATE,
        growth=GROWTH,
    )


def _rate(costs: list[Cost], size: int) -> tuple[float, int]:
    seconds = statistics.median(cost.seconds for cost in costs)
    return size / seconds, max(cost.growth for cost in costs)


def _fill(path: Path) -> None:
    block = hashlib.shake_256(b"bench").digest(MiB)
    with path.open("wb") as file:
        for number in range(FILE // MiB):
            file.write(number.to_bytes(8, "big") + block[8:])


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def many() -> list[Line]:
    """Many workspaces that live at once, one command in each."""
    before = resident()
    async with contextlib.AsyncExitStack() as stack:
        start = time.perf_counter()
        spaces = [
            await stack.enter_async_context(BubblewrapWorkspace())
            for _ in range(WORKSPACES)
        ]
        created = time.perf_counter() - start
        results = await asyncio.gather(
            *(space.run(["echo", str(n)]) for n, space in enumerate(spaces))
        )
        good = sum(r.stdout == f"{n}\n" for n, r in enumerate(results))
        memory = _memory(resident() - before)
    return [
        Line(
            f"{WORKSPACES} live workspaces, one command each",
            f"{good} succeed; created in {duration(created)}",
            "",
            "",
            "all succeed",
            good == WORKSPACES,
        ),
        memory,
    ]


def _memory(host_growth: int) -> Line:
    used = footprint(descendants())
    return Line(
        "memory of one idle workspace (PSS)",
        f"{_share(used.pss)} ({used.processes / WORKSPACES:g} processes, "
        f"RSS {_share(used.rss)}, private {_share(used.private)}; "
        f"+ {host_growth / WORKSPACES / 1024:.0f} KiB in the host process)",
        "",
        "",
        "≤ 10 MiB",
        used.pss <= WORKSPACES * 10 * MiB,
    )


def _share(total: int) -> str:
    return f"{total / WORKSPACES / MiB:.1f} MiB"


ROWS = {
    "exec": exec_,
    "files": files,
    "scan": scan,
    "create": create,
    "output": output,
    "transfer": transfer,
    "many": many,
}

if __name__ == "__main__":
    for measured in asyncio.run(ROWS[sys.argv[1]]()):
        print(measured.to_json())
