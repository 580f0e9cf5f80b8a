"""The guest on every Python that it supports."""

from __future__ import annotations

import os
import socket
import sys

import pytest
from tests.unit._guest.client import SCAN, SEARCH, SPAWN, Guest, interpreters, stdout

from isobox._guest import agent, bundle
from isobox.errors import BackendUnavailableError

FOUND = interpreters()


@pytest.mark.parametrize("version", FOUND)
def test_all_of_it_works(version, tmp_path):
    python = FOUND[version]
    if python is None:
        pytest.skip(f"no Python {version} here")
    with Guest(python=python) as guest:
        assert guest.hello is not None
        assert guest.hello["python"].startswith(version + ".")
        assert guest.hello["version"] == agent.VERSION
        works(guest, bytes(tmp_path))


def works(guest: Guest, folder: bytes) -> None:
    commands(guest)
    files(guest, folder)
    trees(guest, folder)
    ports(guest)


def commands(guest: Guest) -> None:
    assert stdout(guest.result(guest.spawn("echo", "hi"))) == b"hi\n"
    long = b": " + b"x" * 150_000 + b"\necho long"
    assert stdout(guest.result(guest.spawn(script=long))) == b"long\n"
    limited = guest.spawn(script=b"ulimit -n", limits={"nofile": 77})
    assert stdout(guest.result(limited)) == b"77\n"
    ended = guest.result(guest.spawn("sleep", "60", timeout=0.05))
    assert ended["timed_out"] == "timeout"
    terminal = guest.start("tty", tty=[80, 24])
    assert guest.result(terminal)["exit"] == 0


def files(guest: Guest, folder: bytes) -> None:
    path = folder + b"/new/file"
    content = os.urandom(700_000)
    answer = guest.open(
        "write", path=path, body=None, mode=None, if_match=None, parents=True
    )
    guest.data(answer, content, agent.BODY)
    guest.end(answer, agent.BODY)
    guest.result(answer)
    answer = guest.open("read", path=path, offset=5, length=500_000)
    guest.result(answer)
    assert answer.bytes() == content[5:500_005]
    small = guest.open(
        "write",
        path=folder + b"/small",
        body=b"a b c",
        mode=0o600,
        if_match="",
        parents=True,
    )
    guest.result(small)
    places = guest.open("places", paths=[[folder + b"/new/../small", True]])
    assert guest.result(places)["real"] == [os.path.realpath(folder) + b"/small"]
    edit = guest.open(
        "edit", path=folder + b"/small", pieces=[[b"b", b"B", False]], if_match=None
    )
    assert guest.result(edit)["count"] == 1
    lines = guest.open(
        "read_lines", path=folder + b"/small", start=-1, count=9, width=3
    )
    assert guest.result(lines)["clipped"] == [1]
    assert lines.bytes() == b"a B"
    hunk = {
        "body": "-a B c\n+a B d",
        "line": 1,
        "anchors": [],
        "at_end": True,
        "newline": None,
    }
    change = {
        "path": folder + b"/small",
        "target": None,
        "kind": "update",
        "mode": None,
    }
    patch = guest.open("patch", changes=[{**change, "hunks": [hunk]}])
    assert guest.result(patch)["removed"] == []
    scan = guest.open(
        "scan", path=folder, **{**SCAN, "depth": None, "pattern": "**/[f-s]*"}
    )
    guest.result(scan)
    assert scan.bytes().count(folder) == 3
    search = guest.open("search", path=folder, **{**SEARCH, "pattern": "B d$"})
    guest.result(search)
    assert b"a B d" in search.bytes()


def trees(guest: Guest, folder: bytes) -> None:
    pull = guest.open("pull", path=folder)
    guest.result(pull)
    push = guest.open("push", path=folder + b"/copy", clear=False)
    guest.data(push, pull.bytes(), agent.BODY)
    guest.end(push, agent.BODY)
    assert guest.result(push)["count"] == 4
    remove = guest.open("remove", path=folder + b"/copy", recursive=True)
    guest.result(remove)
    assert not os.path.exists(folder + b"/copy")


def ports(guest: Guest) -> None:
    listen = guest.open("listen", port=0)
    guest.until(lambda: bool(listen.events))
    port = listen.events[0]["port"]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        guest.until(lambda: bool(guest.accepted))
        guest.data(guest.answers[max(guest.accepted)], b"back", agent.BODY)
        assert client.recv(10) == b"back"
    datagrams = guest.open("datagrams", port=0)
    guest.until(lambda: bool(datagrams.events))
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", datagrams.events[0]["port"]))
        client.send(b"?")
        guest.until(lambda: bool(datagrams.bytes()))
        guest.data(datagrams, datagrams.bytes(), agent.BODY)
        client.settimeout(10)
        assert client.recv(10) == b"?"


def test_the_program_is_compiled_once_for_each_interpreter():
    assert bundle.program(sys.executable) is bundle.program(sys.executable)
    other = next((path for path in FOUND.values() if path), sys.executable)
    assert bundle.program(other)[:4] != b""


def test_an_interpreter_that_is_none_is_refused(tmp_path):
    with pytest.raises(BackendUnavailableError, match="cannot compile"):
        bundle.program("/bin/false")
    with pytest.raises(BackendUnavailableError, match="cannot compile"):
        bundle.program(str(tmp_path / "missing"))


def test_every_operation_there_is_was_tried():
    assert set(agent._OPERATIONS) == {
        "spawn", "kill", "read", "write", "edit", "scan", "search", "remove",
        "pull", "push", "dial", "listen", "datagrams", "read_lines", "patch",
        "places", "attach", "running",  # the last two in test_daemon.py
    }  # fmt: skip
    assert set(SPAWN) >= {"argv", "script", "cwd"}
