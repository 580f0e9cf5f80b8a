"""Commands: what they are given, and what they give back."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import (
    CommandFailedError,
    InvalidArgumentError,
    PathMissingError,
    PathNotDirectoryError,
    PathOutsideError,
    TimedOutError,
)
from isobox.testing.contract._base import SOON, Contract, Factory

if TYPE_CHECKING:
    from isobox import WorkspaceBase

KiB = 1024
MiB = 1024 * KiB


class CommandsContract(Contract):
    """Commands: what they are given, and what they give back."""

    # -- status ---------------------------------------------------------------

    async def test_a_result_has_everything(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run(["echo", "hi"])
        assert result.exit_code == 0
        assert result.ok
        assert result.signal is None
        assert (result.stdout, result.stderr) == ("hi\n", "")
        assert (result.stdout_bytes, result.stderr_bytes) == (b"hi\n", b"")
        assert (result.stdout_total, result.stderr_total) == (3, 0)
        assert not result.timed_out
        assert not result.idle_timed_out
        assert not result.oom_killed
        assert not result.truncated
        assert not result.background
        assert result.spool is None

    async def test_failure_is_a_result(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run(["false"])
        assert result.exit_code == 1
        assert not result.ok

    @pytest.mark.requires("posix_shell")
    @pytest.mark.parametrize("status", [0, 1, 2, 42, 125, 200, 255])
    async def test_every_status_comes_back(
        self, workspace: WorkspaceBase, status: int
    ) -> None:
        assert (await workspace.run(f"exit {status}")).exit_code == status

    @pytest.mark.parametrize(
        "program", ["no-such-program", "/no/such/program", "./no-such-program"]
    )
    async def test_a_missing_program_is_127(
        self, workspace: WorkspaceBase, program: str
    ) -> None:
        result = await workspace.run([program, "argument"])
        assert result.exit_code == 127
        assert result.signal is None

    async def test_a_file_that_is_no_program_is_126(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("plain", "text", mode=0o644)
        assert (await workspace.run(["./plain"])).exit_code == 126

    async def test_a_directory_as_program_is_126(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["mkdir", "directory"], check=True)
        assert (await workspace.run(["./directory"])).exit_code == 126

    async def test_a_file_made_executable_runs(self, workspace: WorkspaceBase) -> None:
        await workspace.write("tool", "#!/bin/echo ran\n", mode=0o755)
        assert (await workspace.run(["./tool", "x"])).stdout == "ran ./tool x\n"

    async def test_duration_is_in_seconds(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run(["sleep", "0.3"])
        assert 0.29 <= result.duration < 0.3 + SOON

    # -- check ----------------------------------------------------------------

    async def test_check_returns_success(self, workspace: WorkspaceBase) -> None:
        assert (await workspace.run(["true"], check=True)).ok

    async def test_check_raises_with_the_result(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(CommandFailedError) as caught:
            await workspace.run(["cat", "missing"], check=True)
        assert caught.value.result.exit_code == 1
        assert "missing" in caught.value.result.stderr
        assert "missing" in str(caught.value)

    async def test_check_raises_for_a_missing_program(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(CommandFailedError) as caught:
            await workspace.run(["no-such-program"], check=True)
        assert caught.value.result.exit_code == 127

    async def test_check_raises_timeout_with_the_result(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(TimedOutError) as caught:
            await workspace.run(["yes"], timeout=0.2, output_limit=10, check=True)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.result.stdout.startswith("y\n")

    # -- arguments ------------------------------------------------------------

    async def test_arguments_are_not_split(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run(["printf", "[%s]", "a b", "c  d"])
        assert result.stdout == "[a b][c  d]"

    @pytest.mark.parametrize("text", ["$HOME", "*", "`id`", "$(id)", ";id", "a|b", "~"])
    async def test_arguments_are_not_interpreted(
        self, workspace: WorkspaceBase, text: str
    ) -> None:
        assert (await workspace.run(["echo", text])).stdout == f"{text}\n"

    async def test_an_empty_argument_is_kept(self, workspace: WorkspaceBase) -> None:
        assert (await workspace.run(["printf", "[%s]", "", "b"])).stdout == "[][b]"

    @pytest.mark.parametrize(
        "text", ["two\nlines", "quote'\"", "--leading", "grüße 世界", "tab\t\\", "\x01"]
    )
    async def test_odd_arguments_arrive_whole(
        self, workspace: WorkspaceBase, text: str
    ) -> None:
        assert (await workspace.run(["printf", "%s", text])).stdout == text

    async def test_an_argument_of_any_bytes_arrives(
        self, workspace: WorkspaceBase
    ) -> None:
        text = b"\xff\xfe\x80".decode("utf-8", "surrogateescape")
        result = await workspace.run(["printf", "%s", text])
        assert result.stdout_bytes == b"\xff\xfe\x80"

    @pytest.mark.parametrize("command", [[], [""], ["", "x"], ["a\0b"], "a\0b"])
    async def test_an_impossible_command_is_refused(
        self, workspace: WorkspaceBase, command: str | list[str]
    ) -> None:
        with pytest.raises(InvalidArgumentError):
            await workspace.run(command)

    async def test_a_million_bytes_of_arguments_arrive(
        self, workspace: WorkspaceBase
    ) -> None:
        parts = [chr(ord("a") + number) * (64 * KiB - 1) for number in range(16)]
        result = await workspace.run(["printf", "%s", *parts])
        assert result.stdout == "".join(parts)

    async def test_one_argument_that_the_kernel_refuses_is_named(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(InvalidArgumentError, match=r"stdin|file|script"):
            await workspace.run(["echo", "x" * (128 * KiB + 1)])

    # -- scripts --------------------------------------------------------------

    @pytest.mark.requires("posix_shell")
    async def test_a_string_is_a_script(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run("a=1; for b in 2 3; do echo $a$b; done | cat")
        assert result.stdout == "12\n13\n"

    @pytest.mark.requires("posix_shell")
    async def test_an_empty_script_succeeds(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run("")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")

    @pytest.mark.requires("posix_shell")
    async def test_a_script_keeps_lines_and_quotes(
        self, workspace: WorkspaceBase
    ) -> None:
        script = "cat <<'END'\n$one 'two' \"three\" \\\n\tfour\nEND\n"
        result = await workspace.run(script)
        assert result.stdout == "$one 'two' \"three\" \\\n\tfour\n"

    @pytest.mark.requires("posix_shell")
    async def test_a_script_of_a_megabyte_runs(self, workspace: WorkspaceBase) -> None:
        padding = "# nothing to see here\n" * (MiB // 22 + 1)
        result = await workspace.run(f"{padding}echo end")
        assert (result.exit_code, result.stdout) == (0, "end\n")

    @pytest.mark.requires("posix_shell")
    async def test_a_script_reads_the_given_stdin(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run("read line; echo got $line; cat", stdin="a\nb\n")
        assert result.stdout == "got a\nb\n"

    @pytest.mark.requires("posix_shell")
    async def test_a_script_of_any_bytes_runs(self, workspace: WorkspaceBase) -> None:
        text = b"\xff\xe4".decode("utf-8", "surrogateescape")
        result = await workspace.run(f"printf %s '{text}世'")
        assert result.stdout_bytes == b"\xff\xe4" + "世".encode()

    @pytest.mark.requires("posix_shell")
    async def test_a_syntax_error_is_a_result(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run("if then fi (")
        assert result.exit_code == 2 or result.exit_code == 1
        assert result.stderr

    @pytest.mark.requires("posix_shell")
    async def test_a_missing_program_in_a_script_is_127(
        self, workspace: WorkspaceBase
    ) -> None:
        assert (await workspace.run("no-such-program-here")).exit_code == 127

    # -- directory ------------------------------------------------------------

    async def test_cwd_is_below_the_root(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["mkdir", "-p", "a/b"], check=True)
        result = await workspace.run(["pwd"], cwd="a/b")
        assert result.stdout == f"{workspace.root}/a/b\n"

    async def test_cwd_may_be_absolute(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["mkdir", "a"], check=True)
        result = await workspace.run(["pwd"], cwd=f"{workspace.root}/a")
        assert result.stdout == f"{workspace.root}/a\n"

    async def test_a_missing_cwd_is_an_error(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(PathMissingError) as caught:
            await workspace.run(["true"], cwd="missing")
        assert "missing" in str(caught.value.path)

    async def test_a_file_as_cwd_is_an_error(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"")
        with pytest.raises(PathNotDirectoryError):
            await workspace.run(["true"], cwd="file")

    async def test_a_cwd_above_the_root_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PathOutsideError):
            await workspace.run(["true"], cwd="..")

    # -- environment ----------------------------------------------------------

    async def test_env_is_added(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run(["printenv", "GREETING"], env={"GREETING": "hi"})
        assert result.stdout == "hi\n"

    async def test_env_lasts_for_one_command(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["true"], env={"GREETING": "hi"})
        assert (await workspace.run(["printenv", "GREETING"])).exit_code == 1

    async def test_none_removes_a_variable(self, fresh_workspace: Factory) -> None:
        workspace = await fresh_workspace(env={"GREETING": "hi"})
        result = await workspace.run(["printenv", "GREETING"], env={"GREETING": None})
        assert (result.exit_code, result.stdout) == (1, "")

    async def test_removing_what_is_not_there_is_fine(
        self, workspace: WorkspaceBase
    ) -> None:
        assert (await workspace.run(["true"], env={"NOT_THERE": None})).ok

    async def test_the_workspace_env_reaches_every_command(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(env={"GREETING": "hi"})
        assert (await workspace.run(["printenv", "GREETING"])).stdout == "hi\n"

    async def test_a_command_overrides_the_workspace_env(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(env={"GREETING": "hi"})
        result = await workspace.run(["printenv", "GREETING"], env={"GREETING": "yo"})
        assert result.stdout == "yo\n"

    @pytest.mark.parametrize("value", ["", "two\nlines", "a=b", "'\"$x", "grüße"])
    async def test_odd_values_arrive_whole(
        self, workspace: WorkspaceBase, value: str
    ) -> None:
        result = await workspace.run(["printenv", "ODD"], env={"ODD": value})
        assert result.stdout == f"{value}\n"

    @pytest.mark.parametrize(
        ("name", "value"), [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "\0")]
    )
    async def test_an_impossible_variable_is_refused(
        self, workspace: WorkspaceBase, name: str, value: str
    ) -> None:
        with pytest.raises(InvalidArgumentError, match="env"):
            await workspace.run(["true"], env={name: value})

    async def test_the_host_environment_is_not_passed(
        self, fresh_workspace: Factory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ISOBOX_CONTRACT_SECRET", "host-only-value")
        workspace = await fresh_workspace()
        result = await workspace.run(["printenv"])
        assert "ISOBOX_CONTRACT_SECRET" not in result.stdout
        assert "host-only-value" not in result.stdout

    async def test_a_command_has_a_path_and_a_home(
        self, workspace: WorkspaceBase
    ) -> None:
        assert (await workspace.run(["printenv", "PATH"])).stdout.strip()
        assert (await workspace.run(["printenv", "HOME"])).stdout.startswith("/")

    @pytest.mark.requires("posix_shell")
    async def test_the_home_can_be_written(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run('echo x > "$HOME/note" && cat "$HOME/note"')
        assert result.stdout == "x\n"

    # -- standard input -------------------------------------------------------

    async def test_stdin_is_at_its_end_of_run(self, workspace: WorkspaceBase) -> None:
        with anyio.fail_after(SOON):
            result = await workspace.run(["cat"])
        assert (result.exit_code, result.stdout) == (0, "")

    @pytest.mark.parametrize("data", ["grüße\n", b"\xff\x00\xfe", b"", ""])
    async def test_stdin_arrives_whole(
        self, workspace: WorkspaceBase, data: str | bytes
    ) -> None:
        expected = data.encode() if isinstance(data, str) else data
        assert (await workspace.run(["cat"], stdin=data)).stdout_bytes == expected

    async def test_28_mebibytes_of_stdin_arrive(self, workspace: WorkspaceBase) -> None:
        data = bytes(range(256)) * (28 * MiB // 256)
        result = await workspace.run(["sha256sum"], stdin=data)
        assert result.stdout.split()[0] == hashlib.sha256(data).hexdigest()

    async def test_28_mebibytes_of_stdin_are_counted(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["wc", "-c"], stdin=bytes(28 * MiB))
        assert result.stdout.strip() == str(28 * MiB)

    async def test_a_command_need_not_read_its_stdin(
        self, workspace: WorkspaceBase
    ) -> None:
        with anyio.fail_after(SOON):
            assert (await workspace.run(["true"], stdin=bytes(4 * MiB))).ok

    async def test_stdin_echoed_back_does_not_deadlock(
        self, workspace: WorkspaceBase
    ) -> None:
        data = bytes(range(256)) * (6 * MiB // 256)
        with anyio.fail_after(60):
            result = await workspace.run(["cat"], stdin=data)
        assert result.stdout_bytes == data

    # -- together -------------------------------------------------------------

    async def test_fifty_commands_at_once_do_not_mix(
        self, workspace: WorkspaceBase
    ) -> None:
        outputs: dict[int, str] = {}

        async def run(number: int) -> None:
            outputs[number] = (await workspace.run(["echo", str(number)])).stdout

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(run, number)
        assert outputs == {number: f"{number}\n" for number in range(50)}

    async def test_a_slow_command_delays_no_other(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["sleep", "60"]):
            with anyio.fail_after(SOON):
                assert (await workspace.run(["echo", "hi"])).stdout == "hi\n"

    async def test_commands_see_files_that_were_written(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("note", "hello")
        assert (await workspace.run(["cat", "note"])).stdout == "hello"

    @pytest.mark.requires("posix_shell")
    async def test_files_of_commands_can_be_read(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run("printf hello > note; mkdir d; echo x > d/f", check=True)
        assert await workspace.read_text("note") == "hello"
        assert await workspace.read_text("d/f") == "x\n"

    # -- what a process starts with -------------------------------------------

    @pytest.mark.requires("posix_shell", "proc")
    async def test_a_command_inherits_no_descriptor(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["ls", "/proc/self/fd"], check=True)
        assert set(result.stdout.split()) == {"0", "1", "2", "3"}  # 3 is ls's own

    @pytest.mark.requires("posix_shell")
    @pytest.mark.parametrize("name", ["PIPE", "INT", "XFSZ", "TERM", "HUP", "USR1"])
    async def test_no_signal_is_ignored(
        self, workspace: WorkspaceBase, name: str
    ) -> None:
        result = await workspace.run(["sh", "-c", f"kill -{name} $$; echo alive"])
        assert result.signal == f"SIG{name}"
        assert result.stdout == ""

    @pytest.mark.requires("posix_shell", "proc")
    async def test_no_signal_is_blocked(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run(["grep", "SigBlk", "/proc/self/status"])
        assert int(result.stdout.split()[1], 16) == 0

    @pytest.mark.requires("posix_shell")
    async def test_no_stream_is_a_terminal(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run("test -t 0 || test -t 1 || test -t 2 || echo no")
        assert result.stdout == "no\n"

    @pytest.mark.requires("posix_shell", "rlimits")
    async def test_a_limit_of_a_command_holds(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run("ulimit -n", limits={"nofile": 64})
        assert result.stdout == "64\n"

    @pytest.mark.requires("posix_shell", "rlimits")
    async def test_a_limit_lasts_for_one_command(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["true"], limits={"nofile": 64})
        assert (await workspace.run("ulimit -n")).stdout != "64\n"

    @pytest.mark.requires("posix_shell", "rlimits")
    async def test_a_file_over_its_limit_ends_the_command(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(
            ["head", "-c", "100000", "/dev/zero"], limits={"fsize": 10}
        )
        assert result.ok  # a pipe is no file
        result = await workspace.run(
            ["dd", "if=/dev/zero", "of=big", "bs=1000", "count=10"],
            limits={"fsize": 1024},  # a shell counts in blocks of 512
        )
        assert result.signal == "SIGXFSZ"
        assert (await workspace.stat("big")).size == 1024

    @pytest.mark.requires("posix_shell", "rlimits")
    async def test_processor_time_over_its_limit_ends_the_command(
        self, workspace: WorkspaceBase
    ) -> None:
        with anyio.fail_after(60):
            result = await workspace.run("while :; do :; done", limits={"cpu": 1})
        assert result.signal in ("SIGXCPU", "SIGKILL")

    @pytest.mark.requires("rlimits")
    async def test_an_unknown_limit_is_refused(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(InvalidArgumentError, match="happiness"):
            await workspace.run(["true"], limits={"happiness": 1})
