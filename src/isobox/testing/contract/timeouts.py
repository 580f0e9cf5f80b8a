"""Timeouts, signals, and what a command leaves behind."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox import Limits
from isobox.errors import InvalidArgumentError, LimitError
from isobox.testing.contract._base import (
    GRACE,
    SLACK,
    SOON,
    Contract,
    Factory,
    unique_seconds,
)

if TYPE_CHECKING:
    from isobox import RunResult, WorkspaceBase


_HEADLESS = """
import ctypes, sys, threading, time

def go_on():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as name:
        name.write(sys.argv[1])
    print("ready", flush=True)
    time.sleep(60)

threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(0)
"""


class TimeoutsContract(Contract):
    """Timeouts, signals, and what a command leaves behind."""

    async def _timed(
        self, workspace: WorkspaceBase, command: str | list[str], timeout: float
    ) -> RunResult:
        """Run into a timeout and check how long that took."""
        started = time.monotonic()
        result = await workspace.run(command, timeout=timeout)
        assert time.monotonic() - started <= timeout + SLACK
        assert result.duration <= timeout + GRACE
        assert result.timed_out
        return result

    async def test_a_timeout_ends_a_command(self, workspace: WorkspaceBase) -> None:
        result = await self._timed(workspace, ["sleep", "60"], 0.5)
        assert not result.ok
        assert not result.idle_timed_out
        assert result.duration >= 0.5

    async def test_nothing_runs_after_a_timeout(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        await self._timed(workspace, ["sleep", seconds], 0.3)
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("posix_shell")
    async def test_a_timeout_keeps_what_was_printed(
        self, workspace: WorkspaceBase
    ) -> None:
        script = "echo before; echo trouble >&2; sleep 60"
        result = await self._timed(workspace, script, 0.5)
        assert (result.stdout, result.stderr) == ("before\n", "trouble\n")

    async def test_a_timeout_of_nothing_ends_at_once(
        self, workspace: WorkspaceBase
    ) -> None:
        seconds = unique_seconds()
        await self._timed(workspace, ["sleep", seconds], 0)
        assert not await self.is_running(workspace, seconds)

    async def test_a_timeout_that_is_not_reached_changes_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["echo", "hi"], timeout=60)
        assert (result.stdout, result.timed_out) == ("hi\n", False)

    @pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
    @pytest.mark.parametrize("name", ["timeout", "idle_timeout"])
    async def test_an_impossible_timeout_is_refused(
        self, workspace: WorkspaceBase, name: str, value: float
    ) -> None:
        options = {name: value}
        with pytest.raises(InvalidArgumentError, match=name):
            await workspace.run(["true"], **options)  # type: ignore[arg-type]

    @pytest.mark.requires("posix_shell")
    async def test_a_timeout_ends_what_ignores_signals(
        self, workspace: WorkspaceBase
    ) -> None:
        seconds = unique_seconds()
        script = f"trap '' TERM INT HUP QUIT; sleep {seconds}; sleep {seconds}"
        await self._timed(workspace, script, 0.5)
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("posix_shell", "kill_tree")
    async def test_a_timeout_ends_what_has_stopped(
        self, workspace: WorkspaceBase
    ) -> None:
        seconds = unique_seconds()
        await self._timed(workspace, f"sleep {seconds} & kill -STOP $! $$", 0.5)
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("posix_shell", "kill_tree")
    async def test_a_timeout_ends_a_pipeline(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        await self._timed(workspace, f"sleep {seconds} | sleep {seconds} | cat", 0.5)
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("posix_shell", "kill_tree")
    async def test_a_timeout_ends_who_fled_to_a_session(
        self, workspace: WorkspaceBase
    ) -> None:
        seconds = unique_seconds()
        script = f"(setsid sh -c 'sleep {seconds} & sleep {seconds}' &) ; sleep 60"
        await self._timed(workspace, script, 0.7)
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("posix_shell", "python3", "kill_tree")
    async def test_a_timeout_ends_a_daemon(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        await workspace.write("daemon.py", _DAEMON)
        script = f"python3 daemon.py {seconds}; echo ready; sleep 60"
        result = await self._timed(workspace, script, 2.0)
        assert result.stdout == "ready\n"
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("python3", "kill_tree", "proc")
    async def test_a_process_without_its_first_thread_is_killed(
        self, workspace: WorkspaceBase
    ) -> None:
        # The kernel shows it as a zombie while its other threads go on.
        seconds = unique_seconds()
        argv = ["python3", "-c", _HEADLESS, seconds]
        result = await self._timed(workspace, argv, 1.0)
        assert result.stdout == "ready\n"
        script = f"grep -l {seconds} /proc/[0-9]*/task/*/comm 2>/dev/null; true"
        assert (await workspace.run(script)).stdout == ""

    # -- silence --------------------------------------------------------------

    async def test_silence_ends_a_command(self, workspace: WorkspaceBase) -> None:
        with anyio.fail_after(SOON):
            result = await workspace.run(["sleep", "60"], idle_timeout=0.3)
        assert result.idle_timed_out
        assert result.timed_out
        assert not result.ok
        assert result.duration <= 0.3 + GRACE

    async def test_nothing_runs_after_silence(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        await workspace.run(["sleep", seconds], idle_timeout=0.3)
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("posix_shell")
    async def test_output_keeps_a_command_alive(self, workspace: WorkspaceBase) -> None:
        script = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done"
        result = await workspace.run(script, idle_timeout=1.2)
        assert result.ok
        assert result.stdout == "1\n2\n3\n4\n5\n6\n"

    @pytest.mark.requires("posix_shell")
    async def test_errors_keep_a_command_alive(self, workspace: WorkspaceBase) -> None:
        script = "for i in 1 2 3 4 5 6; do echo $i >&2; sleep 0.3; done"
        assert (await workspace.run(script, idle_timeout=1.2)).ok

    # -- limits of the workspace ----------------------------------------------

    async def test_the_workspace_gives_a_timeout(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(limits=Limits(timeout=0.3))
        with anyio.fail_after(SOON):
            assert (await workspace.run(["sleep", "60"])).timed_out

    async def test_a_call_overrides_the_timeout_of_the_workspace(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(limits=Limits(timeout=0.05))
        assert (await workspace.run(["sleep", "0.3"], timeout=60)).ok

    async def test_a_timeout_over_the_most_is_refused(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(limits=Limits(max_timeout=5))
        with pytest.raises(LimitError, match="5"):
            await workspace.run(["true"], timeout=6)

    async def test_the_workspace_gives_an_output_limit(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(limits=Limits(output=100))
        result = await workspace.run(["seq", "1", "1000"])
        assert result.truncated
        assert len(result.stdout_bytes) <= 100

    # -- signals --------------------------------------------------------------

    @pytest.mark.requires("posix_shell")
    @pytest.mark.parametrize(
        ("name", "number"),
        [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("ABRT", 6), ("PIPE", 13)],
    )
    async def test_an_end_by_signal_is_named(
        self, workspace: WorkspaceBase, name: str, number: int
    ) -> None:
        result = await workspace.run(["sh", "-c", f"kill -{name} $$"])
        assert result.signal == f"SIG{name}"
        assert result.exit_code == 128 + number
        assert not result.timed_out

    @pytest.mark.requires("posix_shell")
    async def test_a_status_over_128_is_no_signal(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run("exit 137")
        assert (result.exit_code, result.signal) == (137, None)

    # -- background -----------------------------------------------------------

    @pytest.mark.requires("posix_shell")
    async def test_a_background_child_delays_nothing_of_run(
        self, workspace: WorkspaceBase
    ) -> None:
        with anyio.fail_after(SOON):
            result = await workspace.run("sleep 60 & echo hi")
        assert result.stdout == "hi\n"
        assert result.duration < 5

    @pytest.mark.requires("posix_shell", "kill_tree")
    async def test_a_background_child_is_reported(
        self, workspace: WorkspaceBase
    ) -> None:
        assert (await workspace.run("sleep 60 & echo hi")).background
        assert not (await workspace.run("sleep 0.01 & wait")).background

    @pytest.mark.requires("posix_shell")
    async def test_a_grandchild_that_keeps_the_pipe_delays_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        with anyio.fail_after(SOON):
            result = await workspace.run("setsid sh -c 'sleep 60' & echo hi")
        assert result.stdout == "hi\n"
        assert result.duration < 5

    @pytest.mark.requires("posix_shell")
    async def test_a_background_child_lives_on(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        await workspace.run(f"sleep {seconds} & echo hi")
        assert await self.is_running(workspace, seconds)

    @pytest.mark.requires("posix_shell", "kill_tree")
    async def test_a_background_child_ends_with_the_sandbox(
        self, workspace: WorkspaceBase
    ) -> None:
        seconds = unique_seconds()
        await workspace.run(f"setsid sleep {seconds} & echo hi")
        await self.until_running(workspace, seconds)
        await workspace.reset()
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("posix_shell")
    async def test_output_just_before_the_end_is_kept(
        self, workspace: WorkspaceBase
    ) -> None:
        for _ in range(20):
            result = await workspace.run("seq 1 5000; exec sh -c 'echo last'")
            assert result.stdout.endswith("5000\nlast\n")

    @pytest.mark.requires("posix_shell", "proc")
    async def test_no_zombie_is_left(self, workspace: WorkspaceBase) -> None:
        for _ in range(5):
            await workspace.run("(sleep 0.01 &) ; (setsid true &) ; true")
        await anyio.sleep(0.2)
        with anyio.fail_after(SOON):
            while await self._zombies(workspace):
                await anyio.sleep(0.05)

    async def _zombies(self, workspace: WorkspaceBase) -> int:
        """Count the dead that their parent has not collected, below pid 1."""
        result = await workspace.run(_COUNT_ZOMBIES, check=True)
        return int(result.stdout)


_DAEMON = """
import os, sys
if os.fork():
    sys.exit()
os.setsid()
if os.fork():
    os._exit(0)
for number in (0, 1, 2):
    os.close(number)
os.execvp("sleep", ["sleep", sys.argv[1]])
"""

# Zombies whose parent is the shell's own parent, which is the guest.
_COUNT_ZOMBIES = """
count=0
for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null < "$stat" || continue
    set -- ${line##*) }
    [ "$1" = Z ] && [ "$2" = "$PPID" ] && count=$((count+1))
done
echo $count
"""
