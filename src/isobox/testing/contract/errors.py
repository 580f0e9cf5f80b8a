"""Errors, and sandboxes that are suddenly gone."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from isobox.abc import SnapshotRef
from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    PathError,
    PathIsDirectoryError,
    PathMissingError,
    SandboxLostError,
)
from isobox.testing.contract._base import SOON, Contract, Kill, unique_seconds
from isobox.testing.processes import runs_on_host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from isobox import WorkspaceBase

MiB = 1024 * 1024


async def _slow() -> AsyncIterator[bytes]:
    while True:
        yield bytes(1000)
        await anyio.sleep(0.01)


async def _wait_for_a_process(workspace: WorkspaceBase) -> None:
    async with await workspace.start(["sleep", "60"]) as process:
        await process.wait()


async def _read_a_process(workspace: WorkspaceBase) -> None:
    async with await workspace.start(["yes"]) as process:
        while await process.stdout.receive():
            pass
        await process.wait()


async def _write_to_a_process(workspace: WorkspaceBase) -> None:
    async with await workspace.start(["sleep", "60"], stdin=True) as process:
        while True:
            await process.write(bytes(MiB))


_CALLS: dict[str, Callable[[WorkspaceBase, Path], Awaitable[Any]]] = {
    "run": lambda ws, _: ws.run(["sleep", "60"]),
    "run_that_floods": lambda ws, _: ws.run(["yes"]),
    "run_that_is_fed": lambda ws, _: ws.run(["sleep", "60"], stdin=bytes(9 * MiB)),
    "run_that_is_short": lambda ws, _: ws.run(["true"]),
    "process_wait": lambda ws, _: _wait_for_a_process(ws),
    "process_read": lambda ws, _: _read_a_process(ws),
    "process_write": lambda ws, _: _write_to_a_process(ws),
    "read": lambda ws, _: ws.read_bytes("big"),
    "write": lambda ws, _: ws.write("new", bytes(8 * MiB)),
    # Its text is the same again afterwards.
    "edit": lambda ws, _: ws.edit_all("text", [("a", "b"), ("b", "a")]),
    "scan": lambda ws, _: ws.scan(depth=None, digest=True),
    "stat": lambda ws, _: ws.stat("big", digest=True),
    "glob": lambda ws, _: ws.glob("**/*"),
    "grep": lambda ws, _: ws.grep("needle"),
    "upload": lambda ws, host: ws.upload(host / "up", "up"),
    "download": lambda ws, host: ws.download("big", host / "down"),
}

_AFTER: dict[str, Callable[[WorkspaceBase, Path], Awaitable[Any]]] = {
    **_CALLS,
    "remove": lambda ws, _: ws.remove("text"),
}


class ErrorsContract(Contract):
    """Errors, and sandboxes that are suddenly gone."""

    async def test_an_error_says_where_it_came_from(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(IsoboxError) as caught:
            await workspace.read_bytes("missing")
        assert caught.value.backend == workspace.backend
        assert caught.value.op == "read"
        assert caught.value.path is not None
        assert "missing" in caught.value.path
        assert str(caught.value)

    @pytest.mark.parametrize(
        ("path", "kind", "builtin", "code"),
        [
            ("missing", PathMissingError, FileNotFoundError, errno.ENOENT),
            ("directory", PathIsDirectoryError, IsADirectoryError, errno.EISDIR),
        ],
    )
    async def test_a_path_error_is_the_builtin_one(
        self,
        workspace: WorkspaceBase,
        path: str,
        kind: type[PathError],
        builtin: type[OSError],
        code: int,
    ) -> None:
        await workspace.run(["mkdir", "directory"], check=True)
        with pytest.raises(builtin) as caught:
            await workspace.read_bytes(path)
        assert isinstance(caught.value, kind)
        assert caught.value.errno == code

    async def test_an_impossible_argument_is_a_value_error(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(ValueError, match="empty") as caught:
            await workspace.run([])
        assert isinstance(caught.value, InvalidArgumentError)

    async def test_an_error_leaves_the_workspace_usable(
        self, workspace: WorkspaceBase
    ) -> None:
        for _ in range(20):
            with pytest.raises(PathMissingError):
                await workspace.read_bytes("missing")
        assert (await workspace.run(["echo", "hi"])).stdout == "hi\n"

    async def test_what_a_program_says_is_no_error_of_ours(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["printf", "%s", "SandboxLostError: isobox died"])
        assert result.ok
        assert result.stdout == "SandboxLostError: isobox died"

    # -- a sandbox that is gone -----------------------------------------------

    @pytest.mark.parametrize("call", _CALLS)
    async def test_a_crash_in_the_middle_is_told_at_once(
        self,
        workspace: WorkspaceBase,
        kill_sandbox: Kill,
        tmp_path: Path,
        call: str,
    ) -> None:
        await self._furnish(workspace, tmp_path)
        lost: list[float] = []
        killed = 0.0

        async def forever() -> None:
            while True:
                await _CALLS[call](workspace, tmp_path)

        async def go_on() -> None:
            with pytest.raises(SandboxLostError):
                await forever()
            lost.append(time.monotonic())

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                group.start_soon(go_on)
                await anyio.sleep(0.2)
                await kill_sandbox(workspace)
                killed = time.monotonic()
        assert lost[0] - killed <= 5.0

    @pytest.mark.requires("streamed_body")
    async def test_a_crash_during_a_write_of_pieces_is_told(
        self, workspace: WorkspaceBase, kill_sandbox: Kill
    ) -> None:
        async def write() -> None:
            with pytest.raises(SandboxLostError):
                await workspace.write("new", _slow())

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                group.start_soon(write)
                await anyio.sleep(0.2)
                await kill_sandbox(workspace)

    @pytest.mark.parametrize("call", _AFTER)
    async def test_after_a_crash_every_call_says_so(
        self,
        workspace: WorkspaceBase,
        kill_sandbox: Kill,
        tmp_path: Path,
        call: str,
    ) -> None:
        await self._furnish(workspace, tmp_path)
        await kill_sandbox(workspace)
        with anyio.fail_after(SOON), pytest.raises(SandboxLostError):
            await _AFTER[call](workspace, tmp_path)

    @pytest.mark.requires("snapshot")
    async def test_after_a_crash_snapshots_say_so(
        self, workspace: WorkspaceBase, kill_sandbox: Kill
    ) -> None:
        await kill_sandbox(workspace)
        with anyio.fail_after(SOON):
            with pytest.raises(SandboxLostError):
                await workspace.snapshot()
            with pytest.raises(SandboxLostError):
                await workspace.restore(SnapshotRef("any", 0, 0.0))

    async def test_a_crash_is_a_connection_error(
        self, workspace: WorkspaceBase, kill_sandbox: Kill
    ) -> None:
        await kill_sandbox(workspace)
        with pytest.raises(ConnectionError) as caught:
            await workspace.run(["true"])
        assert isinstance(caught.value, SandboxLostError)
        assert caught.value.backend == workspace.backend

    async def test_a_crashed_workspace_closes(
        self, workspace: WorkspaceBase, kill_sandbox: Kill
    ) -> None:
        await workspace.start(["sleep", "60"])
        await kill_sandbox(workspace)
        with anyio.fail_after(SOON):
            await workspace.close()

    async def test_a_crash_of_one_spares_the_other(
        self, workspace: WorkspaceBase, kill_sandbox: Kill
    ) -> None:
        async with self.make_workspace() as other:
            await kill_sandbox(workspace)
            assert (await other.run(["echo", "hi"])).stdout == "hi\n"

    @pytest.mark.requires("posix_shell")
    async def test_a_command_cannot_kill_its_sandbox_unnoticed(
        self, workspace: WorkspaceBase
    ) -> None:
        if "isolated" not in self.capabilities:
            pytest.skip("commands of this backend may signal anything")
        with anyio.fail_after(SOON):
            await workspace.run("kill -9 1 $PPID -1")
            assert (await workspace.run(["echo", "hi"])).stdout == "hi\n"

    async def _furnish(self, workspace: WorkspaceBase, host: Path) -> None:
        (host / "up").write_bytes(bytes(8 * MiB))
        await workspace.write("big", bytes(8 * MiB))
        await workspace.write("text", "a needle\n")

    # -- a host that is gone --------------------------------------------------

    def test_nothing_survives_a_killed_host(self) -> None:
        if self.host_script_backend is None:
            pytest.skip("the host cannot see the processes of this backend")
        seconds = unique_seconds()
        host = subprocess.Popen(
            [sys.executable, "-c", _HOST, self.host_script_backend, seconds],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert host.stdout is not None
        try:
            assert host.stdout.readline() == b"ready\n"
            assert runs_on_host("sleep", seconds)
        finally:
            host.kill()
            host.wait()
            host.stdout.close()
        deadline = time.monotonic() + SOON
        while runs_on_host("sleep", seconds) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not runs_on_host("sleep", seconds)

    async def test_nothing_survives_a_closed_workspace(self) -> None:
        if self.host_script_backend is None:
            pytest.skip("the host cannot see the processes of this backend")
        seconds = unique_seconds()
        async with self.make_workspace() as workspace:
            await workspace.start(["sleep", seconds])
            await workspace.run(f"setsid sleep {seconds} & echo hi")
            await self.until_running(workspace, seconds)
            assert runs_on_host("sleep", seconds)
        assert not runs_on_host("sleep", seconds)


_HOST = """
import sys
import anyio
import isobox

async def main():
    async with getattr(isobox, sys.argv[1])() as workspace:
        await workspace.start(["sleep", sys.argv[2]])
        await workspace.run(f"setsid sh -c 'sleep {sys.argv[2]} & wait' & echo")
        await workspace.run(f"(setsid sleep {sys.argv[2]} &)")
        result = await workspace.run("cat /proc/[0-9]*/cmdline; true")
        while result.stdout.count(sys.argv[2]) < 3:
            result = await workspace.run("cat /proc/[0-9]*/cmdline; true")
        print("ready", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""
