"""`isobox run` with a policy, and with a recording."""

from __future__ import annotations

import json
import os

import pytest

pytestmark = pytest.mark.skipif(
    not os.path.exists("/usr/bin/bwrap"), reason="needs /usr/bin/bwrap"
)

POLICY = """
version = 1
[[rules]]
verdict = "ask"
name = "no listing"
programs = ["ls"]
reason = "names are private"
"""


@pytest.fixture
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY)
    return str(path)


def test_a_policy_that_allows_changes_nothing(isobox, policy):
    done = isobox("run", "--policy", policy, "--", "echo", "hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")


def test_what_nobody_answers_is_refused(isobox, policy):
    done = isobox("run", "--policy", policy, "--", "ls")
    assert done.returncode == 125
    said = done.stderr.decode()
    assert "names are private (ls), and nobody allowed it" in said
    assert f"at {policy}:3" in said


@pytest.mark.parametrize(("key", "status"), [(b"y\n", 0), (b"n\n", 125)])
def test_a_person_is_asked(terminal, policy, key, status):
    user = terminal("run", "--policy", policy, "--ask", "--", "ls")
    user.expect(b"names are private")
    user.type(key)
    assert user.end() == status


def test_a_read_only_directory_stays_as_it_is(isobox, tmp_path):
    done = isobox("run", "--preset", "read_only", "--", "sh", "-c", "echo x > made")
    assert done.returncode == 2
    assert b"Read-only file system" in done.stderr
    assert not (tmp_path / "made").exists()


def test_the_directorys_own_policy_can_forbid(isobox, tmp_path, policy):
    (tmp_path / ".isobox").mkdir()
    (tmp_path / ".isobox" / "policy.toml").write_text(
        'version = 1\n[[rules]]\nverdict = "deny"\nprograms = ["echo"]\n'
    )
    done = isobox("run", "--policy", policy, "--", "echo", "hello")
    assert done.returncode == 125
    assert b"policy.toml:2" in done.stderr


@pytest.mark.parametrize(
    "options", [("--policy", "/nowhere"), ("--preset", "yolo"), ("--record", "made")]
)
def test_what_makes_no_sense_is_refused(isobox, options):
    done = isobox("run", *options, "--", "true")
    assert done.returncode == 125
    assert options[1].encode() in done.stderr


@pytest.mark.parametrize("option", ["--json", "--ask", "--ask-network"])
def test_a_recording_needs_a_terminal_of_its_own(terminal, tmp_path_factory, option):
    recording = tmp_path_factory.mktemp("recording") / "made.cast"
    user = terminal("run", "--record", str(recording), option, "--", "true")
    user.expect(b"it records a terminal, and this is none")
    assert user.end() == 125
    assert not recording.exists()


def test_a_recording_is_kept_out_of_the_directory(terminal, tmp_path):
    user = terminal("run", "--record", "made", "--", "true")
    user.expect(b"is inside the workspace's directory")
    assert user.end() == 125
    assert not (tmp_path / "made").exists()


def test_a_terminal_is_recorded(terminal, tmp_path_factory):
    recording = tmp_path_factory.mktemp("recording") / "made.cast"
    script = "stty size; echo rea''dy"
    user = terminal("run", "--record", str(recording), "--", "sh", "-c", script)
    user.resize(100, 30)
    user.expect(b"ready")
    assert user.end() == 0
    head, *events = map(json.loads, recording.read_text().splitlines())
    assert head["version"] == 2
    assert "ready" in "".join(text for _, kind, text in events if kind == "o")
    assert recording.stat().st_mode & 0o777 == 0o600
