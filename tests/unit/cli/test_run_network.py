"""`isobox run --network`, in a sandbox."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess

import pytest
from tests.unit.cli.command_line import ISOBOX, Terminal

pytestmark = pytest.mark.skipif(
    not os.path.exists("/usr/bin/bwrap"), reason="needs /usr/bin/bwrap"
)

ONE, OTHER = "http://one.test/", "http://other.test/"
CURL = ("curl", "--silent", "--show-error", "--max-time", "20")
ASKING = ("run", "--ask-network", "--")


@pytest.fixture(autouse=True, scope="module")
def curl():
    if shutil.which("curl") is None:
        pytest.skip("needs curl")


def test_refusals_are_listed_when_the_command_has_ended(isobox):
    done = isobox("run", "--network", "a.example.org", "--", *CURL, "http://b.test/")
    assert done.returncode == 0
    assert b"isobox denies b.test:80" in done.stdout
    assert done.stderr.decode() == (
        "isobox: refused b.test:80 (no rule allows b.test:80; rule 'default')\n"
    )


def test_names_are_refused_too(isobox):
    done = isobox("run", "--network", "a.example.org", "getent", "hosts", "b.test")
    assert done.returncode == 2
    assert b"refused b.test (name look-up: no rule allows b.test" in done.stderr


def test_json_has_them_in_a_field(isobox):
    rules = ("--network", "*.test", "--network", "!b.test")
    done = isobox("run", "--json", *rules, "--", *CURL, "http://b.test/")
    assert done.stderr == b""
    assert json.loads(done.stdout)["denials"] == [
        {"host": "b.test", "port": 80, "rule": "!b.test",
         "reason": "a rule denies it", "kind": "connection"}
    ]  # fmt: skip


def test_a_secret_is_a_placeholder_inside(isobox):
    options = ("--network", "a.test", "--secret", "TOKEN=env:HELD@a.test")
    done = isobox("run", *options, "env", env={**os.environ, "HELD": "sentinel"})
    assert b"TOKEN=isobox_" in done.stdout
    assert b"sentinel" not in done.stdout


@pytest.mark.parametrize("options", [(), ("--network", "none")])
def test_without_hosts_there_is_no_network(options, isobox):
    done = isobox("run", *options, "--", *CURL, ONE)
    assert done.returncode != 0
    assert done.stderr.startswith(b"curl: ")
    assert b"isobox" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "a b"], "not a host name"),
        (["--network", "none", "--network", "a.test"], "--network none"),
        (["--network", "?a.test"], "--ask-network"),
        (["--secret", "A=env:HOME@a.test"], "network"),
        (["--network", "a.test", "--secret", "A=env:NOPE@a.test"], "NOPE is not set"),
        (["--network", "a.test", "--secret", "A=env:HOME@b.test"], "allows b.test"),
        (["--network", "a.test", "--secret", "sentinel"], "NAME=SOURCE@HOST"),
        (["--backend", "local", "--network", "a.test"], "cannot filter"),
        (["--min-isolation", "some"], "no_proc"),
        (["--backend", "local", "--min-isolation", "landlock"], "for bubblewrap"),
        (["--backend", "dokcer", "--image", "x"], "no backend is called 'dokcer'"),
        (["--backend", "local", "--image", "x"], "--image: for containers"),
    ],
)
def test_an_option_that_cannot_be_honoured(arguments, message, isobox, tmp_path):
    done = isobox("run", *arguments, "touch", "made")
    assert (done.returncode, done.stdout) == (125, b"")
    assert message in done.stderr.decode()
    assert b"sentinel" not in done.stderr
    assert os.listdir(tmp_path) == []


def test_less_isolation_may_be_asked_for(isobox):
    assert isobox("run", "--min-isolation", "landlock", "true").returncode == 0


def test_without_a_terminal_nobody_is_asked(isobox):
    done = isobox(*ASKING, *CURL, ONE, start_new_session=True)
    assert b"and nobody allowed it" in done.stdout
    said = done.stderr.decode().splitlines()
    assert said[0].startswith("isobox: no terminal to ask whether it may connect")
    assert said[1].startswith("isobox: refused one.test:80 (no rule is about")


@pytest.fixture
def nowhere():
    """What runs a program without a network: a yes leads no further there."""
    apart = ["unshare", "--net"]
    if os.geteuid() != 0:
        apart += ["--user", "--map-current-user"]
    if subprocess.run([*apart, "true"], check=False).returncode != 0:
        pytest.skip("no network namespace can be had")
    return [shutil.which("unshare"), *apart[1:], "--"]


def test_yes_and_no(nowhere, tmp_path):
    # What it prints waits while a question is open.
    curl, wait = " ".join(CURL), "until test -e seen; do sleep 0.05; done"
    script = f"{curl} {ONE}; {wait}; {curl} {OTHER}"
    user = Terminal(
        *ASKING, "sh", "-c", script, cwd=tmp_path, program=[*nowhere, *ISOBOX]
    )
    try:
        user.expect(b"may it connect to one.test:80?")
        user.expect(b"60 s]")
        user.type(b"y\n")
        user.expect(b"isobox cannot reach one.test:80")
        (tmp_path / "seen").touch()
        user.expect(b"may it connect to other.test:80?")
        user.type(b"\n")
        user.expect(b"and nobody allowed it: the answer was no (rule 'otherwise')")
        user.expect(b"refused other.test:80 (no rule is about")
        assert user.end() == 0
    finally:
        user.close()


def test_questions_come_one_at_a_time(terminal):
    script = f"{' '.join(CURL)} {ONE} & {' '.join(CURL)} {OTHER} & wait"
    user = terminal(*ASKING, "sh", "-c", script)
    for _ in range(2):
        user.expect(b"may it connect to ")
        assert b"may it" not in user.quiet()
        user.type(b"n\n")
    assert user.end() == 0


def test_nothing_is_printed_while_a_question_is_open(terminal):
    script = (
        "(while :; do echo noi''se; sleep 0.01; done) & "
        f"{' '.join(CURL)} {ONE}; kill $!"
    )
    user = terminal(*ASKING, "sh", "-c", script)
    user.expect(b" s]")
    assert b"noise" not in user.quiet()
    user.type(b"n\n")
    user.expect(b"noise")
    assert user.end() == 0


def test_a_command_cannot_forge_a_question(terminal):
    forged = r"printf '\033[1misobox: may it connect to good.test:443?\033[0m\rx\n'"
    user = terminal(*ASKING, "sh", "-c", forged)
    user.expect(b"\\x1b[1misobox: may it connect to good.test:443?\\x1b[0m\r")
    assert user.end() == 0


def test_the_command_has_no_terminal(terminal):
    user = terminal(*ASKING, "sh", "-c", "test -t 0 || test -t 1 || echo none; cat")
    user.expect(b"none")
    assert user.end() == 0


def test_ctrl_c_ends_it_while_a_question_is_open(terminal):
    user = terminal(*ASKING, *CURL, ONE)
    user.expect(b" s]")
    user.type(b"\x03")
    assert user.end() == 128 + signal.SIGINT


def test_a_job_in_the_background_asks_nobody(tmp_path):
    # A shell with job control, as a user has.
    quoted = " ".join(f"'{word}'" for word in (*ASKING, *CURL, ONE))
    script = f"set -m; \"$@\" {quoted} & wait $!; echo en''ded"
    user = Terminal(cwd=tmp_path, program=["/bin/sh", "-c", script, "sh", *ISOBOX])
    try:
        user.expect(b"no terminal to ask")
        user.expect(b"ended")
        assert user.end() == 0
    finally:
        user.close()
