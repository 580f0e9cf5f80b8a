"""Cancelled calls: over soon, and nothing is left of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from isobox.testing.contract._base import (
    SLACK,
    SOON,
    Contract,
    names,
    unique_seconds,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from isobox import WorkspaceBase

MiB = 1024 * 1024


async def _endless(started: anyio.Event) -> AsyncIterator[bytes]:
    yield bytes(MiB)
    started.set()
    await anyio.sleep_forever()


def _call(
    name: str, workspace: WorkspaceBase, host: Path
) -> Callable[[], Awaitable[Any]]:
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "run": lambda: workspace.run(["sleep", "0.2"]),
        "start": lambda: workspace.start(["true"]),
        "read": lambda: workspace.read_bytes("big"),
        "write": lambda: workspace.write("new", bytes(20 * MiB)),
        # It leaves the text as it was, cancelled or not.
        "edit": lambda: workspace.edit_all("text", [("a", "b"), ("b", "a")]),
        "scan": lambda: workspace.scan(".", depth=None, digest=True),
        "stat": lambda: workspace.stat("big", digest=True),
        "glob": lambda: workspace.glob("**/*"),
        "grep": lambda: workspace.grep("needle"),
        "remove": lambda: workspace.remove("tree", recursive=True),
        "upload": lambda: workspace.upload(host / "up", "new"),
        "download": lambda: workspace.download("big", host / "down"),
    }
    return calls[name]


class CancelContract(Contract):
    """Cancelled calls: over soon, and nothing is left of them."""

    @pytest.mark.requires("cancel")
    async def test_cancel_ends_a_command_soon(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        cancelled = 0.0
        async with anyio.create_task_group() as group:
            group.start_soon(workspace.run, ["sleep", seconds])
            await self.until_running(workspace, seconds)
            cancelled = time.monotonic()
            group.cancel_scope.cancel()
        assert time.monotonic() - cancelled <= SLACK

    @pytest.mark.requires("cancel")
    async def test_nothing_runs_after_a_cancel(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        async with anyio.create_task_group() as group:
            group.start_soon(workspace.run, ["sleep", seconds])
            await self.until_running(workspace, seconds)
            group.cancel_scope.cancel()
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("cancel", "posix_shell", "kill_tree")
    async def test_cancel_ends_descendants(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        script = f"(setsid sh -c 'sleep {seconds} & sleep {seconds}' &) ; sleep 60"
        async with anyio.create_task_group() as group:
            group.start_soon(workspace.run, script)
            await self.until_running(workspace, f"sleep {seconds}")
            group.cancel_scope.cancel()
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("cancel")
    async def test_cancel_ends_a_command_that_floods(
        self, workspace: WorkspaceBase
    ) -> None:
        word = f"flood-{unique_seconds()}"
        with anyio.move_on_after(0.5):
            await workspace.run(["yes", word])
        assert not await self.is_running(workspace, word)

    @pytest.mark.requires("cancel")
    async def test_cancel_ends_a_command_that_is_fed(
        self, workspace: WorkspaceBase
    ) -> None:
        seconds = unique_seconds()
        with anyio.move_on_after(0.5):
            await workspace.run(["sleep", seconds], stdin=bytes(8 * MiB))
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("cancel")
    async def test_cancel_before_the_start_runs_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await workspace.run(["mkdir", "made"])
        assert scope.cancelled_caught
        assert not await workspace.exists("made")

    @pytest.mark.requires("cancel")
    async def test_cancel_of_one_command_spares_the_others(
        self, workspace: WorkspaceBase
    ) -> None:
        outputs: list[str] = []

        async def run() -> None:
            result = await workspace.run(["sleep", "0.5"])
            outputs.append(f"{result.exit_code} {result.signal}")

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(run)
            with anyio.move_on_after(0.1):
                await workspace.run(["sleep", "60"])
        assert outputs == ["0 None"] * 5

    @pytest.mark.requires("cancel", "streamed_body")
    async def test_a_cancelled_write_leaves_the_old_content(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"old")
        started = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(workspace.write, "file", _endless(started))
            await started.wait()
            group.cancel_scope.cancel()
        assert await workspace.read_bytes("file") == b"old"

    @pytest.mark.requires("cancel", "streamed_body")
    async def test_a_cancelled_write_leaves_no_file(
        self, workspace: WorkspaceBase
    ) -> None:
        started = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(workspace.write, "file", _endless(started))
            await started.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(SOON):
            while await names(workspace):
                await anyio.sleep(0.02)

    @pytest.mark.requires("cancel")
    @pytest.mark.parametrize("delay", [0.0, 0.002, 0.02])
    @pytest.mark.parametrize(
        "name",
        [
            "run",
            "start",
            "read",
            "write",
            "edit",
            "scan",
            "stat",
            "glob",
            "grep",
            "remove",
            "upload",
            "download",
        ],
    )
    async def test_the_workspace_works_after_a_cancel(
        self, workspace: WorkspaceBase, tmp_path: Path, name: str, delay: float
    ) -> None:
        (tmp_path / "up").write_bytes(bytes(5 * MiB))
        await workspace.write("big", bytes(20 * MiB))
        await workspace.write("text", "a needle\n")
        await workspace.write("tree/leaf", b"x")
        started = time.monotonic()
        with anyio.move_on_after(delay):
            await _call(name, workspace, tmp_path)()
        assert time.monotonic() - started <= SOON
        assert (await workspace.run(["echo", "hi"])).stdout == "hi\n"
        assert await workspace.read_bytes("text") == b"a needle\n"
        assert len(await workspace.read_bytes("big")) == 20 * MiB
        assert set(await names(workspace)) <= {"big", "text", "tree", "new"}
        if await workspace.exists("new"):
            assert (await workspace.stat("new")).size in (5 * MiB, 20 * MiB)
