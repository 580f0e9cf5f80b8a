"""The blocking facade says the same as the asynchronous classes."""

from __future__ import annotations

import gc
import inspect
import os
import re
import signal
import socket
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import isobox
from isobox import abc, errors, sync
from isobox._workspace.expose import Exposed
from isobox._workspace.forward import Forward
from isobox.manager import WorkspaceManager
from isobox.manager.records import State
from isobox.testing.fake import MemoryWorkspace

PAIRS = [
    (isobox.WorkspaceBase, sync.WorkspaceBase),
    (isobox.LocalWorkspace, sync.LocalWorkspace),
    (isobox.BubblewrapWorkspace, sync.BubblewrapWorkspace),
    (isobox.DockerWorkspace, sync.DockerWorkspace),
    (isobox.GVisorWorkspace, sync.GVisorWorkspace),
    (isobox.SeatbeltWorkspace, sync.SeatbeltWorkspace),
    (WorkspaceManager, sync.WorkspaceManager),
    (isobox.Process, sync.Process),
    (isobox.Shell, sync.Shell),
    (isobox.Tool, sync.Tool),
    (isobox.Mcp, sync.Mcp),
    (Forward, sync.Forward),
    (Exposed, sync.Exposed),
    (abc.ByteStream, sync.ByteStream),
    (abc.Connection, sync.Connection),
]
RENAMED = {
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
}
# The waiting classes wrap what the others build: only workspaces are built by users.
CONSTRUCTED = {
    isobox.LocalWorkspace,
    isobox.BubblewrapWorkspace,
    isobox.DockerWorkspace,
    isobox.GVisorWorkspace,
    isobox.SeatbeltWorkspace,
    WorkspaceManager,
}


def public(kind):
    for name, member in inspect.getmembers(kind):
        if name in RENAMED or not name.startswith("_"):
            yield name, member
    if kind in CONSTRUCTED:
        yield "__init__", kind.__init__


def members():
    for waiting, blocking in PAIRS:
        for name, member in public(waiting):
            if inspect.isfunction(member) or isinstance(member, property):
                yield pytest.param(
                    member, blocking, name, id=f"{waiting.__name__}.{name}"
                )


def blocking_annotation(annotation):
    """The annotation without the waiting."""
    if not isinstance(annotation, str):
        return annotation
    text = re.sub(r"\bAsync(Iterator|Iterable|Generator)\b", r"\1", annotation)
    text = text.replace("WorkspaceBase | base.WorkspaceBase", "WorkspaceBase")
    text = text.replace("ManagedOptions", "Options")
    return re.sub(r"\bAwaitable\[(.*)\]", r"\1", text)


def described(function):
    signature = inspect.signature(function)
    parameters = [
        (p.name, p.kind, p.default, blocking_annotation(p.annotation))
        for p in signature.parameters.values()
    ]
    return parameters, blocking_annotation(signature.return_annotation)


@pytest.mark.parametrize(("member", "blocking", "name"), [*members()])
def test_member_has_a_blocking_twin(member, blocking, name):
    twin = inspect.getattr_static(blocking, RENAMED.get(name, name), None)
    assert twin is not None, f"{blocking.__name__} lacks {name}"
    if isinstance(member, property):
        assert isinstance(twin, property)
        assert described(member.fget) == described(twin.fget)
    else:
        assert described(member) == described(twin)


@pytest.mark.parametrize(
    ("waiting", "blocking"), PAIRS, ids=[b.__name__ for _, b in PAIRS]
)
def test_attributes_have_blocking_twins(waiting, blocking):
    declared = {
        name
        for kind in waiting.__mro__
        for name in inspect.get_annotations(kind)
        if not name.startswith("_")
    }
    held = "\n".join(
        inspect.getsource(kind) for kind in blocking.__mro__ if kind is not object
    )
    for name in declared:
        assert f"self.{name} = " in held or hasattr(blocking, name), name


@pytest.mark.parametrize("blocking", [b for _, b in PAIRS], ids=lambda b: b.__name__)
def test_facade_adds_nothing(blocking):
    waiting = next(w for w, b in PAIRS if b is blocking)
    known = {RENAMED.get(name, name) for name, _ in public(waiting)}
    known |= {
        name for kind in waiting.__mro__ for name in inspect.get_annotations(kind)
    }
    known |= {"workspace_id"} if issubclass(blocking, sync.WorkspaceBase) else set()
    added = {name for name in dir(blocking) if not name.startswith("_")} - known
    assert added == set()


def test_every_workspace_has_a_blocking_twin():
    kinds = {
        name
        for name in isobox.__all__
        if isinstance(kind := getattr(isobox, name), type)
        and issubclass(kind, isobox.WorkspaceBase)
    }
    assert kinds == {name for name in sync.__all__ if name.endswith("Workspace")} | {
        "WorkspaceBase"
    }


def test_everything_public_is_in_all():
    assert {blocking.__name__ for _, blocking in PAIRS} | {"Body"} == set(sync.__all__)


# -- behaviour, over the backend in memory -----------------------------------


def workspace(**options):
    return sync.WorkspaceBase(MemoryWorkspace(**options))


def loop_threads():
    return [t for t in threading.enumerate() if "portal" in t.name]


def test_run_and_files():
    with workspace() as ws:
        assert ws.run(["echo", "hello"]).stdout == "hello\n"
        entry = ws.write("notes/a.txt", "text")
        assert entry.path == f"{ws.root}/notes/a.txt"
        assert ws.read_text("notes/a.txt") == "text"
        assert ws.edit("notes/a.txt", "text", "more").replacements == 1
        assert [e.name for e in ws.scan("notes").entries] == ["a.txt"]
        ws.remove("notes", recursive=True)
        assert not ws.exists("notes")


def test_write_takes_pieces_as_they_arrive():
    def pieces():
        for number in range(5):
            yield b"%d" % number

    with workspace() as ws:
        ws.write("digits", pieces())
        assert ws.read_bytes("digits") == b"01234"


def test_error_in_the_pieces_reaches_the_caller():
    def pieces():
        yield b"first"
        raise ZeroDivisionError

    with workspace() as ws:
        with pytest.raises(ZeroDivisionError):
            ws.write("digits", pieces())
        assert not ws.exists("digits")


def test_process_streams_both_ways():
    with workspace() as ws, ws.start(["cat"], stdin=True) as process:
        ended = threading.Event()
        process.on_end(lambda _: ended.set())
        process.write(b"one")
        assert process.stdout.receive() == b"one"
        process.write(b"two")
        process.write_eof()
        assert b"".join(process) == b"two"
        assert process.wait().exit_code == 0
        assert ended.wait(5)


def test_attach_finds_the_process():
    with workspace() as ws, ws.start(["sleep", "60"]) as process:
        again = ws.attach(process.id)
        again.kill()
        assert process.wait().signal == "SIGKILL"


def test_closed_workspace_says_so():
    ws = workspace()
    with pytest.raises(errors.WorkspaceClosedError):
        ws.run(["true"])
    with ws:
        pass
    with pytest.raises(errors.WorkspaceClosedError):
        ws.read_bytes("a")
    ws.close()


def test_reset_and_use_again():
    ws = workspace()
    with ws:
        ws.write("a", "1")
        ws.reset()
        assert ws.run(["true"]).ok
    with ws:
        assert ws.run(["true"]).ok
    assert loop_threads() == []


def test_loop_lives_as_long_as_a_workspace_is_open():
    assert loop_threads() == []
    first, second = workspace(), workspace()
    with first:
        with second:
            assert len(loop_threads()) == 1
        assert first.run(["true"]).ok
        assert len(loop_threads()) == 1
    assert loop_threads() == []


def test_failed_initialize_leaves_no_loop():
    class Failing(MemoryWorkspace):
        async def initialize(self):
            raise errors.BackendUnavailableError("not here")

    with pytest.raises(errors.BackendUnavailableError):
        sync.WorkspaceBase(Failing()).initialize()
    assert loop_threads() == []


def test_many_threads_share_one_workspace():
    with workspace() as ws, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: ws.run(["echo", str(n)]).stdout, range(40)))
    assert results == [f"{n}\n" for n in range(40)]


def test_fork_is_open_and_independent():
    with workspace() as ws:
        ws.write("a", "1")
        twin = ws.fork()
        assert type(twin) is type(ws)
    with twin:
        assert twin.read_text("a") == "1"
    assert loop_threads() == []


def test_interrupt_cancels_the_call():
    def interrupt():
        started.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def on_signal(*_):
        raise KeyboardInterrupt

    started = threading.Event()
    before = signal.signal(signal.SIGUSR1, on_signal)
    helper = threading.Thread(target=interrupt)
    helper.start()
    sink = Starting(started)
    try:
        with workspace(audit=sink) as ws:
            with pytest.raises(KeyboardInterrupt):
                ws.run(["sleep", "600"])
            assert ws.run(["true"]).ok
    finally:
        helper.join()
        signal.signal(signal.SIGUSR1, before)


class Starting:
    """An audit sink that tells when a command begins."""

    def __init__(self, started):
        self._started = started

    def put(self, record):
        if record.get("op") == "spawn":
            self._started.set()


# -- behaviour, over real processes -------------------------------------------


def test_shell_keeps_its_state(tmp_path):
    with sync.LocalWorkspace(tmp_path) as ws:
        with ws.shell() as shell:
            assert shell.run("cd / && X=1").ok
            assert shell.run("echo $X; pwd").stdout == "1\n/\n"
            assert not shell.fresh
            shell.restart()
            assert shell.run("echo $X").stdout == "\n"
        assert ws.run("echo $Y", session_id="other").ok


def test_forward_carries_a_connection(tmp_path):
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); c, _ = s.accept(); "
        "c.sendall(c.recv(99).upper()); c.close()"
    )
    with (
        sync.LocalWorkspace(tmp_path) as ws,
        ws.start(["python3", "-c", server]) as process,
        ws.forward(int(process.stdout.receive())) as opened,
        socket.create_connection((opened.host, opened.port), timeout=10) as link,
    ):
        link.sendall(b"hello")
        assert link.recv(99) == b"HELLO"


def test_upload_and_download(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.write_text("x")
    with sync.LocalWorkspace(inside) as ws:
        ws.upload(outside, "copy")
        ws.download("copy", tmp_path / "again")
    assert (tmp_path / "again").read_text() == "x"


def test_process_outlived_by_nothing(tmp_path):
    with sync.LocalWorkspace(tmp_path) as ws:
        process = ws.start(["sleep", "600"])
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    process.close()


# -- managers ------------------------------------------------------------------


@pytest.mark.parametrize("kind", [sync.LocalWorkspace, isobox.LocalWorkspace])
def test_a_manager_gives_blocking_workspaces(tmp_path, kind):
    with sync.WorkspaceManager(kind, basedir=tmp_path / "w") as manager:
        workspace = manager.get_workspace("ada", "coder", "monday")
        assert isinstance(workspace, sync.LocalWorkspace)
        workspace.write("notes", "text")
        with manager.lease("ada", "coder", "tuesday") as leased:
            assert leased.workspace_id == workspace.workspace_id
            assert leased.run(["cat", "notes"]).stdout == "text"
            assert manager.stats().leased == 1
        (record,) = manager.list_workspaces("ada")
        assert record.state is State.LIVE
        assert manager.close_workspace(record.workspace_id, user_id="ada")
        manager.delete_workspace(record.workspace_id)
        assert manager.list_workspaces() == []
    assert loop_threads() == []


def test_a_manager_gives_one_object_for_a_workspace(tmp_path):
    with sync.WorkspaceManager(MemoryWorkspace, basedir=tmp_path / "w") as manager:
        workspace = manager.get_workspace("ada", "coder", "monday")
        with manager.lease("ada", "coder", "tuesday") as leased:
            assert leased is workspace
        assert manager.get_workspace("ada", "coder", "monday") is workspace
        manager.close_workspace(workspace.workspace_id)
        for use in (workspace.initialize, workspace.reset, workspace.__enter__):
            with pytest.raises(errors.WorkspaceClosedError, match="get_workspace"):
                use()
        with pytest.raises(errors.ConflictError, match="open already"):
            manager.open()
        assert manager.get_workspace("ada", "coder", "monday") is not workspace
        gone = weakref.ref(workspace)
        del workspace, leased, use
        gc.collect()
        assert gone() is None
    with pytest.raises(errors.WorkspaceClosedError, match="a `with` block"):
        manager.get_workspace("ada", "coder", "monday")
    assert loop_threads() == []


def test_many_threads_get_one_workspace(tmp_path):
    with sync.WorkspaceManager(MemoryWorkspace, basedir=tmp_path / "w") as manager:
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(
                lambda n: manager.get_workspace("ada", "coder", f"s{n}").workspace_id,
                range(16),
            )
            assert len(set(found)) == 1
        assert manager.stats().counters["created"] == 1
    assert loop_threads() == []


def test_a_manager_of_a_class_that_only_drives_another(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="name that one"):
        sync.WorkspaceManager(sync.WorkspaceBase, basedir=tmp_path)


def test_a_lease_ends_with_an_error(tmp_path):
    with sync.WorkspaceManager(MemoryWorkspace, basedir=tmp_path / "w") as manager:
        with pytest.raises(KeyError), manager.lease("ada", "coder", "s"):
            raise KeyError
        assert manager.stats().leased == 0
