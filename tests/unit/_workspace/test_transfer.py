"""Files and trees between the host and a workspace."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from isobox import LocalWorkspace, Policy
from isobox.errors import (
    ArchiveError,
    IsoboxError,
    NotRegularFileError,
    PathIsDirectoryError,
    PathMissingError,
    PathNotDirectoryError,
    PolicyDeniedError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture
async def workspace(tmp_path):
    (tmp_path / "inside").mkdir()
    async with LocalWorkspace(tmp_path / "inside") as workspace:
        yield workspace


@pytest.fixture
def inside(tmp_path):
    return tmp_path / "inside"


@pytest.fixture
def host(tmp_path):
    (tmp_path / "host").mkdir()
    return tmp_path / "host"


@pytest.mark.parametrize("size", [0, 1, 1_000_000])
async def test_a_file_goes_and_comes_unchanged(workspace, inside, host, size):
    data = os.urandom(size)
    (host / "f").write_bytes(data)
    (host / "f").chmod(0o4750)
    os.utime(host / "f", (1_000_000_000, 1_000_000_000))
    await workspace.upload(host / "f", "to/f")
    assert (inside / "to/f").read_bytes() == data
    assert stat.S_IMODE((inside / "to/f").stat().st_mode) == 0o750
    await workspace.download("to/f", host / "back")
    assert (host / "back").read_bytes() == data
    assert stat.S_IMODE((host / "back").stat().st_mode) == 0o750
    assert (host / "back").stat().st_mtime == 1_000_000_000


async def test_a_tree_goes_and_comes_unchanged(workspace, inside, host):
    (host / "t/d").mkdir(parents=True)
    (host / "t/d/f").write_text("x")
    (host / "t/l").symlink_to("d/f")
    os.mkfifo(host / "t/fifo")
    await workspace.upload(host / "t", "t")
    assert sorted(os.listdir(inside / "t")) == ["d", "l"]
    await workspace.download("t", host / "back")
    assert (host / "back/l").read_text() == "x"
    assert os.readlink(host / "back/l") == "d/f"


async def test_the_content_of_a_directory_joins_what_is_there(workspace, inside, host):
    (host / "t").mkdir()
    (host / "t/new").touch()
    (inside / "t").mkdir()
    (inside / "t/old").touch()
    await workspace.upload(host / "t", "t")
    assert sorted(os.listdir(inside / "t")) == ["new", "old"]
    (host / "t/mine").touch()
    await workspace.download("t", host / "t")
    assert sorted(os.listdir(host / "t")) == ["mine", "new", "old"]


async def test_a_link_to_a_file_is_uploaded_as_the_file(workspace, inside, host):
    (host / "f").write_text("x")
    (host / "l").symlink_to("f")
    await workspace.upload(host / "l", "l")
    assert not (inside / "l").is_symlink()


async def test_what_the_host_has_not(workspace, host):
    with pytest.raises(PathMissingError):
        await workspace.upload(host / "absent", "x")
    os.mkfifo(host / "fifo")
    with pytest.raises(NotRegularFileError):
        await workspace.upload(host / "fifo", "x")


async def test_what_the_workspace_has_not(workspace, inside, host):
    with pytest.raises(PathMissingError):
        await workspace.download("absent", host / "x")
    os.mkfifo(inside / "fifo")
    with pytest.raises(NotRegularFileError):
        await workspace.download("fifo", host / "x")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(inside / "s"))
        with pytest.raises(NotRegularFileError):
            await workspace.download("s", host / "x")
    assert os.listdir(host) == []


async def test_kinds_that_do_not_fit(workspace, inside, host):
    (inside / "f").touch()
    (inside / "d").mkdir()
    (host / "f").touch()
    (host / "d").mkdir()
    with pytest.raises(PathIsDirectoryError):
        await workspace.download("f", host / "d")
    with pytest.raises(PathNotDirectoryError):
        await workspace.download("d", host / "f")
    (host / "dangling").symlink_to("nothing")
    with pytest.raises(PathNotDirectoryError):
        await workspace.download("d", host / "dangling")
    with pytest.raises(StorageError):
        await workspace.download("f", host / "absent/f")
    with pytest.raises(IsoboxError):
        await workspace.upload(host / "f", "d")


async def test_a_link_of_the_host_is_replaced(workspace, inside, host):
    (inside / "f").write_text("new")
    (host / "kept").write_text("kept")
    (host / "l").symlink_to("kept")
    await workspace.download("f", host / "l")
    assert (host / "kept").read_text() == "kept"
    assert (host / "l").read_text() == "new"


async def test_links_of_the_sandbox_do_not_lead_the_host(workspace, inside, host):
    (host / "secret").write_text("secret")
    (inside / "t").mkdir()
    (inside / "t/l").symlink_to(host / "secret")
    with pytest.raises(IsoboxError):
        await workspace.download("t", host / "t")
    assert not os.path.lexists(host / "t/l")


async def test_what_the_policy_denies_is_not_moved(tmp_path, host):
    (host / "f").touch()
    async with LocalWorkspace(tmp_path, policy=Policy.deny_all()) as workspace:
        with pytest.raises(PolicyDeniedError):
            await workspace.upload(host / "f", "f")
        with pytest.raises(PolicyDeniedError):
            await workspace.download("host/f", host / "g")
    assert os.listdir(host) == ["f"]


async def test_an_error_of_the_one_who_writes_is_his(workspace, inside):
    """What a caller's own iterator raises says nothing about the sandbox."""

    async def body():
        yield b"x"
        raise OSError("mine")

    with pytest.raises(OSError, match="mine") as error:
        await workspace.write("f", body())
    assert not isinstance(error.value, IsoboxError)
    assert os.listdir(inside) == []
    assert (await workspace.run("echo on")).stdout == "on\n"


# -- somebody who changes what is uploaded ----------------------------------------


@contextlib.contextmanager
def changing(change: Callable[[], None]) -> Iterator[None]:
    """Change a tree over and over meanwhile."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            change()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def exchange(name: Path, *others: Path) -> Callable[[], None]:
    """Return what puts each of some things at a name, in turn."""

    def change() -> None:
        for other in others:
            aside = name.with_name("aside")
            os.rename(name, aside)
            os.rename(other, name)
            os.rename(aside, other)

    return change


def contents(folder: Path) -> Iterator[str]:
    for where, _, names in os.walk(folder):
        for path in (Path(where, name) for name in names):
            if not path.is_symlink():
                yield path.read_text()


def flip(name: Path, target: Path) -> Callable[[], None]:
    """Return what makes a file a link and a file again, with nothing between."""
    aside = name.parent.parent / "aside"

    def change() -> None:
        aside.symlink_to(target)
        os.replace(aside, name)
        aside.write_text("harmless")
        os.replace(aside, name)

    return change


@pytest.mark.parametrize("kind", ["file", "directory"])
async def test_an_upload_is_not_led_outside(workspace, inside, host, kind):
    """A link that flips with a file, or a directory, never takes a secret in."""
    (host / "outside").mkdir()
    (host / "outside/canary").write_text("canary")
    tree = host / "tree"
    tree.mkdir()
    if kind == "file":
        (tree / "canary").write_text("harmless")
        change = flip(tree / "canary", host / "outside/canary")
    else:
        (tree / "d").mkdir()
        (tree / "d/canary").write_text("harmless")
        (tree / "link").symlink_to(host / "outside")
        change = exchange(tree / "d", tree / "link")
    uploads, until = 0, time.monotonic() + 3
    with changing(change):
        while time.monotonic() < until:
            await workspace.upload(tree, f"up{uploads}")
            assert set(contents(inside / f"up{uploads}")) <= {"harmless"}
            uploads += 1
    assert uploads > 5


async def test_a_fifo_that_takes_a_files_place_stops_nobody(workspace, host):
    tree = host / "tree"
    tree.mkdir()
    (tree / "f").write_text("x")
    os.mkfifo(tree / "fifo")
    with anyio.fail_after(30), changing(exchange(tree / "f", tree / "fifo")):
        for _ in range(30):
            await workspace.upload(tree, "tree")
            with contextlib.suppress(NotRegularFileError, PathMissingError):
                await workspace.upload(tree / "f", "f")


async def test_a_fifo_that_was_a_file_a_moment_ago(workspace, host, monkeypatch):
    """The race at its worst: what is asked first says that it is a file."""
    (host / "t").mkdir()
    (host / "f").touch()
    os.mkfifo(host / "t/fifo")
    ask = os.stat

    def lying(path, **options):
        fifo = os.fspath(path).endswith("fifo") if not isinstance(path, int) else False
        return ask(host / "f") if fifo else ask(path, **options)

    monkeypatch.setattr("isobox._workspace.archive.os.stat", lying)
    with anyio.fail_after(10):
        await workspace.upload(host / "t", "t")
        with pytest.raises(NotRegularFileError):
            await workspace.upload(host / "t/fifo", "f")


async def test_a_slow_disk_holds_nobody_else_up(workspace, host, monkeypatch):
    (host / "f").write_text("x")
    reading, go_on = threading.Event(), threading.Event()
    read = os.read

    def slow(fd: int, size: int) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            reading.set()
            assert go_on.wait(20)
        return read(fd, size)

    monkeypatch.setattr("isobox._workspace.archive.os.read", slow)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(workspace.upload, host / "f", "f")
        await anyio.to_thread.run_sync(reading.wait)
        assert (await workspace.run("echo on")).stdout == "on\n"
        go_on.set()
    assert await workspace.read_bytes("f") == b"x"


async def test_protected_names_come_into_an_empty_directory_only(
    workspace, inside, host
):
    (inside / "t/.git/hooks").mkdir(parents=True)
    (inside / "t/.git/hooks/x").touch()
    await workspace.download("t", host / "new")
    assert (host / "new/.git/hooks/x").exists()
    (host / "mine").mkdir()
    (host / "mine/file").touch()
    with pytest.raises(ArchiveError, match=r"\.git"):
        await workspace.download("t", host / "mine")
    assert os.listdir(host / "mine") == ["file"]


async def test_a_file_that_takes_no_room_inside_takes_none_outside(
    workspace, inside, host, tmp_path, monkeypatch
):
    size = 64 << 20
    (inside / "t").mkdir()
    with open(inside / "t/f", "wb") as file:
        file.truncate(size)
    await workspace.download("t/f", host / "f")
    await workspace.download("t", host / "t")
    monkeypatch.setattr(tempfile, "tempdir", str(host))
    saved = await workspace.snapshot()
    snapshot = next(host.glob("isobox-snapshots-*/*"))
    for path in (host / "f", host / "t/f", snapshot):
        assert path.stat().st_size >= size
        assert path.stat().st_blocks * 512 < 1 << 20
    (inside / "t/f").unlink()
    await workspace.restore(saved)
    assert (inside / "t/f").stat().st_size == size
