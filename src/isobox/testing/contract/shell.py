"""Shells that keep their state."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from isobox.errors import CommandFailedError, InvalidArgumentError
from isobox.testing.contract._base import SLACK, SOON, Contract, unique_seconds

if TYPE_CHECKING:
    from isobox import WorkspaceBase

_shell = pytest.mark.requires("posix_shell")


class ShellContract(Contract):
    """Shells that keep their state."""

    @_shell
    async def test_output_and_status_come_back(self, workspace: WorkspaceBase) -> None:
        shell = workspace.shell()
        result = await shell.run("echo hi; echo trouble >&2; (exit 3)")
        assert (result.stdout, result.stderr) == ("hi\n", "trouble\n")
        assert result.exit_code == 3

    @_shell
    async def test_the_directory_is_kept(self, workspace: WorkspaceBase) -> None:
        shell = workspace.shell()
        await shell.run("mkdir -p a/b; cd a/b")
        assert (await shell.run("pwd")).stdout == f"{workspace.root}/a/b\n"

    @_shell
    async def test_variables_are_kept(self, workspace: WorkspaceBase) -> None:
        shell = workspace.shell()
        await shell.run("one=1; export two=2")
        result = await shell.run("echo $one $two; printenv one two")
        assert result.stdout == "1 2\n2\n"

    @_shell
    async def test_functions_are_kept(self, workspace: WorkspaceBase) -> None:
        shell = workspace.shell()
        await shell.run("greet() { echo hello $1; }")
        assert (await shell.run("greet you")).stdout == "hello you\n"

    @_shell
    async def test_a_name_is_a_shell(self, workspace: WorkspaceBase) -> None:
        await workspace.shell("one").run("x=1")
        await workspace.shell("two").run("x=2")
        assert (await workspace.shell("one").run("echo $x")).stdout == "1\n"
        assert (await workspace.shell("two").run("echo $x")).stdout == "2\n"

    @_shell
    async def test_run_with_a_session_is_the_same_shell(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run("x=1", session_id="one")
        assert (await workspace.shell("one").run("echo $x")).stdout == "1\n"
        assert (await workspace.run("echo $x", session_id="two")).stdout == "\n"

    @_shell
    async def test_a_session_takes_no_argv(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(InvalidArgumentError):
            await workspace.run(["true"], session_id="one")

    @_shell
    @pytest.mark.parametrize(
        "given",
        [
            {"cwd": "."},
            {"env": {"A": "1"}},
            {"stdin": ""},
            {"idle_timeout": 1.0},
            {"spool": "out"},
            {"user": "nobody"},
            {"limits": {"nofile": 64}},
        ],
        ids=lambda given: next(iter(given)),
    )
    async def test_a_session_takes_nothing_that_its_shell_has(
        self, workspace: WorkspaceBase, given: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidArgumentError, match=next(iter(given))):
            await workspace.run("true", session_id="one", **given)

    @_shell
    async def test_check_raises(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(CommandFailedError) as caught:
            await workspace.shell().run("echo hi; false", check=True)
        assert caught.value.result.stdout == "hi\n"

    @_shell
    async def test_output_without_a_line_end_is_exact(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        assert (await shell.run("printf abc")).stdout == "abc"
        assert (await shell.run("printf ''")).stdout == ""
        assert (await shell.run(r"printf '\377\000\n'")).stdout_bytes == b"\xff\x00\n"

    @_shell
    async def test_a_syntax_error_leaves_the_shell_alive(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        await shell.run("x=1")
        with anyio.fail_after(SOON):
            assert (await shell.run("if then (")).exit_code != 0
            assert (await shell.run("echo $x")).stdout == "1\n"

    @_shell
    @pytest.mark.parametrize(
        "script", ["echo 'unclosed", "cat <<END\nno end", "( echo x", "echo \\"]
    )
    async def test_an_unfinished_script_hangs_nothing(
        self, workspace: WorkspaceBase, script: str
    ) -> None:
        shell = workspace.shell()
        with anyio.fail_after(SOON):
            await shell.run(script)
            assert (await shell.run("echo alive")).stdout == "alive\n"

    @_shell
    async def test_a_comment_at_the_end_hides_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        with anyio.fail_after(SOON):
            assert (await shell.run("echo hi # comment")).stdout == "hi\n"
            assert (await shell.run("# only")).stdout == ""
            assert (await shell.run("")).exit_code == 0

    @_shell
    async def test_stdin_is_at_its_end_in_a_shell(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        with anyio.fail_after(SOON):
            assert (await shell.run("cat; read x; echo end")).stdout == "end\n"
            assert (await shell.run("echo alive")).stdout == "alive\n"

    @_shell
    async def test_a_large_output_is_counted(self, workspace: WorkspaceBase) -> None:
        result = await workspace.shell().run("seq 1 200000", output_limit=1000)
        assert result.truncated
        assert len(result.stdout_bytes) <= 1000
        assert result.stdout_total == sum(len(f"{n}\n") for n in range(1, 200_001))

    @_shell
    async def test_a_large_script_runs(self, workspace: WorkspaceBase) -> None:
        script = "# nothing to see here\n" * 50_000 + "echo end"
        assert (await workspace.shell().run(script)).stdout == "end\n"

    @_shell
    async def test_a_timeout_ends_the_command(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        started = time.monotonic()
        result = await workspace.shell().run(
            f"echo before; sleep {seconds}", timeout=0.5
        )
        assert time.monotonic() - started <= 0.5 + SLACK
        assert result.timed_out
        assert result.stdout == "before\n"
        assert not await self.is_running(workspace, seconds)

    @_shell
    async def test_the_shell_answers_after_a_timeout(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        await shell.run("sleep 60", timeout=0.3)
        with anyio.fail_after(SOON):
            assert (await shell.run("echo alive")).stdout == "alive\n"

    @pytest.mark.requires("posix_shell", "cancel")
    async def test_a_cancel_ends_the_command(self, workspace: WorkspaceBase) -> None:
        shell = workspace.shell()
        seconds = unique_seconds()
        with anyio.move_on_after(0.5):
            await shell.run(f"sleep {seconds}")
        assert not await self.is_running(workspace, seconds)
        with anyio.fail_after(SOON):
            assert (await shell.run("echo alive")).stdout == "alive\n"

    @_shell
    async def test_exit_ends_the_shell_with_its_status(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        with anyio.fail_after(SOON):
            assert (await shell.run("echo bye; exit 7")).exit_code == 7
            assert (await shell.run("echo again")).stdout == "again\n"

    @_shell
    async def test_a_failure_under_errexit_hangs_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        with anyio.fail_after(SOON):
            await shell.run("set -e")
            assert (await shell.run("false; echo never")).exit_code == 1
            assert (await shell.run("echo again")).stdout == "again\n"

    @_shell
    async def test_commands_of_one_shell_wait_for_each_other(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        outputs: list[str] = []

        async def run(number: int) -> None:
            result = await shell.run(f"echo {number}; sleep 0.01; echo {number}")
            outputs.append(result.stdout)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(run, number)
        assert sorted(outputs) == [f"{n}\n{n}\n" for n in range(10)]

    @_shell
    async def test_a_background_child_delays_nothing_in_a_shell(
        self, workspace: WorkspaceBase
    ) -> None:
        with anyio.fail_after(SOON):
            result = await workspace.shell().run("sleep 60 & echo hi")
        assert result.stdout == "hi\n"

    @_shell
    async def test_a_closed_output_hangs_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        with anyio.fail_after(SOON):
            await shell.run("exec >&- 2>&-", timeout=5)
            await shell.run("true", timeout=5)

    @_shell
    async def test_restart_forgets(self, workspace: WorkspaceBase) -> None:
        shell = workspace.shell()
        await shell.run("x=1; cd /")
        await shell.restart()
        result = await shell.run("echo [$x]; pwd")
        assert result.stdout == f"[]\n{workspace.root}\n"

    @_shell
    async def test_the_end_of_a_shell_ends_its_children(
        self, workspace: WorkspaceBase
    ) -> None:
        shell = workspace.shell()
        seconds = unique_seconds()
        await shell.run(f"sleep {seconds} &")
        await self.until_running(workspace, seconds)
        await shell.aclose()
        assert not await self.is_running(workspace, seconds)
