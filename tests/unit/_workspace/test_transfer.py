"""Files and trees between the host and a workspace."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from isobox import LocalWorkspace, Policy
from isobox.errors import (
    IsoboxError,
    NotRegularFileError,
    PathIsDirectoryError,
    PathMissingError,
    PathNotDirectoryError,
    PolicyDeniedError,
    StorageError,
)

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


@pytest.mark.xfail(
    reason="the Errors layer takes every OSError for the sandbox's", strict=True
)
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
