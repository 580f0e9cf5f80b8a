"""Commands: their start, streams, limits and ends."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import time

import pytest
from tests.unit._guest.client import (
    Guest,
    descriptors,
    eventually,
    running,
    sees_descriptors,
    stderr,
    stdout,
)

from isobox._guest import agent


def test_a_command_is_captured(guest):
    result = guest.result(guest.spawn("sh", "-c", "echo out; echo err >&2; exit 3"))
    assert stdout(result) == b"out\n"
    assert stderr(result) == b"err\n"
    assert result["exit"] == 3
    assert result["background"] is False


def test_arguments_are_never_interpreted(guest):
    odd = [b"$HOME", b"a b", b"*", b"\xff\n", b"", b"-n"]
    result = guest.result(guest.spawn("printf", "[%s]", *odd))
    assert stdout(result) == b"".join(b"[" + each + b"]" for each in odd)


def test_a_script_runs_in_the_shell(guest):
    script = b"for i in 1 2; do echo $i; done; printf '%s' \"$0\""
    assert stdout(guest.result(guest.spawn(script=script))).startswith(b"1\n2\n")


@pytest.mark.parametrize("size", [99_999, 100_001, 1 << 20])
def test_a_long_script_runs(guest, size):
    script = b"echo begin; : " + b"x" * (size - 30) + b"\necho end"
    assert stdout(guest.result(guest.spawn(script=script))) == b"begin\nend\n"


def test_the_longest_argument_and_one_more(guest):
    result = guest.result(guest.spawn("printf", "%s", b"x" * 131071, capture=1 << 20))
    assert result["stdout_total"] == 131071
    assert guest.refusal(guest.spawn("printf", b"x" * 131072)) == "too_long"


@pytest.mark.parametrize(
    ("argv", "number"), [("no-such-program", 2), ("/etc/passwd", 13), ("/", 13)]
)
def test_what_cannot_run_says_why(guest, argv, number):
    assert guest.result(guest.spawn(argv))["failed"] == number


def test_a_script_file_without_an_interpreter_runs_in_sh(guest, tmp_path):
    path = tmp_path / "tool"
    path.write_text("echo $1")
    path.chmod(0o755)
    assert stdout(guest.result(guest.spawn(bytes(path), "hi"))) == b"hi\n"


@pytest.mark.parametrize(
    ("cwd", "code"),
    [(b"/nowhere-at-all", "missing"), (b"/etc/passwd", "not_directory")],
)
def test_a_directory_to_run_in_must_be_one(guest, cwd, code):
    assert guest.refusal(guest.spawn("true", cwd=cwd)) == code


def test_the_environment_is_the_configured_one_changed():
    env = {"PATH": b"/usr/bin:/bin", "KEPT": b"1", "GONE": b"2"}
    with Guest(config={"env": env}) as guest:
        asked = guest.spawn("env", env={"GONE": None, "MORE": b"\xff"})
        lines = set(stdout(guest.result(asked)).splitlines())
    assert lines == {b"PATH=/usr/bin:/bin", b"KEPT=1", b"MORE=\xff"}


def test_standard_input_is_at_its_end(guest):
    assert stdout(guest.result(guest.spawn("cat"))) == b""


def test_standard_input_is_carried_and_credited(guest):
    data = os.urandom(700_000)
    answer = guest.spawn("sha256sum", stdin=True)
    guest.data(answer, data)
    guest.end(answer)
    expected = hashlib.sha256(data).hexdigest().encode()
    assert stdout(guest.result(answer)).split()[0] == expected
    assert len(data) - agent.WINDOW // 2 <= answer.granted <= len(data)


def test_a_little_input_is_granted_later(guest):
    answer = guest.spawn("cat", stdin=True)
    for _ in range(20):
        guest.data(answer, b"x" * 1000)
    guest.end(answer)
    assert stdout(guest.result(answer)) == b"x" * 20_000
    assert answer.granted == 0


def test_whoever_uses_up_the_window_is_granted_what_was_taken(guest):
    """The host waits for room, and the command for the host."""
    script = "dd bs=1000 count=100 of=/dev/null 2>/dev/null; exec sleep 60"
    answer = guest.spawn("sh", "-c", script, stdin=True)
    guest.data(answer, bytes(agent.WINDOW))
    guest.until(lambda: answer.granted >= 100_000)
    guest.control(answer, "cancel")
    guest.wait(answer)


def test_input_that_nobody_reads_is_granted_all_the_same(guest):
    answer = guest.spawn("sh", "-c", "exec <&-; exec sleep 0.2", stdin=True)
    guest.data(answer, bytes(800_000))
    guest.end(answer)
    assert guest.result(answer)["exit"] == 0


def test_data_without_standard_input_is_refused(guest):
    answer = guest.start("sleep", "5")
    guest.data(answer, b"x")
    assert guest.refusal(answer) == "invalid"


@pytest.mark.parametrize("keep", [0, 1, 2, 7, 1000])
def test_head_and_tail_are_kept_and_all_is_counted(guest, keep):
    asked = guest.spawn("seq", "1", "1000", capture=keep)
    result = guest.result(asked)
    whole = b"".join(b"%d\n" % number for number in range(1, 1001))
    head, tail = result["stdout"]
    assert result["stdout_total"] == len(whole)
    assert (len(head), len(tail)) == (keep - keep // 2, keep // 2)
    assert whole.startswith(head)
    assert whole.endswith(tail)


def test_large_captures_follow_as_data(guest):
    answer = guest.spawn("head", "-c", "300000", "/dev/zero", capture=1 << 20)
    result = guest.result(answer)
    assert result["stdout"] == [300_000, 0]
    assert answer.bytes(agent.STDOUT) == bytes(300_000)


def test_an_ended_command_costs_no_memory_until_its_timeout(guest):
    def resident() -> int:
        with open(f"/proc/{guest.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def run() -> None:
        argv = ("head", "-c", "4000000", "/dev/zero")
        guest.result(guest.spawn(*argv, capture=4 << 20, timeout=600.0))

    run()
    before = resident()
    for _ in range(12):
        run()
    assert resident() - before < 24 << 20


def test_streams_are_separate_and_end(guest):
    answer = guest.start("sh", "-c", "echo out; echo err >&2")
    guest.wait(answer)
    assert answer.bytes(agent.STDOUT) == b"out\n"
    assert answer.bytes(agent.STDERR) == b"err\n"
    assert answer.ended >= {agent.STDOUT, agent.STDERR}
    assert [each["event"] for each in answer.events] == ["started", "exit"]


def test_a_stream_flows_no_further_than_its_credit(guest):
    guest.generous = False
    answer = guest.start("head", "-c", "3000000", "/dev/zero")
    guest.until(lambda: len(answer.bytes(agent.STDOUT)) == agent.WINDOW)
    guest.ping()
    assert len(answer.bytes(agent.STDOUT)) == agent.WINDOW
    guest.credit(answer, agent.STDOUT, 1000)
    guest.until(lambda: len(answer.bytes(agent.STDOUT)) == agent.WINDOW + 1000)
    guest.ping()
    assert len(answer.bytes(agent.STDOUT)) == agent.WINDOW + 1000
    guest.credit(answer, agent.STDOUT, 3_000_000)
    guest.wait(answer)
    assert len(answer.bytes(agent.STDOUT)) == 3_000_000


def test_a_status_on_the_report_follows_what_was_printed(guest):
    script = b"head -c 400000 /dev/zero; head -c 300000 /dev/zero >&2; echo done >&3"
    for _ in range(10):
        answer = guest.spawn(script=script, capture=None, report=True)
        at_report: list[tuple[int, int]] = []
        guest.until(lambda: answer.done or bool(answer.bytes(agent.REPORT)))  # noqa: B023
        sizes = [len(answer.bytes(each)) for each in (agent.STDOUT, agent.STDERR)]
        at_report.append((sizes[0], sizes[1]))
        assert at_report == [(400_000, 300_000)]
        guest.wait(answer)


def test_a_timeout_kills_all_and_keeps_what_was_printed(guest, mark):
    script = f"echo before; (setsid sleep 99.{int(mark[-12:], 16)} &) ; sleep 99"
    began = time.monotonic()
    result = guest.result(guest.spawn(script=script.encode(), timeout=0.3))
    assert 0.3 <= time.monotonic() - began < 3
    assert stdout(result) == b"before\n"
    assert result["timed_out"] == "timeout"
    assert not running(f"99.{int(mark[-12:], 16)}")


def test_a_timeout_of_nothing_ends_at_once(guest):
    result = guest.result(guest.spawn("sleep", "60", timeout=0.0))
    assert result["timed_out"] == "timeout"
    assert result["signal"] == signal.SIGKILL


def test_silence_ends_and_output_delays_it(guest):
    script = b"for i in 1 2 3 4; do echo $i; sleep 0.15; done; sleep 60"
    result = guest.result(guest.spawn(script=script, idle_timeout=0.4))
    assert stdout(result) == b"1\n2\n3\n4\n"
    assert result["timed_out"] == "idle_timeout"


def test_silence_ends_a_streamed_command_too(guest):
    answer = guest.start("sh", "-c", "echo on; sleep 60", idle_timeout=0.2)
    assert guest.result(answer)["timed_out"] == "idle_timeout"
    assert answer.bytes(agent.STDOUT) == b"on\n"


def test_a_background_process_does_not_hold_the_answer(guest):
    began = time.monotonic()
    result = guest.result(guest.spawn(script=b"sleep 30 & echo $!"))
    assert time.monotonic() - began < 5
    assert result["background"] is True
    child = int(stdout(result))
    os.kill(child, 0)
    os.kill(child, signal.SIGKILL)


def test_a_background_process_never_meets_a_full_pipe(guest, tmp_path):
    done = tmp_path / "done"
    script = f"(head -c 2000000 /dev/zero; echo ok > {done}) & exit 0"
    guest.result(guest.spawn(script=script.encode()))
    eventually(done.exists)


def test_the_full_output_is_spooled(guest, tmp_path):
    path = tmp_path / "deep" / "spool"
    script = b"seq 1 20000; echo err >&2"
    asked = guest.spawn(script=script, capture=100, spool=bytes(path))
    result = guest.result(asked)
    assert result["spooled"] is True
    whole = path.read_bytes()
    assert len(whole) == result["stdout_total"] + result["stderr_total"]
    assert b"err\n" in whole
    assert whole.replace(b"err\n", b"").endswith(b"19999\n20000\n")


def test_a_spool_is_a_regular_file_and_no_link(guest, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("elsewhere")
    to_fifo = guest.spawn("true", spool=bytes(tmp_path / "fifo"))
    assert guest.refusal(to_fifo) == "not_regular"
    assert guest.refusal(guest.spawn("true", spool=bytes(tmp_path / "link"))) == "loop"
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_ends_the_spool_never_the_command(guest, tmp_path):
    resource.prlimit(guest.pid, resource.RLIMIT_FSIZE, (5000, 5000))
    asked = guest.spawn("seq", "1", "20000", spool=bytes(tmp_path / "spool"))
    assert guest.result(asked)["exit"] == 0


def test_a_signal_reaches_the_group(guest):
    answer = guest.start(
        "sh", "-c", "trap 'echo got; exit 9' TERM; echo on; sleep 60 & wait"
    )
    guest.until(lambda: answer.bytes(agent.STDOUT) == b"on\n")
    guest.control(answer, "signal", signal=signal.SIGTERM)
    assert guest.result(answer)["exit"] == 9
    assert answer.bytes(agent.STDOUT) == b"on\ngot\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_that_ends_it_is_named(guest, number):
    result = guest.result(guest.spawn("sh", "-c", f"kill -{int(number)} $$"))
    assert result["signal"] == number


def test_signals_that_python_ignores_are_as_usual(guest):
    result = guest.result(guest.spawn("sh", "-c", "kill -PIPE $$"))
    assert result["signal"] == signal.SIGPIPE
    answer = guest.spawn("grep", "^Sig[IB]", "/proc/self/status")
    for line in stdout(guest.result(answer)).splitlines():
        # The C library keeps two beyond the standard ones ignored.
        assert int(line.split()[1], 16) & (1 << 31) - 1 == 0


@pytest.mark.parametrize("limits", [{}, {"nofile": 64}])
def test_a_command_leads_a_session_of_its_own(guest, limits):
    script = b"ps -o pid=,pgid=,sid= -p $$"
    pid, group, session = stdout(
        guest.result(guest.spawn(script=script, limits=limits))
    ).split()
    assert pid == group == session


def test_limits_hold(guest):
    asked = guest.spawn(
        script=b"ulimit -n; ulimit -c", limits={"nofile": 64, "core": 0}
    )
    assert stdout(guest.result(asked)) == b"64\n0\n"


def test_limits_of_the_workspace_hold_and_are_not_raised():
    with Guest(config={"rlimits": {"nofile": 128}}) as guest:
        assert stdout(guest.result(guest.spawn(script=b"ulimit -n"))) == b"128\n"
        asked = guest.spawn(script=b"ulimit -n", limits={"nofile": 4000})
        assert stdout(guest.result(asked)) == b"128\n"


def test_a_file_that_grows_too_large_is_the_commands_own_affair(guest, tmp_path):
    script = f"head -c 100000 /dev/zero > {tmp_path}/big".encode()
    guest.result(guest.spawn(script=script, limits={"fsize": 1000}))
    assert (tmp_path / "big").stat().st_size == 1000


@pytest.mark.parametrize("limits", [{}, {"nofile": 64}])
def test_only_the_three_standard_descriptors_reach_a_command(guest, limits):
    # The fourth is that of the directory which ls itself has open.
    first = guest.spawn("ls", "/proc/self/fd", limits=limits)
    again = guest.spawn("ls", "/proc/self/fd", limits=limits)
    for answer in (first, again):
        assert stdout(guest.result(answer)) == b"0\n1\n2\n3\n"


def test_a_report_is_the_only_further_descriptor(guest):
    answer = guest.spawn("ls", "/proc/self/fd", capture=None, report=True)
    guest.wait(answer)
    assert answer.bytes(agent.STDOUT) == b"0\n1\n2\n3\n4\n"


def test_a_long_script_leaves_its_descriptor_to_the_shell_only(guest):
    script = b": " + b"x" * 200_000 + b"\nreadlink /proc/self/fd/0; ls /proc/self/fd"
    lines = stdout(guest.result(guest.spawn(script=script))).splitlines()
    assert lines[0] == b"/dev/null"


def test_many_at_once(guest):
    answers = [guest.spawn("echo", str(number)) for number in range(60)]
    for number, answer in enumerate(answers):
        assert stdout(guest.result(answer)) == b"%d\n" % number


def test_a_stopped_command_is_killed(guest, mark):
    answer = guest.start("sh", "-c", f"kill -STOP $$; : {mark}")
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"
    assert not running(mark)


@sees_descriptors
def test_what_a_failed_start_took_is_given_back(guest):
    """The guest's side of pipes, when the warden is gone while it is asked."""
    guest.result(guest.spawn("true"))
    before = descriptors(guest)
    for _ in range(5):
        guest.result(guest.spawn("no-such-program"))
        guest.refusal(guest.spawn("true", cwd=b"/nowhere-at-all"))
    eventually(lambda: descriptors(guest) <= before)
