"""Describing files and directories."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import InvalidArgumentError, PathMissingError, PathNotDirectoryError
from isobox.testing.contract._base import SOON, Contract, names

if TYPE_CHECKING:
    from isobox import Listing, WorkspaceBase

_MANY = """
import os
os.mkdir("many")
for number in range(10_000):
    open(f"many/{number:05}", "w").close()
"""


def _below(listing: Listing, root: str) -> list[str]:
    return [entry.path.removeprefix(f"{root}/") for entry in listing.entries]


async def _plant(workspace: WorkspaceBase) -> None:
    await workspace.write("a/b/c/deep", b"deep")
    await workspace.write("a/file", b"file")
    await workspace.write("top", b"top")


class ScanContract(Contract):
    """Describing files and directories."""

    async def test_a_scan_lists_one_level(self, workspace: WorkspaceBase) -> None:
        await _plant(workspace)
        listing = await workspace.scan()
        assert _below(listing, workspace.root) == ["a", "top"]
        assert not listing.truncated

    async def test_a_scan_lists_two_levels(self, workspace: WorkspaceBase) -> None:
        await _plant(workspace)
        listing = await workspace.scan(depth=2)
        assert _below(listing, workspace.root) == ["a", "a/b", "a/file", "top"]

    async def test_a_scan_lists_all_levels(self, workspace: WorkspaceBase) -> None:
        await _plant(workspace)
        listing = await workspace.scan(depth=None)
        expected = ["a", "a/b", "a/b/c", "a/b/c/deep", "a/file", "top"]
        assert _below(listing, workspace.root) == expected

    async def test_a_scan_of_depth_0_describes_the_path(
        self, workspace: WorkspaceBase
    ) -> None:
        await _plant(workspace)
        listing = await workspace.scan("a", depth=0)
        assert [entry.path for entry in listing.entries] == [f"{workspace.root}/a"]
        assert listing.entries[0].is_directory

    async def test_a_scan_of_a_directory_below(self, workspace: WorkspaceBase) -> None:
        await _plant(workspace)
        listing = await workspace.scan("a")
        assert _below(listing, workspace.root) == ["a/b", "a/file"]

    async def test_a_scan_is_sorted_by_path(self, workspace: WorkspaceBase) -> None:
        for name in ("b", "a/x", "a-b", "a.b", "B", "ä", "0"):
            await workspace.write(name, b"")
        found = [e.path for e in (await workspace.scan(depth=None)).entries]
        assert found == sorted(found)

    async def test_an_empty_directory_has_no_entries(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["mkdir", "empty"], check=True)
        assert (await workspace.scan("empty")).entries == ()

    async def test_hidden_files_are_listed(self, workspace: WorkspaceBase) -> None:
        await workspace.write(".hidden", b"")
        assert await names(workspace) == [".hidden"]

    async def test_a_missing_path_is_an_error_to_scan(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PathMissingError):
            await workspace.scan("missing")

    async def test_a_file_is_an_error(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"")
        with pytest.raises(PathNotDirectoryError):
            await workspace.scan("file")

    async def test_a_limit_cuts_to_scan(self, workspace: WorkspaceBase) -> None:
        for number in range(10):
            await workspace.write(f"f{number}", b"")
        listing = await workspace.scan(limit=4)
        assert len(listing.entries) == 4
        assert listing.truncated

    async def test_a_limit_that_is_just_enough_does_not_cut_to_scan(
        self, workspace: WorkspaceBase
    ) -> None:
        for number in range(10):
            await workspace.write(f"f{number}", b"")
        listing = await workspace.scan(limit=10)
        assert len(listing.entries) == 10
        assert not listing.truncated

    async def test_a_negative_depth_is_refused(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(InvalidArgumentError, match="depth"):
            await workspace.scan(depth=-1)

    async def test_entries_have_size_mode_and_kind(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"12345", mode=0o640)
        await workspace.run(["mkdir", "directory"], check=True)
        directory, file = (await workspace.scan()).entries
        assert (file.kind, file.size, file.mode) == ("file", 5, 0o640)
        assert file.is_file
        assert directory.kind == "directory"
        assert directory.is_directory
        assert directory.mode & 0o700 == 0o700

    async def test_entries_have_their_time(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"")
        await workspace.run(["touch", "-d", "@1000000000", "file"], check=True)
        entry = (await workspace.scan()).entries[0]
        assert entry.mtime_ns == 10**9 * 10**9
        assert entry.mtime == 1e9

    async def test_links_are_described_and_not_followed(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/file", b"x")
        await workspace.run(["ln", "-s", "directory", "link"], check=True)
        await workspace.run(["ln", "-s", "nowhere", "dangling"], check=True)
        found = {e.name: e for e in (await workspace.scan(depth=None)).entries}
        assert set(found) == {"directory", "file", "link", "dangling"}
        assert (found["link"].kind, found["link"].target) == ("symlink", "directory")
        assert found["dangling"].target == "nowhere"
        assert found["directory"].target is None

    async def test_a_link_to_a_directory_can_be_scanned(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/file", b"x")
        await workspace.run(["ln", "-s", "directory", "link"], check=True)
        assert await names(workspace, "link") == ["file"]

    async def test_a_circle_of_links_ends_to_scan(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["mkdir", "directory"], check=True)
        await workspace.run(["ln", "-s", "..", "directory/up"], check=True)
        with anyio.fail_after(SOON):
            listing = await workspace.scan(depth=None)
        assert _below(listing, workspace.root) == ["directory", "directory/up"]

    async def test_a_fifo_is_described(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["mkfifo", "fifo"], check=True)
        with anyio.fail_after(SOON):
            assert (await workspace.scan(digest=True)).entries[0].kind == "fifo"

    @pytest.mark.requires("python3")
    async def test_a_socket_is_described(self, workspace: WorkspaceBase) -> None:
        script = "import socket as s; s.socket(s.AF_UNIX).bind('socket')"
        await workspace.run(["python3", "-c", script], check=True)
        assert (await workspace.stat("socket")).kind == "socket"

    @pytest.mark.requires("isolated")
    async def test_a_device_is_described(self, workspace: WorkspaceBase) -> None:
        assert (await workspace.stat("/dev/null")).kind == "device"

    async def test_digests_are_computed_if_asked(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"hello")
        await workspace.write("directory/file", b"")
        found = await workspace.scan(depth=None, digest=True)
        digests = {e.path.removeprefix(workspace.root): e.digest for e in found.entries}
        assert digests == {
            "/directory": None,
            "/directory/file": hashlib.sha256(b"").hexdigest(),
            "/file": hashlib.sha256(b"hello").hexdigest(),
        }

    async def test_no_digest_is_computed_unasked(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"hello")
        assert (await workspace.scan()).entries[0].digest is None
        assert (await workspace.stat("file")).digest is None

    @pytest.mark.requires("python3")
    async def test_ten_thousand_entries_are_listed(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["python3", "-c", _MANY], check=True)
        with anyio.fail_after(60):
            listing = await workspace.scan("many")
        found = [entry.name for entry in listing.entries]
        assert found == [f"{number:05}" for number in range(10_000)]

    async def test_three_hundred_entries_are_listed(
        self, workspace: WorkspaceBase
    ) -> None:
        for number in range(300):
            await workspace.write(f"many/{number:05}", b"")
        assert await names(workspace, "many") == [f"{n:05}" for n in range(300)]

    # -- one path -------------------------------------------------------------

    async def test_stat_describes_a_file(self, workspace: WorkspaceBase) -> None:
        await workspace.write("directory/file", b"12345", mode=0o600)
        entry = await workspace.stat("directory/file")
        assert entry.path == f"{workspace.root}/directory/file"
        assert entry.name == "file"
        assert (entry.kind, entry.size, entry.mode) == ("file", 5, 0o600)

    async def test_stat_describes_the_root(self, workspace: WorkspaceBase) -> None:
        entry = await workspace.stat(".")
        assert entry.path == workspace.root
        assert entry.is_directory

    async def test_stat_follows_a_link(self, workspace: WorkspaceBase) -> None:
        await workspace.write("target", b"12345")
        await workspace.run(["ln", "-s", "target", "link"], check=True)
        entry = await workspace.stat("link")
        assert (entry.kind, entry.size) == ("file", 5)

    async def test_stat_describes_a_link_if_asked(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["ln", "-s", "target", "link"], check=True)
        entry = await workspace.stat("link", follow=False)
        assert (entry.kind, entry.target) == ("symlink", "target")
        assert entry.path == f"{workspace.root}/link"

    async def test_stat_computes_a_digest(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"hello")
        entry = await workspace.stat("file", digest=True)
        assert entry.digest == hashlib.sha256(b"hello").hexdigest()

    async def test_stat_of_nothing_is_an_error(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(PathMissingError):
            await workspace.stat("missing")

    async def test_stat_of_a_dangling_link_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["ln", "-s", "nowhere", "link"], check=True)
        with pytest.raises(PathMissingError):
            await workspace.stat("link")

    async def test_stat_below_a_file_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"")
        with pytest.raises(PathNotDirectoryError):
            await workspace.stat("file/below")

    async def test_exists_tells(self, workspace: WorkspaceBase) -> None:
        await workspace.write("directory/file", b"")
        await workspace.run(["ln", "-s", "nowhere", "dangling"], check=True)
        assert await workspace.exists("directory")
        assert await workspace.exists("directory/file")
        assert await workspace.exists("dangling")
        assert await workspace.exists(".")
        assert not await workspace.exists("missing")
        assert not await workspace.exists("missing/file")
        assert not await workspace.exists("directory/file/below")
