"""Events of filters, from those that have them to those that watch."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._egress import watch
from isobox._egress.secret import Secret
from isobox._egress.vault import Vault
from isobox._egress.watch import Reporter, Watcher

pytestmark = pytest.mark.anyio

VALUE = "correct horse battery"
NOWHERE = Vault(())


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def shared(monkeypatch):
    """A directory as /tmp; pytest's own has too long a name for a socket."""
    path = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setattr(watch, "_SHARED", path)
    monkeypatch.setattr(watch, "_SESSIONS", f"{path}/sessions")
    monkeypatch.setattr(watch, "_FRESH", -1.0)
    yield Path(path)
    shutil.rmtree(path)


async def heard(watcher: Watcher, count: int = 1) -> list[watch.Event]:
    found = []
    with anyio.fail_after(10):
        async for event in watcher:
            found.append(event)
            if len(found) == count:
                return found
    raise AssertionError


async def test_every_watcher_is_told():
    report = Reporter("ws-a", NOWHERE)
    report({"event": "nobody hears it"})
    with Watcher() as one, Watcher() as two:
        report({"event": "allowed", "host": "files.example.org", "port": 443})
        for watcher in (one, two):
            (event,) = await heard(watcher)
            assert event.pop("time") > 1.7e9
            assert event == {
                "workspace": "ws-a",
                "event": "allowed",
                "host": "files.example.org",
                "port": 443,
            }


async def test_a_watcher_hears_every_workspace():
    with Watcher() as watcher:
        Reporter("ws-a", NOWHERE)({"event": "allowed"})
        Reporter("ws-b", NOWHERE)({"event": "refused"})
        found = await heard(watcher, 2)
    assert [event["workspace"] for event in found] == ["ws-a", "ws-b"]


async def test_one_that_comes_later_is_found(monkeypatch):
    monkeypatch.setattr(watch, "_FRESH", 0.05)
    report = Reporter("ws-a", NOWHERE)
    report({"event": "first"})
    with Watcher() as watcher:
        await anyio.sleep(0.06)
        report({"event": "second"})
        (event,) = await heard(watcher)
    assert event["event"] == "second"


async def test_nothing_stays_behind(shared):
    with Watcher() as watcher:
        assert len(os.listdir(watch.directory())) == 1
        watcher.close()
    assert os.listdir(watch.directory()) == []
    # Only a watcher makes a socket.
    Reporter("ws-a", NOWHERE)({"event": "allowed"})
    assert os.listdir(watch.directory()) == []


async def test_the_socket_of_one_that_was_killed_is_removed():
    dead = os.path.join(watch.directory(), "egress-1-00000000.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
        left.bind(dead)
    with Watcher() as watcher:
        Reporter("ws-a", NOWHERE)({"event": "allowed"})
        await heard(watcher)
        assert not os.path.exists(dead)


async def test_what_is_not_a_watchers_is_left_alone():
    other = Path(watch.directory()) / "other.sock"
    other.write_text("mine")
    with Watcher() as watcher:
        Reporter("ws-a", NOWHERE)({"event": "allowed"})
        await heard(watcher)
    assert other.read_text() == "mine"


async def test_a_burst_waits_for_the_watcher():
    report = Reporter("ws-a", NOWHERE)
    with Watcher() as watcher:
        for number in range(200):
            report({"event": "allowed", "number": number})
        found = await heard(watcher, 200)
    assert [event["number"] for event in found] == list(range(200))


async def test_what_is_lost_is_counted():
    report = Reporter("ws-a", NOWHERE)
    with Watcher() as watcher:
        for number in range(2000):
            report({"event": "allowed", "number": number})
        told, more = 0, 2000
        while "lost" not in (event := (await heard(watcher))[0]):
            assert event["number"] == told
            told += 1
            report({"event": "allowed", "number": more})
            more += 1
    assert event["lost"] == event["number"] - told > 1000


async def test_one_that_does_not_listen_delays_nobody():
    report = Reporter("ws-a", NOWHERE)
    with Watcher(), Watcher() as eager:
        for number in range(1000):
            report({"event": "allowed", "number": number})
            (event,) = await heard(eager)
            assert event["number"] == number
            assert "lost" not in event


async def test_values_that_are_known_are_masked():
    vault = Vault([Secret("TOKEN", source=lambda: VALUE, hosts=["a.example.org"])])
    report = Reporter("ws-a", vault)
    told = {"event": "refused", "target": f"/?q={VALUE}", "reason": f"no {VALUE}!"}
    with Watcher() as watcher:
        report(told)
        (event,) = await heard(watcher)
        assert event["target"] == told["target"]  # nobody has needed it so far
        await vault._value(vault._secrets[0])
        report(told)
        (event,) = await heard(watcher)
    assert event["target"] == "/?q=" + "*" * len(VALUE)
    assert event["reason"] == f"no {'*' * len(VALUE)}!"
    assert event["event"] == "refused"


async def test_a_value_at_the_cut_is_masked_before_it():
    vault = Vault([Secret("TOKEN", source=lambda: VALUE, hosts=["a.example.org"])])
    await vault._value(vault._secrets[0])
    with Watcher() as watcher:
        Reporter("ws-a", vault)({"event": "x", "target": "/" * 1015 + VALUE * 2})
        (event,) = await heard(watcher)
    assert VALUE[:8] not in event["target"]


@given(
    st.dictionaries(
        st.sampled_from(("host", "method", "target", "rule", "reason", "address")),
        st.one_of(
            st.text(max_size=50),
            st.text(alphabet="\U0001f600\x00\x1b\ud800", min_size=5000, max_size=5000),
            st.just("a" * 70_000),
            st.integers(),
            st.none(),
        ),
    )
)
def test_whatever_a_sandbox_says_arrives_as_one_event(fields):
    async def passed_on():
        with Watcher() as watcher:
            Reporter("ws-a", NOWHERE)({"event": "refused", **fields})
            return (await heard(watcher))[0]

    event = asyncio.run(passed_on())
    for name, value in fields.items():
        if isinstance(value, str) and len(value) > 1024:
            assert event[name].startswith(value[:1024])
            assert event[name].endswith(f"[... {len(value) - 1024} characters more]")
        else:
            assert event[name] == value


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[1]", b"null", b"[" * 60_000, b"1" * 60_000]
)
async def test_what_is_no_event_is_passed_over(data):
    with (
        Watcher() as watcher,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as forger,
    ):
        forger.sendto(data, watcher._path)
        forger.sendto(json.dumps({"event": "true"}).encode(), watcher._path)
        assert await heard(watcher) == [{"event": "true"}]


async def test_a_flood_does_not_keep_others_from_their_turn():
    report = Reporter("ws-a", NOWHERE)
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await anyio.sleep(0)
            turns += 1

    with Watcher() as watcher:
        for number in range(100):
            report({"event": "allowed", "number": number})
        async with anyio.create_task_group() as group:
            group.start_soon(others)
            await heard(watcher, 100)
            group.cancel_scope.cancel()
    assert turns >= 100


def test_the_directory_is_the_users_alone(shared):
    path = watch.directory()
    assert path == f"{shared}/isobox-{os.getuid()}"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


def test_a_session_has_a_place_for_it(shared):
    session = shared / "sessions" / str(os.getuid())
    session.mkdir(parents=True, mode=0o700)
    assert watch.directory() == f"{session}/isobox-{os.getuid()}"


def test_it_does_not_depend_on_the_environment(monkeypatch):
    # As under sudo -E, where the session is that of the user who called it.
    before = watch.directory()
    for name in ("XDG_RUNTIME_DIR", "TMPDIR", "HOME", "USER", "SUDO_UID"):
        monkeypatch.setenv(name, "/nowhere")
    assert watch.directory() == before


@pytest.mark.parametrize("kind", ["link", "file", "open to others"])
def test_a_directory_of_somebody_else_is_refused(kind, shared):
    path = shared / f"isobox-{os.getuid()}"
    (shared / "other").mkdir(mode=0o700)
    match kind:
        case "link":
            path.symlink_to(shared / "other")
        case "file":
            path.write_text("")
        case _:
            path.mkdir()
            path.chmod(0o750)
    with pytest.raises(PermissionError, match="remove it"):
        Watcher()
    # A filter goes on, and tells nobody.
    Reporter("ws-a", NOWHERE)({"event": "allowed"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what is another's")
def test_a_directory_of_another_user_is_refused(shared):
    path = shared / "isobox-0"
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)
    with pytest.raises(PermissionError):
        watch.directory()


def test_another_user_is_told_nothing(shared):
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    shared.chmod(0o777)
    with Watcher() as watcher:
        script = (
            "import os, socket, sys\n"
            "os.setgroups([]); os.setgid(12345); os.setuid(12345)\n"
            "sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "sender.sendto(b'{}', sys.argv[1])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, watcher._path],
            capture_output=True,
            text=True,
            check=False,
        )
    assert "PermissionError" in done.stderr
