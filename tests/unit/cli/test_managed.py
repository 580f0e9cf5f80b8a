"""`isobox ls`, `stats`, `logs`: what a manager's store says, on a terminal."""

from __future__ import annotations

import json
import os
import time

import anyio
import pytest

from isobox._audit.sinks import JsonlSink
from isobox.cli import managed_rows
from isobox.manager import keys
from isobox.manager.records import Claim, Record, State, Tenant
from isobox.manager.sql import SqlStore

ESCAPES = "\x1b[31mred\x1b]0;title\x07\n[bold]\u202e\x9b"
HOLDER = "host-1:42:abcdef"
DAY = 86400


class Service:
    """A manager's base directory, as its store knows it."""

    def __init__(self, path):
        self.path = path
        path.mkdir(mode=0o700)
        self.now = time.time()

    def made(self, user, agent="coder", session="s", *, idle=0.0, closed=False):
        return anyio.run(self._made, user, agent, session, idle, closed)

    async def _made(self, user, agent, session, idle, closed):
        whose = keys.tenant(keys.PER_AGENT, user, agent, session)
        key = keys.key(keys.PER_AGENT, "local", whose)
        name = keys.workspace_id(key, whose)
        claim = Claim(
            holder=HOLDER,
            key=key,
            workspace_id=name,
            tenant=whose,
            backend="local",
            place=keys.place(name),
        )
        async with SqlStore(self.path / "manager.db") as store:
            await store.beat(HOLDER, self.now, self.now + DAY, {})
            granted = await store.claim(claim, self.now - idle)
            await store.made(name, HOLDER, self.now - idle)
            if closed:
                await store.release(name, HOLDER, self.now, self.now - idle)
                await store.closed(name, HOLDER, self.now)
        return granted.record


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path / "workspaces")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("ISOBOX_STORE", "ISOBOX_BASEDIR"):
        monkeypatch.delenv(name, raising=False)


def rows(done):
    assert (done.returncode, done.stderr) == (0, b"")
    return [json.loads(line) for line in done.stdout.splitlines()]


# -- ls ------------------------------------------------------------------------


def test_ls_says_whose_each_is_and_how_it_is(isobox, service):
    ada = service.made("ada", idle=120)
    bob = service.made("bob", closed=True)
    live, closed = rows(isobox("ls", "--json"))
    assert (live["id"], live["user"], live["agent"]) == (
        ada.workspace_id,
        "ada",
        "coder",
    )
    assert (live["session"], live["backend"], live["state"]) == (None, "local", "live")
    assert live["holders"] == [HOLDER]
    assert 120 <= live["idle"] < 240
    assert (closed["id"], closed["state"], closed["holders"]) == (
        bob.workspace_id,
        "closed",
        [],
    )


def test_ls_prints_aligned_lines_for_a_pipe(isobox, service):
    service.made("ada", idle=7300)
    done = isobox("ls")
    titles, row = done.stdout.decode().splitlines()
    assert titles.split() == list(managed_rows.TITLES)
    assert row.split()[1:] == ["ada", "coder", "*", "local", "live", HOLDER, "2h"]


@pytest.mark.parametrize(
    ("options", "users"),
    [
        (("--user", "ada"), ["ada"]),
        (("--user", "nobody"), []),
        (("--agent", "coder"), ["ada", "bob"]),
        (("--state", "closed"), ["bob"]),
        (("--state", "closed", "--state", "live"), ["ada", "bob"]),
    ],
)
def test_ls_of_some(isobox, service, options, users):
    service.made("ada")
    service.made("bob", closed=True)
    assert [row["user"] for row in rows(isobox("ls", "--json", *options))] == users


def test_ls_says_that_there_are_more(isobox, service):
    for number in range(3):
        service.made(f"u{number}")
    done = isobox("ls", "--json", "--limit", "2")
    assert len(done.stdout.splitlines()) == 2
    assert b"more than 2" in done.stderr


def test_ls_of_an_unknown_state(isobox, service):
    service.made("ada")
    done = isobox("ls", "--state", "asleep")
    assert done.returncode == 125
    assert b"--state asleep: there are spare, making, live" in done.stderr


def test_names_are_not_obeyed_by_a_terminal(isobox, service, terminal):
    service.made(ESCAPES, ESCAPES)
    piped = isobox("ls").stdout
    shown = terminal("ls")
    shown.end()
    assert b"\\x1b[31mred" in piped
    for text in (piped, shown.seen):
        assert b"\x1b]0;" not in text
        assert b"\x07" not in text
        assert "\u202e".encode() not in text
    assert b"[bold]" in piped


def test_where_there_is_no_store_none_is_made(isobox, tmp_path):
    done = isobox("ls", "--basedir", "nothing")
    assert done.returncode == 125
    assert b"no manager's store at" in done.stderr
    assert b"--basedir or ISOBOX_BASEDIR" in done.stderr
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("form", ["path", "url", "option"])
def test_the_store_may_be_elsewhere(isobox, service, form):
    service.made("ada")
    path = service.path / "manager.db"
    env = {**os.environ}
    options = ()
    if form == "option":
        options = ("--store", str(path))
    else:
        env["ISOBOX_STORE"] = str(path) if form == "path" else f"sqlite:///{path}"
    assert len(rows(isobox("ls", "--json", *options, cwd="/", env=env))) == 1


def test_a_file_that_is_no_store(isobox, service):
    (service.path / "manager.db").write_text("no database at all, but some text")
    (service.path / "manager.db").chmod(0o600)
    done = isobox("ls")
    assert done.returncode == 125
    assert b"not a database" in done.stderr


# -- stats ---------------------------------------------------------------------


def test_stats_counts_states_and_names_holders(isobox, service):
    service.made("ada")
    service.made("bob")
    service.made("eve", closed=True)
    told = json.loads(isobox("stats", "--json").stdout)
    assert told["holders"] == [HOLDER]
    assert (told["workspaces"]["live"], told["workspaces"]["closed"]) == (2, 1)
    assert set(told["workspaces"]) == {state.value for state in State}
    shown = isobox("stats").stdout.decode()
    assert "live      2" in shown
    assert HOLDER in shown


# -- logs ----------------------------------------------------------------------


def log_of(service, record, *events):
    place = service.path / record.place
    place.mkdir(mode=0o700)
    sink = JsonlSink(place / "audit.jsonl")
    for number, event in enumerate(events, 1):
        sink.put(
            {
                "time": 1_700_000_000.0 + number,
                "workspace": record.workspace_id,
                "backend": "local",
                "number": number,
                "kind": "lifecycle",
                "event": event,
            }
        )


def test_logs_shows_the_audit_log(isobox, service):
    record = service.made("ada")
    log_of(service, record, "initialize", ESCAPES, "close")
    done = isobox("logs", record.workspace_id)
    assert done.returncode == 0, done.stderr
    assert b"initialize" in done.stdout
    assert b"\x1b" not in done.stdout
    (last,) = rows(isobox("logs", record.workspace_id, "--json", "--last", "1"))
    assert last["event"] == "close"


def test_logs_of_nobody(isobox, service):
    service.made("ada")
    done = isobox("logs", "no-such-workspace")
    assert done.returncode == 125
    assert b"no workspace is called no-such-workspace" in done.stderr


def test_logs_where_there_is_no_log(isobox, service):
    done = isobox("logs", service.made("ada").workspace_id)
    assert done.returncode == 125
    assert b"audit.jsonl" in done.stderr


# -- rows ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.4, "59s"), (60, "1m"), (3600, "1h"), (90000, "1d"), (1e7, "116d")],
)
def test_times_are_in_one_unit(seconds, text):
    assert managed_rows.ago(seconds) == text


def test_a_spare_is_nobodys():
    spare = Record(
        workspace_id="spare-a",
        key=None,
        tenant=None,
        backend="local",
        place="spare-a.00000000",
        state=State.SPARE,
        created_at=0.0,
        used_at=5.0,
    )
    assert managed_rows.cells(spare, 3.0)[:4] == ("spare-a", "-", "-", "-")
    assert managed_rows.fields(spare, 3.0)["user"] is None
    assert managed_rows.fields(spare, 3.0)["idle"] == 0


def test_long_names_are_cut_in_tables_and_whole_in_json():
    long = Record(
        workspace_id="a",
        key="k",
        tenant=Tenant(user="u" * 1000, agent="\ud800", session=None),
        backend="local",
        place="a.00000000",
        state=State.LIVE,
        created_at=0.0,
        used_at=0.0,
    )
    assert len(managed_rows.cells(long, 0.0)[1]) < 100
    assert managed_rows.cells(long, 0.0)[2] == "\\ud800"
    assert managed_rows.fields(long, 0.0)["user"] == "u" * 1000
    assert json.dumps(managed_rows.fields(long, 0.0)).isascii()
