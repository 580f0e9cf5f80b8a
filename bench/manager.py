"""Print how fast a manager hands workspaces out, against AgentScope's.

python bench/manager.py
python bench/manager.py --only hit
"""

import argparse
import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import environment
from mcp_gateway import furnish
from measure import (
    MiB,
    descendants,
    duration,
    footprint,
    medians,
    resident,
)
from table import Line, markdown

if TYPE_CHECKING:
    from isobox.manager import WorkspaceManager

TRUE = ["/bin/true"]
#: Seconds between two requests for what is open already.
PAUSE = 0.002
#: Workspaces that others have built meanwhile.
BUILT = 6
SPARES = 10
LIVE = 500


def main() -> None:
    """Run it in the bench's own environment."""
    python = environment.prepare()
    if Path(sys.executable).resolve() != python.resolve() or "--inner" not in sys.argv:
        program = [str(python), __file__, "--inner", *sys.argv[1:]]
        sys.exit(subprocess.run(program, check=False).returncode)
    parser = argparse.ArgumentParser()
    parser.add_argument("--inner", action="store_true")
    parser.add_argument("--only", choices=ROWS, action="append")
    chosen = parser.parse_args().only or ROWS
    lines = [line for name in chosen for line in asyncio.run(ROWS[name]())]
    print(markdown(lines))


# -- hit ---------------------------------------------------------------------------


async def hit() -> list[Line]:
    """A request for a workspace that is open, while others are being built."""
    async with _isobox(max_creating=2) as manager:
        ours = await _hits(
            lambda key: manager.get_workspace("user", key, "s"), range(BUILT)
        )
    async with _agentscope(BUILT) as other:
        theirs = await _hits(
            lambda key: other.get_workspace("user", key, "s", workspace_id=key),
            range(BUILT),
        )
    took = medians({"isobox": ours, "agentscope": theirs})
    work = "`get_workspace` of an open one while others are being built"
    worst = max(ours), max(theirs)
    return [
        Line(
            work,
            f"{duration(took['isobox'])} (99 %: {duration(_most(ours))})",
            f"AgentScope: {duration(took['agentscope'])} "
            f"(99 %: {duration(_most(theirs))})",
            f"{took['agentscope'] / took['isobox']:.1f} x faster",
            "≤ 0.3 ms",
            took["isobox"] <= 3e-4,
        ),
        Line(
            "the longest of these requests",
            duration(worst[0]),
            f"AgentScope: {duration(worst[1])}",
            f"{worst[1] / worst[0]:.0f} x faster",
            "",
            None,
        ),
    ]


async def _hits(get: Callable[[str], Awaitable[object]], others: range) -> list[float]:
    """Ask for one workspace again and again, from before others to after them."""
    await get("open")
    building = asyncio.ensure_future(_all(get, others))
    took: list[float] = []
    while not building.done():
        begun = time.perf_counter()
        await get("open")
        took.append(time.perf_counter() - begun)
        await asyncio.sleep(PAUSE)
    await building
    return took


async def _all(get: Callable[[str], Awaitable[object]], others: range) -> None:
    for number in others:
        await get(f"other-{number}")


def _most(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


# -- miss --------------------------------------------------------------------------


async def miss() -> list[Line]:
    """A new tenant's first request, with and without a spare at hand."""
    async with _isobox(prewarm=SPARES) as manager:
        spare = [
            await _new(manager, f"user-{number}", spares=SPARES)
            for number in range(2 * SPARES)
        ]
    async with _isobox() as manager:
        cold = [await _new(manager, f"user-{number}") for number in range(SPARES)]
    took = medians({"spare": spare, "cold": cold})
    return [
        Line(
            "`get_workspace` of a new one, from the spares",
            f"{duration(took['spare'])} (longest: {duration(max(spare))})",
            f"without spares: {duration(took['cold'])}",
            f"{took['cold'] / took['spare']:.1f} x faster",
            "≤ 10 ms",
            took["spare"] <= 1e-2,
        )
    ]


async def _new(manager: "WorkspaceManager", user: str, *, spares: int = 0) -> float:
    while manager.stats().spares < spares:
        await asyncio.sleep(0.05)
    begun = time.perf_counter()
    workspace = await manager.get_workspace(user, "agent", "session")
    took = time.perf_counter() - begun
    assert (await workspace.run(TRUE)).exit_code == 0
    return took


# -- many --------------------------------------------------------------------------


async def many() -> list[Line]:
    """Five hundred open at once: what they use, and that they work."""
    async with _isobox(queue_timeout=900) as manager:
        before = resident()
        begun = time.perf_counter()
        opened = await asyncio.gather(
            *(manager.get_workspace(f"user-{n}", "a", "s") for n in range(LIVE))
        )
        took = time.perf_counter() - begun
        growth = resident() - before
        used = footprint(descendants())
        results = await asyncio.gather(*(each.run(TRUE) for each in opened))
        good = sum(result.exit_code == 0 for result in results)
        begun = time.perf_counter()
    closed = time.perf_counter() - begun
    return [
        Line(
            f"{LIVE} live workspaces, one command each",
            f"{good} succeed; opened in {duration(took)}, closed in {duration(closed)}",
            "",
            "",
            "all succeed",
            good == LIVE,
        ),
        Line(
            f"memory of {LIVE} idle workspaces",
            f"PSS {used.pss / MiB:.0f} MiB, {used.pss / MiB / LIVE:.1f} MiB each "
            f"({used.processes / LIVE:g} processes each; + {growth / LIVE / 1024:.0f} "
            "KiB each in the host process)",
            "",
            "",
            "",
            None,
        ),
    ]


# -- who is measured ---------------------------------------------------------------


@contextlib.asynccontextmanager
async def _isobox(**options: object) -> "AsyncIterator[WorkspaceManager]":
    from isobox import BubblewrapWorkspace  # noqa: PLC0415
    from isobox.manager import WorkspaceManager  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="bench-manager-") as directory:
        async with WorkspaceManager(
            BubblewrapWorkspace, basedir=directory, **options
        ) as manager:
            yield manager


@contextlib.asynccontextmanager
async def _agentscope(others: int) -> AsyncIterator[object]:
    """Give its manager, with what each workspace would download in place."""
    from agentscope.app.workspace_manager import (  # noqa: PLC0415
        BubblewrapWorkspaceManager,
    )

    with tempfile.TemporaryDirectory(prefix="bench-agentscope-") as directory:
        manager = BubblewrapWorkspaceManager(f"{directory}/base", gateway_port=None)
        names = ["open", *(f"other-{number}" for number in range(others))]
        furnished = Path(directory) / "furnished"
        furnish(furnished)
        for name in names:
            work = Path(manager._workdir_for("user", name))
            shutil.copytree(
                furnished, work / ".agentscope", symlinks=True, copy_function=os.link
            )
        async with manager:
            yield manager


ROWS = {"hit": hit, "miss": miss, "many": many}

if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
