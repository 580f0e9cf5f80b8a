"""Files between the host and the workspace."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from isobox.errors import ArchiveError, PathMissingError
from isobox.testing.contract._base import Contract, names

if TYPE_CHECKING:
    from pathlib import Path

    from isobox import WorkspaceBase

MiB = 1024 * 1024
_OLD = 1_000_000_000
_NOT_UTF8 = b"\xff\xfe".decode("utf-8", "surrogateescape")


def _plant(top: Path) -> None:
    (top / "deep" / "er").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "file").write_bytes(b"file")
    (top / "deep" / "er" / "leaf").write_bytes(b"leaf")
    (top / "tool").write_bytes(b"#!/bin/echo\n")
    (top / "tool").chmod(0o755)
    (top / "link").symlink_to("file")
    os.utime(top / "file", (_OLD, _OLD))


class TransferContract(Contract):
    """Files between the host and the workspace."""

    # -- upload ---------------------------------------------------------------

    async def test_a_file_is_uploaded(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_bytes(b"content")
        await workspace.upload(tmp_path / "file", "there")
        assert await workspace.read_bytes("there") == b"content"

    async def test_an_uploaded_file_keeps_mode_and_time(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        (tmp_path / "tool").write_bytes(b"")
        (tmp_path / "tool").chmod(0o750)
        os.utime(tmp_path / "tool", (_OLD, _OLD))
        await workspace.upload(tmp_path / "tool", "tool")
        entry = await workspace.stat("tool")
        assert entry.mode == 0o750
        assert entry.mtime_ns == _OLD * 10**9

    async def test_an_upload_replaces_a_file(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_bytes(b"new")
        await workspace.write("there", b"old content")
        await workspace.upload(tmp_path / "file", "there")
        assert await workspace.read_bytes("there") == b"new"

    async def test_an_upload_makes_directories(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_bytes(b"content")
        await workspace.upload(str(tmp_path / "file"), "a/b/there")
        assert await workspace.read_bytes("a/b/there") == b"content"

    async def test_a_directory_is_uploaded(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        _plant(tmp_path)
        await workspace.upload(tmp_path, "there")
        listing = await workspace.scan("there", depth=None)
        prefix = f"{workspace.root}/there/"
        assert [entry.path.removeprefix(prefix) for entry in listing.entries] == [
            "deep",
            "deep/er",
            "deep/er/leaf",
            "empty",
            "file",
            "link",
            "tool",
        ]
        assert await workspace.read_bytes("there/deep/er/leaf") == b"leaf"

    async def test_an_uploaded_directory_keeps_modes_times_and_links(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        _plant(tmp_path)
        await workspace.upload(tmp_path, "there")
        assert (await workspace.stat("there/tool")).mode == 0o755
        assert (await workspace.stat("there/file")).mtime_ns == _OLD * 10**9
        link = await workspace.stat("there/link", follow=False)
        assert (link.kind, link.target) == ("symlink", "file")

    async def test_a_directory_is_uploaded_into_the_root(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        _plant(tmp_path)
        await workspace.upload(tmp_path, ".")
        assert await workspace.read_bytes("deep/er/leaf") == b"leaf"

    async def test_an_uploaded_directory_leaves_what_else_is_there(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        (tmp_path / "new").write_bytes(b"new")
        await workspace.write("there/old", b"old")
        await workspace.upload(tmp_path, "there")
        assert await names(workspace, "there") == ["new", "old"]

    async def test_an_upload_of_nothing_is_an_error(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        with pytest.raises(PathMissingError):
            await workspace.upload(tmp_path / "missing", "there")
        assert await names(workspace) == []

    async def test_thirty_mebibytes_are_uploaded(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        data = os.urandom(30 * MiB)
        (tmp_path / "file").write_bytes(data)
        await workspace.upload(tmp_path / "file", "there")
        entry = await workspace.stat("there", digest=True)
        assert entry.digest == hashlib.sha256(data).hexdigest()

    # -- download -------------------------------------------------------------

    async def test_a_file_is_downloaded(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.write("file", b"content")
        await workspace.download("file", tmp_path / "here")
        assert (tmp_path / "here").read_bytes() == b"content"

    async def test_a_downloaded_file_keeps_mode_and_time(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.write("tool", b"", mode=0o755)
        await workspace.run(["touch", "-d", f"@{_OLD}", "tool"], check=True)
        await workspace.download("tool", tmp_path / "tool")
        status = (tmp_path / "tool").stat()
        assert status.st_mode & 0o777 == 0o755
        assert status.st_mtime == _OLD

    async def test_a_download_replaces_a_file(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        (tmp_path / "here").write_bytes(b"old content")
        await workspace.write("file", b"new")
        await workspace.download("file", tmp_path / "here")
        assert (tmp_path / "here").read_bytes() == b"new"

    async def test_a_directory_is_downloaded(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.write("tree/deep/leaf", b"leaf")
        await workspace.write("tree/tool", b"", mode=0o755)
        await workspace.run(["mkdir", "tree/empty"], check=True)
        await workspace.run(["ln", "-s", "tool", "tree/link"], check=True)
        await workspace.download("tree", tmp_path / "here")
        here = tmp_path / "here"
        assert (here / "deep" / "leaf").read_bytes() == b"leaf"
        assert (here / "tool").stat().st_mode & 0o777 == 0o755
        assert (here / "empty").is_dir()
        assert os.readlink(here / "link") == "tool"

    async def test_the_root_is_downloaded(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.write("deep/leaf", b"leaf")
        await workspace.download(".", tmp_path / "here")
        assert (tmp_path / "here" / "deep" / "leaf").read_bytes() == b"leaf"

    async def test_a_download_of_nothing_is_an_error(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        with pytest.raises(PathMissingError):
            await workspace.download("missing", tmp_path / "here")
        assert not (tmp_path / "here").exists()

    async def test_thirty_mebibytes_are_downloaded(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        data = os.urandom(30 * MiB)
        await workspace.write("file", data)
        await workspace.download("file", tmp_path / "here")
        assert (tmp_path / "here").read_bytes() == data

    @pytest.mark.parametrize("name", ["two\nlines", "-rf", "x" * 255, _NOT_UTF8])
    async def test_odd_names_go_there_and_back(
        self, workspace: WorkspaceBase, tmp_path: Path, name: str
    ) -> None:
        (tmp_path / "there").mkdir()
        (tmp_path / "there" / name).write_bytes(b"content")
        await workspace.upload(tmp_path / "there", "tree")
        assert await names(workspace, "tree") == [name]
        await workspace.download("tree", tmp_path / "back")
        assert (tmp_path / "back" / name).read_bytes() == b"content"

    # -- what must not reach the host -----------------------------------------

    @pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", ".."])
    async def test_a_link_that_leads_outside_is_not_made(
        self, workspace: WorkspaceBase, tmp_path: Path, target: str
    ) -> None:
        await workspace.run(["mkdir", "tree"], check=True)
        await workspace.run(["ln", "-s", target, "tree/link"], check=True)
        with pytest.raises(ArchiveError):
            await workspace.download("tree", tmp_path / "here")
        assert not os.path.lexists(tmp_path / "here" / "link")

    async def test_a_fifo_stays_inside(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.write("tree/file", b"content")
        await workspace.run(["mkfifo", "tree/fifo"], check=True)
        await workspace.download("tree", tmp_path / "here")
        assert os.listdir(tmp_path / "here") == ["file"]

    @pytest.mark.requires("posix_shell")
    async def test_set_id_bits_stay_inside(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.write("tree/tool", b"", mode=0o755)
        result = await workspace.run(["chmod", "6755", "tree/tool"])
        if not result.ok:
            pytest.skip("the sandbox lets nobody set the bits")
        await workspace.download("tree", tmp_path / "here")
        assert (tmp_path / "here" / "tool").stat().st_mode & 0o7777 == 0o755

    async def test_a_download_belongs_to_who_asked(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.write("tree/file", b"content")
        await workspace.download("tree", tmp_path / "here")
        assert (tmp_path / "here" / "file").stat().st_uid == os.geteuid()

    async def test_a_download_follows_no_link_that_waits_on_the_host(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        (tmp_path / "kept").write_bytes(b"kept")
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "file").symlink_to(tmp_path / "kept")
        await workspace.write("tree/file", b"content")
        with contextlib.suppress(ArchiveError, OSError):
            await workspace.download("tree", tmp_path / "here")
        assert (tmp_path / "kept").read_bytes() == b"kept"
