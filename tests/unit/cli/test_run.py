"""`isobox run`, as a program among programs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest
from tests.unit.cli.command_line import FOUND, ISOBOX, PATIENCE, running

LOCAL = ["run", "--backend", "local"]

bubblewrapped = pytest.mark.skipif(
    not os.path.exists("/usr/bin/bwrap"), reason="needs /usr/bin/bwrap"
)


def test_bytes_pass_unchanged(isobox):
    data = bytes(range(256)) * 1000
    done = isobox(*LOCAL, "--", "cat", stdin=data)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"")


def test_outputs_stay_apart_and_status_is_the_commands(isobox):
    done = isobox(*LOCAL, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_output_arrives_while_the_command_runs(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running(*LOCAL, "cat", cwd=tmp_path, bufsize=0, **pipes) as process:
        for piece in (b"one\n", b"two\n"):
            process.stdin.write(piece)
            assert process.stdout.readline() == piece
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_command_that_does_not_read_its_input(isobox):
    assert isobox(*LOCAL, "true", stdin=bytes(10_000_000)).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--", "printf", "%s ", "-x", "--", "--timeout", "1"], "-x -- --timeout 1 "),
        (["printf", "%s ", "--json", "-l"], "--json -l "),
        (["--", "printf", "%s", "a b'c\"d\n$HOME *"], "a b'c\"d\n$HOME *"),
    ],
)
def test_arguments_of_the_command_are_left_alone(isobox, arguments, printed):
    assert isobox(*LOCAL, *arguments).stdout.decode() == printed


def test_argument_that_is_not_utf_8(isobox):
    assert isobox(*LOCAL, "printf", b"%s", b"\xff\xfe").stdout == b"\xff\xfe"


def test_env(isobox):
    done = isobox(*LOCAL, "--env", "A=1", "--env", "B=x=y z", "env")
    assert {b"A=1", b"B=x=y z"} <= set(done.stdout.splitlines())


def test_host_environment_is_not_passed(isobox):
    done = isobox(*LOCAL, "env", env={**os.environ, "MY_SECRET": "k3y"})
    assert b"MY_SECRET" not in done.stdout


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "kill -9 $$"], 128 + signal.SIGKILL),
        (["no-such-program"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "exit 2"], 2),
        (["sh", "-c", "exit 125"], 125),
    ],
)
def test_status(isobox, command, status):
    # Without the directories of ours that an ordinary user cannot search.
    path = "PATH=/usr/bin:/bin"
    assert isobox(*LOCAL, "--env", path, "--", *command).returncode == status


def test_timeout_is_124(isobox):
    started = time.monotonic()
    done = isobox(*LOCAL, "--timeout", "0.2", "--", "sh", "-c", "echo a; sleep 60")
    assert (done.returncode, done.stdout) == (124, b"a\n")
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "nope", "true"], "no backend is called 'nope'"),
        (["--backend", "local", "--workdir", "missing", "true"], "missing"),
        (["--backend", "local", "--env", "X", "true"], "NAME=VALUE"),
        (["--backend", "local", "--timeout", "-1", "true"], "timeout"),
        (["--backend", "local", "--audit", "no/such/file", "true"], "no/such"),
        (["--backend", "local", "--bogus", "true"], "--bogus"),
        (["--backend", "local"], "CMD"),
        (["--backend", "local", ""], "empty"),
    ],
)
def test_failure_of_isobox_is_125_with_a_message(isobox, arguments, message):
    done = isobox("run", *arguments)
    assert (done.returncode, done.stdout) == (125, b"")
    assert message in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_escape_sequences_do_not_reach_the_terminal(isobox):
    done = isobox("run", "--backend", "\x1b[31mred", "true")
    assert b"\x1b" not in done.stderr


def test_missing_bubblewrap_is_no_silent_downgrade(isobox, monkeypatch, tmp_path):
    script = FOUND + (
        "from isobox._backends.bubblewrap import binary; "
        "binary._candidates = list; from isobox.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "run", "touch", "ran"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 125
    assert "fix: " in done.stderr
    assert "--backend local" in done.stderr
    assert os.listdir(tmp_path) == []


def test_json(isobox):
    done = isobox(
        *LOCAL, "--json", "--", "sh", "-c", "cat; echo e >&2; exit 4", stdin=b"\xffi"
    )
    result = json.loads(done.stdout)
    assert done.returncode == 4
    assert done.stderr == b""
    assert 0 < result.pop("duration") < PATIENCE
    assert result == {
        "exit_code": 4,
        "signal": None,
        "stdout": "�i",
        "stderr": "e\n",
        "stdout_total": 2,
        "stderr_total": 2,
        "truncated": False,
        "timed_out": False,
        "idle_timed_out": False,
        "oom_killed": False,
        "background": False,
        "limit": None,
        "denials": [],
    }


def test_json_of_a_failure(isobox):
    done = isobox(*LOCAL, "--json", "--env", "\x1b[31m", "true")
    assert done.returncode == 125
    assert json.loads(done.stdout) == {
        "error": "InvalidArgumentError",
        "message": "--env \x1b[31m: write it as NAME=VALUE",
    }
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"NAME=VALUE" in done.stderr


def test_json_keeps_head_and_tail_of_much(isobox):
    script = "echo first; yes | head -c 20000000; echo last"
    result = json.loads(isobox(*LOCAL, "--json", "--", "sh", "-c", script).stdout)
    assert result["truncated"]
    assert result["stdout_total"] == 20_000_011
    assert result["stdout"].startswith("first\n")
    assert result["stdout"].endswith("last\n")
    assert len(result["stdout"]) < 10_000_000


def test_json_of_a_timeout(isobox):
    done = isobox(*LOCAL, "--json", "--timeout", "0.2", "sleep", "60")
    result = json.loads(done.stdout)
    assert done.returncode == 124
    assert (result["timed_out"], result["signal"]) == (True, "SIGKILL")


@bubblewrapped
def test_what_else_is_seen_and_may_be_written(isobox, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "tool").write_text("a tool")
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".vscode").mkdir()
    script = (
        f"cat {tools}/tool; touch .git/made; "
        f"touch .vscode/made {tools}/made 2>/dev/null; ls -A .git .vscode {tools}"
    )
    done = isobox(
        *("run", "--workdir", str(project)),
        *("--mount", str(tools), "--unprotected", ".git", "--", "sh", "-c", script),
    )
    assert done.stderr == b""
    assert (project / ".git" / "made").exists()
    assert not (project / ".vscode" / "made").exists()
    assert done.stdout.startswith(b"a tool")
    assert os.listdir(tools) == ["tool"]


@bubblewrapped
def test_memory(isobox, tmp_path):
    script = "b = bytearray(200 << 20); print(len(b))"
    asking = ("run", "--json", "--memory", str(96 << 20))
    done = isobox(*asking, "--", "python3", "-c", script)
    assert json.loads(done.stdout)["exit_code"] != 0
    assert b"209715200" not in done.stdout


@bubblewrapped
def test_who_runs_out_of_memory_is_told_of_the_limit(isobox):
    script = "b = bytearray(200 << 20); print(len(b))"
    done = isobox("run", "--memory", str(96 << 20), "--", "python3", "-c", script)
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("isobox: the command ")
    assert last.endswith(f"the memory limit, {96 << 20} bytes (--memory)")


@bubblewrapped
def test_who_ends_otherwise_is_told_of_no_limit(isobox):
    done = isobox("run", "--memory", str(96 << 20), "--", "sh", "-c", "kill -9 $$")
    assert (done.returncode, done.stderr) == (128 + signal.SIGKILL, b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "1000"], "memory"),
        (["--mount", "/no/such/place"], "/no/such/place"),
        (["--unprotected", "nobody-protects-this"], "nobody-protects-this"),
    ],
)
@bubblewrapped
def test_an_option_that_cannot_be_honoured(isobox, arguments, message):
    done = isobox("run", *arguments, "true")
    assert (done.returncode, done.stdout) == (125, b"")
    assert message in done.stderr.decode()


def test_audit_is_appended(isobox, tmp_path):
    (tmp_path / "project").mkdir()
    records = tmp_path / "audit.jsonl"
    isobox(*LOCAL, "--audit", str(records), "true", cwd=tmp_path / "project")
    kinds = [json.loads(line)["kind"] for line in records.read_text().splitlines()]
    assert kinds == ["lifecycle", "intent", "outcome", "lifecycle"]


def test_audit_in_the_commands_reach_is_refused(isobox):
    done = isobox(*LOCAL, "--audit", "audit.jsonl", "touch", "made")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"inside the workspace" in done.stderr


def test_workdir_is_the_current_directory(isobox, tmp_path):
    isobox(*LOCAL, "touch", "here")
    assert (tmp_path / "here").exists()


def test_workdir_option(isobox, tmp_path):
    (tmp_path / "there").mkdir()
    isobox(*LOCAL, "--workdir", "there", "touch", "made")
    assert (tmp_path / "there" / "made").exists()


@pytest.mark.parametrize("place", ["home", "above home"])
def test_home_is_taken_only_when_named(isobox, tmp_path, place):
    home = tmp_path / "home" / "me"
    home.mkdir(parents=True)
    cwd = home if place == "home" else home.parent
    env = {**os.environ, "HOME": str(home)}
    done = isobox(*LOCAL, "touch", "made", cwd=cwd, env=env)
    assert done.returncode == 125
    assert b"--workdir" in done.stderr
    assert not (cwd / "made").exists()
    assert isobox(*LOCAL, "--workdir", ".", "true", cwd=cwd, env=env).returncode == 0


def test_root_is_taken_only_when_named(isobox):
    assert isobox(*LOCAL, "true", cwd="/").returncode == 125


def test_reader_that_goes_away_ends_it_quietly(tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running(*LOCAL, "yes", cwd=tmp_path, **pipes) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
)
def test_signal_kills_the_command(tmp_path, number):
    script = "echo $$; trap '' INT TERM HUP QUIT; while :; do sleep 1; done"
    arguments = (*LOCAL, "--", "sh", "-c", script)
    with running(*arguments, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_signal_ends_it_though_nobody_reads_the_output(tmp_path):
    with running(*LOCAL, "yes", cwd=tmp_path, stdout=subprocess.PIPE) as process:
        select.select([process.stdout], [], [], PATIENCE)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_ignored_signal_stays_ignored(tmp_path):
    ignoring = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import os, sys; "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", ignoring, *ISOBOX, *LOCAL, "cat"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    with process:
        process.stdin.write(b"a\n")
        assert process.stdout.readline() == b"a\n"
        process.send_signal(signal.SIGINT)
        process.stdin.write(b"b\n")
        assert process.stdout.readline() == b"b\n"
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_missing_standard_descriptors(tmp_path, closed):
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *ISOBOX, *LOCAL, "cat"],
        input=b"x",
        capture_output=True,
        cwd=tmp_path,
        timeout=PATIENCE,
        check=False,
    )
    expected = b"x" if closed == "2>&-" else b""
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")


def test_terminal_inside(terminal):
    user = terminal(*LOCAL, "--", "sh")
    user.resize(101, 33)
    user.expect(b"$ ") if os.geteuid() else user.expect(b"# ")
    user.type(b"test -t 0 && test -t 1 && echo it is''a terminal\n")
    user.expect(b"it isa terminal")
    user.resize(132, 44)
    user.type(b"until test \"$(stty size)\" = '44 132'; do sleep 0.05; done; ")
    user.type(b"echo resiz''ed\n")
    user.expect(b"resized")
    user.type(b"exit 7\n")
    assert user.end() == 7


def test_terminal_gets_the_keys_and_its_modes_back(terminal):
    user = terminal(*LOCAL, "--", "sh", "-c", "echo rea''dy; cat; exit 5")
    before = user.modes()
    user.expect(b"ready")
    assert user.modes() != before
    # dash drops a signal that comes while it starts a program: cat has to be there.
    user.type(b"here\n")
    user.expect(b"here\r\nhere\r\n")
    user.type(b"\x03")
    assert user.end() == 128 + signal.SIGINT
