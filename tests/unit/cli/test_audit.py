"""`isobox audit`, as a program and as what it prints."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime

import pytest
from tests.unit.cli.command_line import ISOBOX, PATIENCE, running

from isobox._audit.reading import Entry
from isobox._audit.records import Place, Seal
from isobox._audit.sinks import JsonlSink
from isobox.cli.trail import Wanted, line, moment
from isobox.errors import InvalidArgumentError

KEY = "0123456789abcdef"
HOSTILE = "\x1b[31mred\x1b]0;title\x07\n[bold]\u202e\x9b"


def record(number, kind, *, workspace="w-1", when=None, **fields):
    moment = 1_700_000_000.0 + number if when is None else when
    base = {"time": moment, "workspace": workspace, "backend": "local"}
    return {**base, "number": number, "kind": kind, **fields}


HELD = {
    "process": {"level": "strong", "mechanism": "namespaces; " * 40},
    "network": {"level": "none", "mechanism": "nothing"},
    "resources": {"level": "partial", "mechanism": "rlimits\n" * 40},
    "tenant": {"level": "none", "mechanism": "nothing"},
}
RECORDS = [
    record(1, "lifecycle", event="initialize", isolation=HELD),
    record(2, "intent", op="spawn", facts={"argv": ["echo", "a b"], "cwd": "/w"}),
    record(3, "intent", op="write", facts={"path": "/w/notes", "size": 3}),
    record(3, "outcome", ok=False, seconds=0.25, error="PathError", message="no way"),
    record(2, "outcome", ok=True, seconds=1.5, end={"exit_code": 3, "signal": None}),
    record(4, "question", op="connect", facts={"host": "a.example.org", "port": 443}),
    record(4, "answer", answer="deny once by me", seconds=2.0),
    record(5, "intent", op="read", workspace="w-2", facts={"path": "/w/notes"}),
    record(5, "outcome", workspace="w-2", ok=True, seconds=0.001),
    record(6, "intent", op="remove", facts={"path": "/w/gone"}),
]


@pytest.fixture
def isobox(tmp_path):
    """Runs the program, in a directory with a log."""
    for name in ("ISOBOX_AUDIT_KEY", "ISOBOX_AUDIT_KEY_FILE"):
        os.environ.pop(name, None)

    def run(*arguments, **variables):
        return subprocess.run(
            [*ISOBOX, "audit", *arguments],
            check=False,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "COLUMNS": "200", **variables},
        )

    return run


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "a.jsonl"
    append(path, RECORDS)
    return path


def append(path, records, **options):
    sink = JsonlSink(path, **options)
    for each in records:
        sink.put(each)
    sink.close()


def shown(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(each) for each in done.stdout.splitlines()]


# -- show -------------------------------------------------------------------------


def test_show_is_a_table_of_what_happened(isobox, log):
    done = isobox("show", "a.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    title, *rows = done.stdout.splitlines()
    assert title.split() == ["time", "workspace", "what", "of", "result"]
    assert len(rows) == 6
    for row, words in zip(
        rows,
        [
            (
                "initialize",
                "none: network, tenant; partial: resources; strong: process",
            ),
            ("spawn", "echo 'a b'", "ok, 1.5 s, exit_code 3"),
            ("write", "/w/notes", "PathError, 0.25 s, no way"),
            ("question: connect", "a.example.org:443", "deny once by me, 2.0 s"),
            ("w-2", "read", "/w/notes", "ok, 0.001 s"),
            ("remove", "/w/gone", "no end is recorded"),
        ],
        strict=True,
    ):
        assert all(word in row for word in words), row


def test_a_row_that_is_piped_is_one_line_in_any_width(isobox, log):
    assert len(isobox("show", "a.jsonl", COLUMNS="40").stdout.splitlines()) == 7


def test_a_life_is_one_line_in_a_terminal(log, tmp_path):
    """The rows of a workspace's life are cut where a terminal ends."""
    append(tmp_path / "b.jsonl", RECORDS[:1])
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    subprocess.run(
        [*ISOBOX, "audit", "show", str(tmp_path / "b.jsonl")],
        check=True,
        stdout=terminal,
        timeout=PATIENCE,
        env={**os.environ, "COLUMNS": "80", "TERM": "dumb"},
    )
    os.close(terminal)
    shown = os.read(control, 65536).decode().splitlines()
    os.close(control)
    assert len(shown) == 2
    assert "initialize" in shown[1]
    assert "none: network, tenant" in shown[1]


@pytest.mark.parametrize("odd", [{}, {"a": 1}, {"a": {"level": []}}, {"a": {}}])
def test_an_odd_isolation_is_a_line(odd):
    fields = record(1, "lifecycle", event="initialize", isolation=odd)
    assert line(Entry(fields)).endswith("odd: a" if odd else "initialize")


@pytest.mark.parametrize("options", [[], ["--json"], ["--failed"]])
def test_what_is_no_log_is_not_shown(isobox, tmp_path, options):
    (tmp_path / "policy.toml").write_text('version = 1\n{"a": 1}\n' * 900)
    done = isobox("show", "policy.toml", *options)
    assert (done.returncode, done.stdout) == (125, "")
    assert "this is no audit log; none of its 1800 lines" in done.stderr


@pytest.mark.parametrize(
    ("options", "ops"),
    [
        (["--op", "read"], ["read"]),
        (["--op", "read", "--op", "initialize"], ["initialize", "read"]),
        (["--workspace", "w-2"], ["read"]),
        (["--failed"], ["spawn", "write", "connect"]),
        (["--failed", "--op", "spawn"], ["spawn"]),
        (["--last", "2"], ["read", "remove"]),
        (["--since", "2100-01-01"], []),
        (["--since", "2020-01-01T12:00:00+00:00", "--op", "read"], ["read"]),
        (["--since", "1m"], []),
    ],
)
def test_show_only_what_is_asked_for(isobox, log, options, ops):
    done = isobox("show", "a.jsonl", "--json", *options)
    assert [each.get("op") or each["event"] for each in shown(done)] == ops


def test_show_of_an_operation_that_there_is_not(isobox, log):
    done = isobox("show", "a.jsonl", "--op", "read", "--op", "spwan")
    assert (done.returncode, done.stdout) == (125, "")
    assert "--op spwan: no such operation; there are apply, attach, " in done.stderr
    assert ", spawn, " in done.stderr
    assert isobox("show", "a.jsonl", "--op", "listen").returncode == 0


def test_show_of_an_operation_that_only_the_log_knows(isobox, tmp_path):
    append(tmp_path / "a.jsonl", [{"kind": "intent", "op": "of_a_later_day"}])
    done = isobox("show", "a.jsonl", "--json", "--op", "of_a_later_day")
    assert [each["op"] for each in shown(done)] == ["of_a_later_day"]


def test_show_gives_outcomes_with_their_intents(isobox, log):
    spawn = shown(isobox("show", "a.jsonl", "--json", "--op", "spawn"))[0]
    assert spawn["seq"] == 2
    assert spawn["facts"]["argv"] == ["echo", "a b"]
    assert spawn["outcome"]["seq"] == 5
    assert spawn["outcome"]["end"]["exit_code"] == 3


def test_show_obeys_nothing_that_a_record_holds(isobox, tmp_path):
    facts = {"script": HOSTILE}
    append(
        tmp_path / "a.jsonl",
        [
            record(1, "intent", op=HOSTILE, workspace=HOSTILE, facts=facts),
            record(1, "outcome", workspace=HOSTILE, ok=False, error=HOSTILE, seconds=1),
        ],
    )
    for options in ([], ["--json"]):
        done = isobox("show", "a.jsonl", *options)
        assert done.returncode == 0
        text = done.stdout.replace("\n", "")
        assert text.isprintable()
        assert "red" in text
    assert "[bold]" in isobox("show", "a.jsonl").stdout.replace("\n", "")


def test_show_reads_what_is_no_record_and_what_was_put_aside(isobox, tmp_path):
    path = tmp_path / "a.jsonl"
    append(path, RECORDS * 2, max_bytes=1024)
    with path.open("ab") as file:
        file.write(b"\xff\xfe\x1b[31m\n[1,2]\n{}\n" + b"[" * 100_000 + b"\n")
    done = isobox("show", "a.jsonl", "--json")
    found = shown(done)
    assert next(each["seq"] for each in found if "seq" in each) == 1
    odd = [each for each in found if each.get("kind") == "unreadable"]
    assert len(odd) == 4
    assert isobox("show", "a.jsonl").returncode == 0


@pytest.mark.parametrize(
    "odd",
    [
        {"time": "x"},
        {"time": 1e300},
        {"time": None},
        {"facts": []},
        {"facts": {"argv": {}}},
        {"facts": {"host": None}},
        {"workspace": {"a": 1}, "number": [1]},
        {"kind": "outcome", "end": "x", "ok": 1},
        {"kind": {"x": 1}},
    ],
)
def test_show_of_a_forged_record(odd):
    fields = {**record(1, "intent", op="read", facts={}), **odd}
    for entry in (Entry(fields), Entry(fields, fields)):
        assert line(entry).isprintable()
        assert Wanted(failed=True, since=1).has(entry) in (True, False)


def test_a_file_that_is_not_there(isobox, tmp_path):
    for command in ("show", "verify", "follow", "head"):
        done = isobox(command, "absent.jsonl")
        assert done.returncode == 125
        assert f"there is no such audit log: '{tmp_path}/absent.jsonl'" in done.stderr


def test_the_directory_that_is_missing_is_named(isobox, tmp_path):
    said = f"the directory of the audit log is missing; make it: '{tmp_path}/no'"
    for command in ("show", "verify", "follow", "head"):
        done = isobox(command, "no/a.jsonl")
        assert done.returncode == 125
        assert said in done.stderr
    with pytest.raises(FileNotFoundError) as error:
        JsonlSink(tmp_path / "no" / "a.jsonl")
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["", "x", "5", "5y", "99999999999d", "2020-13-01"])
def test_since_is_a_moment(text):
    with pytest.raises(InvalidArgumentError, match="--since"):
        moment(text)


def test_moments():
    assert moment(None) == 0
    assert moment("2h") == pytest.approx(time.time() - 7200, abs=60)
    assert (
        moment("2020-01-01T00:00:00+00:00")
        == datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    )


# -- verify and head --------------------------------------------------------------


def damage(log, change):
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(change(lines)))


def test_verify_says_that_all_is_well(isobox, log):
    done = isobox("verify", "a.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("10 records in 1 file are as they were written")
    anchor = isobox("head", "a.jsonl").stdout.strip()
    assert anchor in done.stdout
    assert isobox("verify", "a.jsonl", "--expect", anchor).returncode == 0
    told = json.loads(isobox("verify", "a.jsonl", "--json").stdout)
    assert (told["ok"], told["records"], told["findings"]) == (True, 10, [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: [x[0], x[1].replace(b"echo", b"rm -"), *x[2:]], "2: changed"),
        (lambda x: [*x[:3], *x[4:]], "4: removed"),
        (lambda x: [*x[:3], x[4], x[3], *x[5:]], "4: removed"),
        (lambda x: [*x, x[-1]], "11: moved"),
        (lambda x: x[:-1], "10: cut"),
        (lambda x: [*x[:-1], x[-1][:30]], "10: cut"),
    ],
)
def test_verify_says_what_was_done_and_where(isobox, log, change, said):
    damage(log, change)
    done = isobox("verify", "a.jsonl")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{log}:{said}" in done.stderr
    told = isobox("verify", "a.jsonl", "--json")
    assert told.returncode == 1
    assert json.loads(told.stdout)["findings"][0]["wrong"] in said


def test_verify_says_that_a_file_was_replaced(isobox, log, tmp_path):
    anchor = isobox("head", "a.jsonl").stdout.strip()
    for each in (log, tmp_path / "a.jsonl.head"):
        each.unlink()
    append(log, RECORDS[::-1])
    assert isobox("verify", "a.jsonl").returncode == 0
    done = isobox("verify", "a.jsonl", "--expect", anchor)
    assert done.returncode == 1
    assert "expected" in done.stderr
    odd = isobox("verify", "a.jsonl", "--expect", "x")
    assert (odd.returncode, "64 digits" in odd.stderr) == (125, True)


def test_verify_with_a_key(isobox, tmp_path):
    append(tmp_path / "a.jsonl", RECORDS, key=KEY.encode())
    (tmp_path / "key").write_text(f"{KEY}\n")
    for command in ("verify", "head"):
        assert isobox(command, "a.jsonl", "--key-file", "key").returncode == 0
        assert isobox(command, "a.jsonl", ISOBOX_AUDIT_KEY=KEY).returncode == 0
        done = isobox(command, "a.jsonl")
        assert done.returncode in (1, 125)
        assert "give the key" in done.stderr
        odd = isobox(command, "a.jsonl", ISOBOX_AUDIT_KEY=KEY * 2)
        assert "another key" in odd.stderr


def test_verify_with_a_key_for_a_log_without(isobox, log, tmp_path):
    (tmp_path / "key").write_text(KEY)
    for command in ("verify", "head"):
        done = isobox(command, "a.jsonl", "--key-file", "key")
        assert "the log was written without one (then leave out --key-file" in (
            done.stderr
        )
        assert done.returncode in (1, 125)


def test_verify_tells_of_a_process_that_was_stopped(isobox, log, monkeypatch):
    sink, write = JsonlSink(log), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:13]))
        with pytest.raises(OSError, match="only part"):
            sink.put({"n": 1})
    sink.close()
    done = isobox("verify", "a.jsonl")
    assert (done.returncode, "11: torn: 13 bytes" in done.stderr) == (1, True)
    JsonlSink(log).close()
    done = isobox("verify", "a.jsonl")
    assert (done.returncode, "13 bytes before it" in done.stderr) == (0, True)


def test_verify_tells_of_what_was_added_for_good(isobox, log):
    last = json.loads(log.read_bytes().splitlines()[-1])
    answer = record(7, "answer", answer="allow once by alice", seconds=1.0)
    line, _ = Seal().line(answer, Place(last["seq"], last["hash"]))
    with log.open("ab") as file:
        file.write(line)
    done = isobox("verify", "a.jsonl")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{log}:11: ahead: it and what follows come after record 10" in done.stderr
    append(log, RECORDS)
    done = isobox("verify", "a.jsonl")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{log}:12: ahead: 1 records before it came after record 10" in done.stderr
    assert "chain: recovered" in isobox("show", "a.jsonl").stdout


def test_verify_tells_of_a_line_that_isobox_did_not_write(isobox, log):
    with log.open("ab") as file:
        file.write(b"xx\n")
    for _ in range(2):
        done = isobox("verify", "a.jsonl")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{log}:11: added: 3 bytes that isobox did not write" in done.stderr
        with pytest.raises(OSError, match="Find out who wrote it"):
            JsonlSink(log)


# -- follow -----------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_follow_shows_what_comes_over_files_that_are_put_aside(log, tmp_path, options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    arguments = ("audit", "follow", str(log), "--workspace", "w-9", *options)
    with running(*arguments, cwd=tmp_path, **pipes) as process:
        assert "following" in process.stderr.readline()
        for number in range(40):
            append(
                log,
                [
                    record(number, "intent", op="read", facts={"path": f"/{number}"}),
                    record(
                        number,
                        "intent",
                        workspace="w-9",
                        op="read",
                        facts={"path": f"/n{number}{HOSTILE}"},
                    ),
                ],
                max_bytes=2048,
            )
        for number in range(40):
            told = process.stdout.readline()
            assert told[:-1].isprintable()
            assert f"/n{number}" in told
        append(log, [record(1, "outcome", workspace="w-9", ok=True, seconds=2.0)])
        assert "/n1" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 128 + signal.SIGINT
    assert (tmp_path / "a.jsonl.3").exists()


def test_the_command_line_alone_is_light():
    code = "import sys, isobox.cli.audit; assert 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
