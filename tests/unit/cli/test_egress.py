"""`isobox egress`, and how its lines look."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.command_line import PATIENCE, Terminal, running

from isobox._egress.vault import Vault
from isobox._egress.watch import Reporter
from isobox.cli import egress

WORKSPACE = f"test-{os.getpid()}"
ASKED = {"host": "a.test", "port": 443, "via": "http", "method": "GET", "target": "/x"}


def report(**event):
    Reporter(WORKSPACE, Vault(()))(event)


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield 12 * 3600 + 34 * 60 + 56.7
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("event", "rest"),
    [
        (
            {"event": "allowed", **ASKED},
            "allowed  a.test:443  http  GET /x",
        ),
        (
            {"event": "refused", **ASKED, "reason": "no rule (rule 'x')", "rule": "x"},
            "refused  a.test:443  http  GET /x  no rule (rule 'x')",
        ),
        (
            {"event": "refused", "host": "a.test", "port": 53, "via": "dns",
             "method": None, "target": None, "reason": "no", "rule": "!a.test"},
            "refused  a.test:53  dns  no (rule '!a.test')",
        ),
        (
            {"event": "ended", "host": "a.test", "port": 22, "via": "direct",
             "address": "192.0.2.1", "bytes_in": 5 << 20, "bytes_out": 1000},
            "ended    a.test:22  direct  in 5.0 MiB, out 1000 B",
        ),
        (
            {"event": "allowed", **ASKED, "lost": 3},
            "allowed  a.test:443  http  GET /x  (3 events before it were lost)",
        ),
    ],
)  # fmt: skip
def test_line(event, rest, clock):
    told = {"time": clock, "workspace": "ws-a", **event}
    assert egress.line(told) == f"12:34:56  ws-a  {rest}"


@given(
    st.dictionaries(
        st.sampled_from(
            ("time", "workspace", "event", "host", "port", "via", "method", "target",
             "reason", "rule", "bytes_in", "bytes_out", "lost")
        ),
        st.one_of(
            st.text(), st.integers(), st.floats(), st.none(), st.lists(st.text()),
            st.sampled_from(("\x1b[2J", "a\nb", "\u202e", "\x9b31m")),
        ),
    )
)  # fmt: skip
def test_whatever_comes_is_one_line_that_no_terminal_obeys(event):
    assert egress.line(event).isprintable()


def heard(stream, count):
    """Return the next lines that are about this test."""
    found = []
    while len(found) < count:
        line = stream.readline()
        assert line
        if WORKSPACE in line:
            found.append(line)
    return found


def test_events_come_live(tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        running("egress", cwd=tmp_path, **pipes) as shown,
        running("egress", "--json", cwd=tmp_path, **pipes) as told,
    ):
        for each in (shown, told):
            assert "Ctrl-C" in each.stderr.readline()
        report(event="allowed", **{**ASKED, "target": "/\x1b[2J\n"})
        report(event="ended")
        report(event="ended", host="a.test", port=443, bytes_in=1, bytes_out=2)
        lines = heard(shown.stdout, 2)
        assert lines[0].endswith("GET /\\x1b[2J\\n\n")
        assert lines[1].endswith("in 1 B, out 2 B\n")
        events = [json.loads(line) for line in heard(told.stdout, 3)]
        assert [event["event"] for event in events] == ["allowed", "ended", "ended"]
        assert events[0]["target"] == "/\x1b[2J\n"
        for each in (shown, told):
            each.send_signal(signal.SIGINT)
            assert each.wait(PATIENCE) == 128 + signal.SIGINT
            assert each.stderr.read() == ""
            assert each.stdout.read() == ""


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_goes_away_ends_it_quietly(options, tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with running("egress", *options, cwd=tmp_path, **pipes) as process:
        assert "Ctrl-C" in process.stderr.readline()
        process.stdout.close()
        report(event="allowed", **ASKED)
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
        assert process.stderr.read() == ""


def test_on_a_terminal_it_has_colours_and_ends_with_ctrl_c(tmp_path):
    user = Terminal("egress", cwd=tmp_path)
    try:
        user.expect(b"Ctrl-C")
        report(event="refused", **ASKED, reason="no")
        user.expect(WORKSPACE.encode())
        user.expect(b"\x1b[0m")
        user.type(b"\x03")
        assert user.end() == 128 + signal.SIGINT
    finally:
        user.close()
