"""How a workspace begins, ends and begins again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from isobox.abc import SnapshotRef
from isobox.errors import InvalidArgumentError, PathMissingError, WorkspaceClosedError
from isobox.testing.contract._base import SOON, Contract, Factory, Kill, unique_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox import WorkspaceBase

_NO_SNAPSHOT = SnapshotRef("none", 0, 0.0)


async def _shell(workspace: WorkspaceBase) -> None:
    workspace.shell()


async def _isolation(workspace: WorkspaceBase) -> None:
    workspace.isolation()


async def _root(workspace: WorkspaceBase) -> None:
    _ = workspace.root


_CALLS: dict[str, Callable[[WorkspaceBase], Awaitable[Any]]] = {
    "run": lambda ws: ws.run(["true"]),
    "run_in_session": lambda ws: ws.run("true", session_id="s"),
    "start": lambda ws: ws.start(["true"]),
    "attach": lambda ws: ws.attach("p1"),
    "shell": _shell,
    "read_bytes": lambda ws: ws.read_bytes("f"),
    "read_text": lambda ws: ws.read_text("f"),
    "write": lambda ws: ws.write("f", b""),
    "edit": lambda ws: ws.edit("f", "a", "b"),
    "scan": lambda ws: ws.scan(),
    "stat": lambda ws: ws.stat("f"),
    "exists": lambda ws: ws.exists("f"),
    "glob": lambda ws: ws.glob("*"),
    "grep": lambda ws: ws.grep("x"),
    "remove": lambda ws: ws.remove("f"),
    "upload": lambda ws: ws.upload(__file__, "f"),
    "download": lambda ws: ws.download("f", "never-made"),
    "forward": lambda ws: ws.forward(80),
    "snapshot": lambda ws: ws.snapshot(),
    "restore": lambda ws: ws.restore(_NO_SNAPSHOT),
    "isolation": _isolation,
    "root": _root,
}


class LifecycleContract(Contract):
    """How a workspace begins, ends and begins again."""

    async def test_a_new_workspace_runs_a_command(
        self, workspace: WorkspaceBase
    ) -> None:
        assert (await workspace.run(["echo", "hi"])).stdout == "hi\n"

    async def test_initialize_again_changes_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("kept", b"x")
        await workspace.initialize()
        assert await workspace.read_bytes("kept") == b"x"

    async def test_initialize_at_the_same_time_makes_one_sandbox(self) -> None:
        workspace = self.make_workspace()
        try:
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(workspace.initialize)
            await workspace.write("kept", b"x")
            assert await workspace.read_bytes("kept") == b"x"
        finally:
            await workspace.close()

    async def test_close_again_changes_nothing(self) -> None:
        workspace = self.make_workspace()
        await workspace.initialize()
        await workspace.close()
        await workspace.close()

    async def test_close_without_initialize_is_fine(self) -> None:
        await self.make_workspace().close()

    async def test_leaving_the_context_closes(self) -> None:
        async with self.make_workspace() as workspace:
            pass
        with pytest.raises(WorkspaceClosedError):
            await workspace.run(["true"])

    @pytest.mark.parametrize("call", _CALLS)
    async def test_a_closed_workspace_says_so(self, call: str) -> None:
        workspace = self.make_workspace()
        await workspace.initialize()
        await workspace.close()
        with anyio.fail_after(SOON), pytest.raises(WorkspaceClosedError):
            await _CALLS[call](workspace)

    @pytest.mark.parametrize("call", _CALLS)
    async def test_a_workspace_that_never_opened_says_so(self, call: str) -> None:
        with pytest.raises(WorkspaceClosedError, match="initialize"):
            await _CALLS[call](self.make_workspace())

    async def test_a_closed_workspace_opens_again(self) -> None:
        workspace = self.make_workspace()
        await workspace.initialize()
        await workspace.close()
        async with workspace:
            assert (await workspace.run(["echo", "again"])).stdout == "again\n"

    async def test_reset_empties_a_temporary_directory(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("gone", b"x")
        await workspace.reset()
        assert not await workspace.exists("gone")

    @pytest.mark.requires("isolated", "posix_shell")
    async def test_reset_empties_tmp_and_home(self, workspace: WorkspaceBase) -> None:
        await workspace.run('touch /tmp/gone "$HOME/gone"', check=True)
        await workspace.reset()
        result = await workspace.run('ls -A /tmp "$HOME"', check=True)
        assert "gone" not in result.stdout

    async def test_reset_kills_what_runs(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        await workspace.start(["sleep", seconds])
        await self.until_running(workspace, seconds)
        await workspace.reset()
        assert not await self.is_running(workspace, seconds)

    async def test_reset_forgets_processes(self, workspace: WorkspaceBase) -> None:
        process = await workspace.start(["sleep", "60"])
        await workspace.reset()
        with pytest.raises(PathMissingError):
            await workspace.attach(process.id)

    async def test_close_wakes_who_waits_for_a_process(self) -> None:
        workspace = self.make_workspace()
        await workspace.initialize()
        process = await workspace.start(["sleep", "60"])
        await workspace.close()
        with anyio.move_on_after(SOON) as scope:
            with contextlib.suppress(ConnectionError, WorkspaceClosedError):
                await process.wait()
        assert not scope.cancelled_caught

    async def test_close_ends_a_command_that_runs(self) -> None:
        workspace = self.make_workspace()
        await workspace.initialize()
        ended = anyio.Event()

        async def run() -> None:
            with contextlib.suppress(ConnectionError, WorkspaceClosedError):
                await workspace.run(["sleep", "60"])
            ended.set()

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await anyio.sleep(0.2)
                await workspace.close()
        assert ended.is_set()

    async def test_two_workspaces_share_no_file(
        self, workspace: WorkspaceBase, fresh_workspace: Factory
    ) -> None:
        other = await fresh_workspace()
        await workspace.write("mine", b"x")
        assert not await other.exists("mine")

    async def test_two_workspaces_have_two_ids(
        self, workspace: WorkspaceBase, fresh_workspace: Factory
    ) -> None:
        assert workspace.workspace_id != (await fresh_workspace()).workspace_id

    async def test_a_workspace_has_the_id_it_is_given(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(workspace_id="contract-1")
        assert workspace.workspace_id == "contract-1"

    @pytest.mark.parametrize("bad", ["", "Upper", "a b", "-a", "a-", "a/b", "a" * 64])
    async def test_a_bad_id_is_refused(self, bad: str) -> None:
        with pytest.raises(InvalidArgumentError, match="workspace_id"):
            self.make_workspace(workspace_id=bad)

    async def test_commands_run_in_the_root(self, workspace: WorkspaceBase) -> None:
        assert workspace.root.startswith("/")
        assert (await workspace.run(["pwd"])).stdout == f"{workspace.root}\n"

    async def test_reset_brings_a_crashed_sandbox_back(
        self, workspace: WorkspaceBase, kill_sandbox: Kill
    ) -> None:
        await kill_sandbox(workspace)
        await workspace.reset()
        assert (await workspace.run(["echo", "back"])).stdout == "back\n"
