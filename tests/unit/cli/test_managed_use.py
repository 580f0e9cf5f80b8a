"""`isobox exec`, `cp`, `close`, `rm` and `gc`: workspaces beside their service."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from functools import partial

import anyio
import anyio.to_thread
import pytest
from tests.unit.cli.command_line import FOUND, PATIENCE

from isobox import LocalWorkspace
from isobox.manager import State, WorkspaceManager

#: A service that says `ready`, and ends when its standard input does.
SERVICE = (
    FOUND
    + """
import asyncio
from isobox import LocalWorkspace
from isobox.manager import WorkspaceManager

async def main(user, leased):
    async with WorkspaceManager(LocalWorkspace, basedir="workspaces") as manager:
        async with manager.lease(user, "coder", "s") as ws:
            await ws.write("notes", "of the service")
            if leased:
                print("ready", flush=True)
                await asyncio.to_thread(sys.stdin.read)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main(sys.argv[1], sys.argv[2] == "leased"))
"""
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("ISOBOX_STORE", "ISOBOX_BASEDIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def basedir(tmp_path):
    return tmp_path / "workspaces"


@pytest.fixture
def made(basedir):
    """Makes a workspace, closed, with a file; returns its id."""

    def make(user, **options):
        async def work():
            async with WorkspaceManager(
                LocalWorkspace, basedir=basedir, **options
            ) as manager:
                ws = await manager.get_workspace(user, "coder", "s")
                await ws.write("notes", f"of {user}")
                return ws.workspace_id

        return anyio.run(work)

    return make


def states(basedir):
    async def work():
        async with WorkspaceManager(LocalWorkspace, basedir=basedir) as manager:
            found = await manager.list_workspaces()
            return {each.workspace_id: each.state for each in found}

    return anyio.run(work)


@contextmanager
def service(tmp_path, user, *, leased=False):
    program = [sys.executable, "-c", SERVICE, user, "leased" if leased else "open"]
    process = subprocess.Popen(
        program, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        process.stdout.close()


# -- exec ----------------------------------------------------------------------


def test_exec_runs_in_the_files_and_exits_as_the_command(isobox, made, basedir):
    workspace = made("ada")
    done = isobox("exec", workspace, "--", "cat", "notes", "-", stdin=b" and more")
    assert (done.returncode, done.stdout) == (0, b"of ada and more")
    assert isobox("exec", workspace, "sh", "-c", "exit 7").returncode == 7
    assert states(basedir) == {workspace: State.CLOSED}


def test_exec_takes_variables_a_time_and_a_policy(isobox, made):
    workspace = made("ada")
    shown = isobox("exec", "--env", "WORD=hello", workspace, "printenv", "WORD")
    late = isobox("exec", "--timeout", "0.2", workspace, "sleep", "60")
    refused = isobox(
        "exec", "--preset", "read_only", workspace, "sh", "-c", "echo x > notes"
    )
    assert shown.stdout == b"hello\n"
    assert late.returncode == 124
    assert refused.returncode == 125


def test_exec_on_a_terminal_is_on_a_terminal(made, terminal):
    on = terminal("exec", made("ada"), "sh", "-c", "tty; read line; echo got $line")
    on.expect(b"/dev/pts/")
    on.type(b"this\n")
    on.expect(b"got this")
    assert on.end() == 0


def test_exec_is_in_the_audit_log(isobox, made):
    workspace = made("ada")
    isobox("exec", workspace, "echo", "from the command line")
    shown = isobox("logs", workspace)
    assert b"from the command line" in shown.stdout


def test_exec_makes_no_audit_log_where_the_service_keeps_none(isobox, made):
    workspace = made("ada", audit=False)
    assert isobox("exec", workspace, "true").returncode == 0
    assert isobox("logs", workspace).returncode == 125


def test_exec_waits_for_the_service(isobox, made, tmp_path):
    with service(tmp_path, "ada"):
        (row,) = isobox("ls", "--json").stdout.splitlines()
        done = isobox("exec", json.loads(row)["id"], "cat", "notes")
    assert (done.returncode, done.stdout) == (0, b"of the service")


def test_exec_says_who_keeps_it(isobox, made, tmp_path):
    with service(tmp_path, "ada", leased=True) as process:
        (row,) = isobox("ls", "--json").stdout.splitlines()
        done = isobox("exec", "--wait", "0.5", json.loads(row)["id"], "cat", "notes")
    assert done.returncode == 125
    assert f":{process.pid}:".encode() in done.stderr


@pytest.mark.parametrize(
    "arguments", [("exec",), ("exec", "an-id"), ("exec", "--nonsense", "an-id", "true")]
)
def test_exec_that_is_not_understood_is_not_a_command(isobox, arguments):
    assert isobox(*arguments).returncode == 125


def test_exec_in_nobodys(isobox, made):
    made("ada")
    done = isobox("exec", "ada-coder-aaaaaaaaaaaaaaaaaaaaaaaaaa", "true")
    assert done.returncode == 125
    assert b"no workspace is called" in done.stderr


# -- cp ------------------------------------------------------------------------


def test_cp_out_and_in(isobox, made, tmp_path):
    workspace = made("ada")
    assert isobox("cp", f"{workspace}:notes", "here").returncode == 0
    assert (tmp_path / "here").read_text() == "of ada"
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "file").write_text("deep")
    assert isobox("cp", "tree", f"{workspace}:copy").returncode == 0
    done = isobox("exec", workspace, "cat", "copy/below/file")
    assert done.stdout == b"deep"


def test_cp_into_a_directory_keeps_the_name(isobox, made, tmp_path):
    workspace = made("ada")
    (tmp_path / "out").mkdir()
    (tmp_path / "file").write_text("from outside")
    assert isobox("cp", f"{workspace}:notes", "out").returncode == 0
    assert isobox("cp", "file", f"{workspace}:").returncode == 0
    assert (tmp_path / "out" / "notes").read_text() == "of ada"
    assert isobox("exec", workspace, "cat", "file").stdout == b"from outside"


@pytest.mark.parametrize(
    ("source", "target"),
    [("a", "b"), ("x:a", "y:b"), ("./x:a", "b"), ("/x:a", "y/b:c")],
)
def test_cp_needs_one_side_inside(isobox, made, source, target):
    made("ada")
    done = isobox("cp", source, target)
    assert done.returncode == 125
    assert b"ID:PATH" in done.stderr


@pytest.mark.parametrize("source", ["..", "sub/../..", "sub/.."])
def test_cp_never_goes_above_the_target(isobox, made, tmp_path, source):
    workspace = made("ada")
    (tmp_path / "out" / "deep").mkdir(parents=True)
    assert isobox("exec", workspace, "mkdir", "sub").returncode == 0
    isobox("cp", f"{workspace}:{source}", "out/deep")
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["deep"]


def test_cp_of_nothing(isobox, made):
    done = isobox("cp", f"{made('ada')}:nothing", "here")
    assert done.returncode == 125
    assert b"nothing" in done.stderr


# -- close and rm --------------------------------------------------------------


def test_close_ends_what_a_service_has_open(isobox, tmp_path, basedir):
    with service(tmp_path, "ada"):
        (row,) = isobox("ls", "--json").stdout.splitlines()
        assert json.loads(row)["state"] == "live"
        assert isobox("close", json.loads(row)["id"]).returncode == 0
        (row,) = isobox("ls", "--json").stdout.splitlines()
        assert (json.loads(row)["state"], json.loads(row)["holders"]) == ("closed", [])


def test_close_of_a_closed_one(isobox, made):
    assert isobox("close", made("ada")).returncode == 0


def test_rm_asks(isobox, made, basedir, terminal):
    workspace, other = made("ada"), made("bob")
    refused = terminal("rm", workspace)
    refused.expect(b"of ada / coder / *")
    refused.expect(b"[y/N]")
    refused.type(b"\n")
    assert refused.end() == 1
    assert set(states(basedir)) == {workspace, other}
    agreed = terminal("rm", workspace)
    agreed.expect(b"[y/N]")
    agreed.type(b"y\n")
    assert agreed.end() == 0
    assert set(states(basedir)) == {other}


def test_rm_asks_nobody_where_nobody_is(isobox, made, basedir):
    workspace = made("ada")
    done = isobox("rm", workspace)
    assert done.returncode == 125
    assert b"--yes" in done.stderr
    assert set(states(basedir)) == {workspace}


def test_rm_removes_the_files(isobox, made, basedir):
    workspaces = made("ada"), made("bob")
    assert isobox("rm", "--yes", *workspaces).returncode == 0
    assert states(basedir) == {}
    assert [each for each in os.listdir(basedir) if "coder" in each] == []


def test_rm_of_one_that_is_not_there_removes_none(isobox, made, basedir):
    workspace = made("ada")
    assert isobox("rm", "--yes", workspace, "no-such").returncode == 125
    assert set(states(basedir)) == {workspace}


# -- gc ------------------------------------------------------------------------


def told(done):
    assert done.returncode == 0, done.stderr
    return [
        (each["do"], each["id"]) for each in map(json.loads, done.stdout.splitlines())
    ]


def test_gc_deletes_what_was_closed_for_long(isobox, made, basedir):
    workspace = made("ada")
    assert told(isobox("gc", "--json", "--retention", "3600")) == []
    dry = told(isobox("gc", "--json", "--retention", "0", "--dry-run"))
    assert dry == [("delete", workspace)]
    assert set(states(basedir)) == {workspace}
    assert told(isobox("gc", "--json", "--retention", "0")) == dry
    assert states(basedir) == {}


def test_gc_closes_what_a_dead_process_left(isobox, tmp_path, basedir):
    # A process that dies without a word is dead to the store when its time is over.
    script = (
        FOUND
        + """
import asyncio, os
from isobox import LocalWorkspace
from isobox.manager import WorkspaceManager

async def main():
    manager = WorkspaceManager(
        LocalWorkspace, basedir="workspaces", heartbeat=0.1, holder_timeout=0.3
    )
    await manager.open()
    ws = await manager.get_workspace("ada", "coder", "s")
    print(ws.workspace_id, flush=True)
    os._exit(1)

asyncio.run(main())
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    workspace = done.stdout.strip()
    assert told(isobox("gc", "--json", "--ttl", "3600")) == []
    assert told(isobox("gc", "--json", "--ttl", "0", "--dry-run")) == [
        ("close", workspace)
    ]
    assert told(isobox("gc", "--json", "--ttl", "0")) == [("close", workspace)]
    assert states(basedir) == {workspace: State.CLOSED}


def test_gc_leaves_what_a_living_process_has(isobox, tmp_path):
    with service(tmp_path, "ada", leased=True):
        ends = ("--ttl", "0", "--retention", "0", "--json")
        assert told(isobox("gc", *ends, "--dry-run")) == []
        assert told(isobox("gc", *ends)) == []


def test_gc_rebuilds_a_store_that_was_lost(isobox, made, basedir):
    workspace = made("ada")
    made("bob")
    # A store that knows something else, so that no start rebuilds it.
    with closing(sqlite3.connect(basedir / "manager.db")) as store, store:
        store.execute("DELETE FROM isobox_workspaces WHERE user_id = 'ada'")
    before = set(states(basedir))
    assert workspace not in before
    done = isobox("gc", "--rebuild")
    assert done.returncode == 0
    assert done.stderr == b"isobox: 1 workspace was entered\n"
    assert set(states(basedir)) == before | {workspace}
    assert isobox("exec", workspace, "cat", "notes").stdout == b"of ada"


def test_gc_says_how_many_an_empty_store_has_got(isobox, made, basedir):
    workspaces = {made("ada"), made("bob")}
    for each in basedir.glob("manager.db*"):
        each.unlink()
    done = isobox("gc", "--rebuild")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"isobox: 2 workspaces were entered\n"
    assert set(states(basedir)) == workspaces


def test_gc_does_not_say_what_is_due_after_a_rebuild(isobox, made, basedir):
    made("ada")
    for each in basedir.glob("manager.db*"):
        each.unlink()
    done = isobox("gc", "--rebuild", "--dry-run")
    assert done.returncode == 125
    assert b"run `isobox gc --rebuild` first" in done.stderr
    assert not list(basedir.glob("manager.db*"))


def test_gc_for_docker_needs_no_image(isobox, made, basedir):
    workspace = made("ada")
    assert told(isobox("gc", "--json", "--backend", "docker", "--retention", "0")) == [
        ("delete", workspace)
    ]
    assert states(basedir) == {}


def test_rm_of_a_spare_says_that_it_is_one(isobox, basedir):
    async def work():
        async with WorkspaceManager(
            LocalWorkspace, basedir=basedir, prewarm=1
        ) as manager:
            while not manager.stats().spares:
                await anyio.sleep(0.01)
            (spare,) = await manager.list_workspaces()
            command = partial(isobox, "rm", "--yes", spare.workspace_id)
            return await anyio.to_thread.run_sync(command)

    done = anyio.run(work)
    assert done.returncode == 125
    assert b"is a spare and nobody's yet" in done.stderr


@pytest.mark.parametrize(
    "command", [("rm", "--yes", "ID"), ("exec", "ID", "true"), ("gc",)]
)
def test_another_base_directory_is_refused(isobox, made, basedir, tmp_path, command):
    workspace = made("ada")
    words = [workspace if one == "ID" else one for one in command]
    where = ("--store", str(basedir / "manager.db"), "--basedir", str(tmp_path / "no"))
    for more in ((), ("--dry-run",)) if command == ("gc",) else ((),):
        options = [*more, *where]
        if command == ("gc",):
            options += ["--ttl", "0", "--retention", "0"]
        done = isobox(words[0], *options, *words[1:])
        assert (done.returncode, done.stdout) == (125, b"")
        assert str(basedir).encode() in done.stderr
    assert states(basedir) == {workspace: State.CLOSED}
