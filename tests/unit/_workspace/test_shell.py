"""Shells that keep their state."""

from __future__ import annotations

import asyncio
import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox import LocalWorkspace, MemorySink, Policy
from isobox._policy.decision import Decision
from isobox._workspace.shell import Shell, _Keeper
from isobox.errors import (
    CommandFailedError,
    ConflictError,
    InvalidArgumentError,
    PolicyDeniedError,
    SandboxLostError,
    TimedOutError,
    UnsupportedError,
    WorkspaceClosedError,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def workspace(tmp_path):
    async with LocalWorkspace(tmp_path) as workspace:
        yield workspace


@pytest.fixture
def shell(workspace):
    return workspace.shell()


async def test_directory_variables_and_functions_stay(shell, tmp_path):
    assert shell.fresh
    await shell.run(
        "mkdir d; cd d; A='a  b'; export B=2; f() { echo \"f $1\"; }; set -u"
    )
    assert not shell.fresh
    result = await shell.run('pwd; echo "$A"; sh -c "echo $B"; f x; echo $-')
    lines = result.stdout.splitlines()
    assert lines[:4] == [f"{tmp_path}/d", "a  b", "2", "f x"]
    assert "u" in lines[4]


@pytest.mark.parametrize("status", [0, 1, 2, 127, 255])
async def test_the_status_is_the_scripts(shell, status):
    result = await shell.run(f"(exit {status})")
    assert result.exit_code == status
    assert not shell.fresh


async def test_a_syntax_error_is_a_status_and_the_shell_goes_on(shell):
    await shell.run("A=1")
    result = await shell.run("if then ((")
    assert result.exit_code != 0
    assert "syntax error" in result.stderr
    assert (await shell.run("echo $A")).stdout == "1\n"


async def test_output_and_errors_are_whole_and_of_this_turn(shell):
    for number in range(20):
        script = (
            f"head -c 200000 /dev/zero | tr '\\0' x; echo {number}; echo e{number} >&2"
        )
        result = await shell.run(script)
        assert result.stdout_total == 200_000 + len(f"{number}\n")
        assert result.stdout.endswith(f"x{number}\n")
        assert result.stderr == f"e{number}\n"


@pytest.mark.parametrize(
    "script", ["exit 5", "exec sh -c 'exit 5'", "set -e; (exit 5)"]
)
async def test_one_that_ends_the_shell_ends_its_state(shell, script):
    await shell.run("A=1")
    result = await shell.run("echo before; " + script)
    assert (result.stdout, result.exit_code) == ("before\n", 5)
    assert shell.fresh
    assert (await shell.run("echo [$A]")).stdout == "[]\n"


async def test_one_that_kills_the_shell_is_said_to(shell):
    result = await shell.run("kill -9 $$")
    assert (result.exit_code, result.signal) == (137, "SIGKILL")
    assert shell.fresh


async def test_a_timeout_kills_and_keeps_what_was_printed(shell):
    await shell.run("A=1")
    began = time.monotonic()
    result = await shell.run("echo before; (setsid sleep 60 &); sleep 60", timeout=0.3)
    assert time.monotonic() - began < 3
    assert result.timed_out
    assert result.stdout == "before\n"
    assert (await shell.run("echo [$A]")).stdout == "[]\n"
    with pytest.raises(TimedOutError) as error:
        await shell.run("echo x; sleep 60", timeout=0.2, check=True)
    assert error.value.result.stdout == "x\n"


async def test_check_raises_with_the_result(shell):
    with pytest.raises(CommandFailedError) as error:
        await shell.run("echo why >&2; false", check=True)
    assert error.value.result.stderr == "why\n"


async def test_a_cancel_ends_it_and_the_next_starts_anew(shell):
    await shell.run("A=1")
    with anyio.move_on_after(0.2) as scope:
        await shell.run("sleep 60")
    assert scope.cancelled_caught
    assert (await shell.run("echo [$A]", timeout=10)).stdout == "[]\n"


async def test_a_restart_forgets(shell):
    await shell.run("A=1")
    await shell.restart()
    assert (await shell.run("echo [$A]")).stdout == "[]\n"


async def test_callers_take_turns(shell):
    await shell.run("N=0")
    results = await asyncio.gather(
        *[shell.run("N=$((N+1)); M=$N; sleep 0.01; echo $M $N") for _ in range(10)]
    )
    assert sorted(int(each.stdout.split()[0]) for each in results) == list(range(1, 11))
    for each in results:
        first, second = each.stdout.split()
        assert first == second


async def test_sessions_are_apart(workspace):
    await workspace.run("A=1; cd /", session_id="one")
    assert (await workspace.run("echo [$A]", session_id="two")).stdout == "[]\n"
    assert (
        await workspace.run("echo [$A]; pwd", session_id="one")
    ).stdout == "[1]\n/\n"
    assert workspace.shell("one") is workspace.shell("one")


async def test_a_script_of_a_megabyte_runs(shell):
    body = "x" * (1 << 20)
    result = await shell.run(f": '{body}'\nA='{body}'; echo ${{#A}}", timeout=60)
    assert result.stdout == f"{1 << 20}\n"


@pytest.mark.parametrize(
    "script",
    [
        "echo 'a\nb'",
        "cat <<'X'\nline\nX",
        "printf '\\351'",
        "echo \udce9",
        "# nothing",
        "",
        "\n\n",
    ],
)
async def test_a_script_of_any_form(shell, script):
    result = await shell.run(script)
    assert result.exit_code == 0
    assert (await shell.run("echo on")).stdout == "on\n"


async def test_a_script_has_no_input_of_ours_and_none_of_our_descriptors(shell):
    result = await shell.run("cat; ls /proc/self/fd; read line; echo $?")
    assert result.stdout.split() == ["0", "1", "2", "3", "1"]


async def test_a_background_process_holds_nothing_up_and_goes_with_the_shell(shell):
    result = await shell.run("sleep 60 & echo $!", timeout=10)
    child = int(result.stdout)
    assert (await shell.run("kill -0 " + str(child))).exit_code == 0
    await shell.restart()
    assert (await shell.run("kill -0 " + str(child))).exit_code == 1


async def test_what_a_workload_says_in_the_shells_place_is_bounded(shell):
    """It may reach the descriptor of the status; it can only fool itself."""
    flood = """
        for each in /proc/$$/fd/1?; do
            test -p $each && (head -c 3000000 /dev/zero | tr '\\0' 9 > $each) &
        done
        sleep 0.5
    """
    for _ in range(2):
        result = await shell.run(flood, timeout=2)
        assert 0 <= result.exit_code <= 255
    await shell.restart()
    assert (await shell.run("echo on")).stdout == "on\n"


@pytest.mark.parametrize(
    "trap",
    [
        "trap 'echo dbg' DEBUG",
        "trap 'printf \"0\\n0\\0\"' DEBUG",
        "set -T; trap 'echo dbg; false' DEBUG RETURN",
        "set -E; trap 'echo no; (exit 9)' ERR",
        "trap 'echo >&9; echo >&7' DEBUG",
        "set -x",
        "set -v",
    ],
)
async def test_what_a_trap_prints_is_no_status(shell, trap):
    assert (await shell.run(trap + "; true")).exit_code == 0
    for script, status in (("true", 0), ("(exit 7)", 7), ("false", 1)):
        result = await shell.run(script)
        assert (result.exit_code, result.background) == (status, False)
        assert "__isobox_word" not in result.stdout + result.stderr
    assert (await shell.run("sleep 60 &")).background


@pytest.mark.parametrize(
    "script",
    [
        "read() { return 0; }; eval() { echo fooled; }; printf() { :; }; jobs() { :; }",
        "shopt -s expand_aliases; alias builtin=: eval=: read=: printf=: until=:",
        "declare -u REPLY",
        "readonly IFS",
        "readonly REPLY=5",
        "declare -n REPLY=foo",
        'builtin() { command builtin "$@"; }',
        "false() { return 0; }",
        "set -u -f -o posix",
        "set -r",
    ],
)
async def test_what_a_script_redefines_changes_no_status(shell, script):
    assert (await shell.run(script)).exit_code == 0
    result = await shell.run("echo Run; (exit 7)")
    assert (result.stdout, result.exit_code) == ("Run\n", 7)
    assert not shell.fresh


@pytest.mark.parametrize(
    "script",
    [
        "builtin() { :; }",
        "builtin() { return 1; }",
        "builtin() { echo all tests passed; }",
        "set -n",
        "shopt -s extdebug; trap 'false' DEBUG",
        "trap 'exit 3' DEBUG",
        "ulimit -n 3",
        "break",
    ],
)
async def test_one_that_disables_the_shell_ends_it(shell, script):
    await shell.run(f"A=1; {script}", timeout=10)
    assert shell.fresh
    result = await shell.run("echo [$A]; (exit 7)")
    assert (result.stdout, result.exit_code) == ("[]\n", 7)


@pytest.mark.parametrize(
    "script", ["readonly __isobox_script", "readonly __isobox_turn"]
)
async def test_what_a_broken_shell_did_not_run_is_said(shell, tmp_path, script):
    await shell.run(script)
    with pytest.raises(ConflictError, match="was not run"):
        await shell.run("touch made")
    assert not (tmp_path / "made").exists()
    assert shell.fresh
    assert (await shell.run("echo on")).stdout == "on\n"


@pytest.mark.parametrize("limit", [0, 1, 100, 100_000])
async def test_output_is_limited_in_the_middle(shell, limit):
    result = await shell.run("seq 1 100000", output_limit=limit)
    whole = "".join(f"{number}\n" for number in range(1, 100_001)).encode()
    assert result.stdout_total == len(whole)
    assert len(result.output.head) == limit - limit // 2
    assert whole.startswith(result.output.head)
    assert whole.endswith(result.output.tail)
    assert len(result.stdout_bytes) == limit
    assert (await shell.run("echo on")).stdout == "on\n"


@given(st.lists(st.binary(max_size=50), max_size=12), st.integers(0, 120))
def test_a_keeper_keeps_head_and_tail(pieces, keep):
    keeper = _Keeper(keep)
    for piece in pieces:
        keeper.add(piece)
    whole = b"".join(pieces)
    kept = keeper.captured()
    assert kept.total == len(whole)
    if len(whole) <= keep:
        assert (kept.head, kept.tail) == (whole, b"")
    else:
        assert kept.head == whole[: keep - keep // 2]
        assert kept.tail == whole[len(whole) - keep // 2 :]


@pytest.mark.parametrize("name", ["", ".x", "-x", "a/b", "x" * 65, "a b", "ä", "a\n"])
async def test_a_name_that_is_none_is_refused(workspace, name):
    with pytest.raises(InvalidArgumentError, match="session_id"):
        workspace.shell(name)


async def test_a_session_takes_scripts_only(workspace, shell):
    with pytest.raises(InvalidArgumentError, match="one string"):
        await workspace.run(["ls"], session_id="x")
    with pytest.raises(InvalidArgumentError, match="NUL"):
        await shell.run("a\0b")


async def test_without_bash_there_are_no_sessions(tmp_path):
    async with LocalWorkspace(tmp_path, env={"PATH": "/nowhere"}) as workspace:
        with pytest.raises(UnsupportedError, match="bash"):
            await workspace.run("true", session_id="x")


async def test_the_loss_of_the_sandbox_is_said(workspace, shell):
    await shell.run("A=1")
    sandbox = workspace._sandbox
    sandbox.channel.fail(SandboxLostError("gone"))
    with pytest.raises(SandboxLostError):
        await shell.run("echo x")
    with pytest.raises(SandboxLostError):
        await shell.run("echo x")


async def test_after_the_end_of_the_workspace_there_is_none(tmp_path):
    async with LocalWorkspace(tmp_path) as workspace:
        shell = workspace.shell()
        await shell.run("A=1")
    with pytest.raises(WorkspaceClosedError):
        workspace.shell()
    with pytest.raises((SandboxLostError, WorkspaceClosedError)):
        await shell.run("echo x")


async def test_as_a_context_it_ends_with_it(workspace):
    async with workspace.shell("x") as shell:
        assert isinstance(shell, Shell)
        await shell.run("A=1")
    assert shell.fresh


# -- on record, and under the policy ----------------------------------------------


def turns(sink):
    """Return the intent's facts and the outcome of each script."""
    intents = [r for r in sink.records if r["kind"] == "intent" and r["op"] == "script"]
    outcomes = {r["number"]: r for r in sink.records if r["kind"] == "outcome"}
    return [(r["facts"], outcomes.get(r["number"])) for r in intents]


@pytest.fixture
async def recorded(tmp_path):
    sink = MemorySink()
    async with LocalWorkspace(tmp_path, audit=sink) as workspace:
        yield workspace.shell("s"), sink


async def test_every_script_is_on_record_with_its_end(recorded):
    shell, sink = recorded
    await shell.run("echo 12; (exit 3)")
    ((facts, outcome),) = turns(sink)
    assert facts == {"session": "s", "script": "echo 12; (exit 3)"}
    assert outcome["ok"] is True
    assert outcome["end"] == {
        "exit_code": 3,
        "signal": None,
        "timed_out": False,
        "background": False,
        "stdout_bytes": 3,
        "stderr_bytes": 0,
    }


async def test_a_long_script_is_recorded_in_part(recorded):
    shell, sink = recorded
    await shell.run(": " + "x" * 100_000)
    ((facts, _),) = turns(sink)
    assert len(facts["script"]) < 5000


async def test_one_that_ran_out_of_time_is_recorded_as_such(recorded):
    shell, sink = recorded
    await shell.run("sleep 60", timeout=0.2)
    ((_, outcome),) = turns(sink)
    assert (outcome["end"]["timed_out"], outcome["end"]["signal"]) == (True, "SIGKILL")


async def test_one_that_ended_the_shell_is_recorded_with_its_status(recorded):
    shell, sink = recorded
    await shell.run("exit 7")
    ((_, outcome),) = turns(sink)
    assert outcome["end"]["exit_code"] == 7


async def test_one_that_was_cancelled_is_recorded_as_such(recorded):
    shell, sink = recorded
    with anyio.move_on_after(0.3):
        await shell.run("sleep 60")
    ((_, outcome),) = turns(sink)
    assert outcome["end"] == {"error": "CancelledError"}


class NoSecrets(Policy):
    """Denies scripts that speak of secrets."""

    def decide(self, op, root=""):
        if op.name == "script" and "secret" in op.script:
            return Decision("deny", "no_secrets", "it speaks of secrets")
        return super().decide(op)


async def test_a_script_that_is_denied_never_reaches_the_shell(tmp_path):
    policy = NoSecrets(Policy.allow_all().default)
    async with LocalWorkspace(tmp_path, policy=policy) as workspace:
        shell = workspace.shell()
        await shell.run("A=1")
        with pytest.raises(PolicyDeniedError, match="no_secrets"):
            await shell.run("touch secret")
        assert not (tmp_path / "secret").exists()
        assert (await shell.run("echo $A")).stdout == "1\n"


async def test_deny_all_denies_a_session(tmp_path):
    async with LocalWorkspace(tmp_path, policy=Policy.deny_all()) as workspace:
        with pytest.raises(PolicyDeniedError):
            await workspace.run("touch made", session_id="s")
    assert not (tmp_path / "made").exists()


async def test_what_a_process_was_fed_is_counted(tmp_path):
    sink = MemorySink()
    async with LocalWorkspace(tmp_path, audit=sink) as workspace:
        async with await workspace.start(["cat"], stdin=True) as process:
            await process.write(b"12")
            await process.write(b"345")
            await process.write_eof()
            await process.wait()
        await workspace.run(["true"])
    ends = [r["end"] for r in sink.records if "end" in r]
    assert ends[0]["stdin_bytes"] == 5
    assert "stdin_bytes" not in ends[1]
