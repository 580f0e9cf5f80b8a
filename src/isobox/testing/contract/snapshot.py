"""Saving, restoring and copying the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from isobox.abc import SnapshotRef
from isobox.errors import InvalidArgumentError, UnsupportedError
from isobox.testing.contract._base import Contract, names

if TYPE_CHECKING:
    from isobox import WorkspaceBase

_snapshot = pytest.mark.requires("snapshot")
_NOT_UTF8 = b"\xff\xfe".decode("utf-8", "surrogateescape")


class SnapshotContract(Contract):
    """Saving, restoring and copying the files."""

    async def test_without_snapshots_one_is_refused(
        self, workspace: WorkspaceBase
    ) -> None:
        if "snapshot" in self.capabilities:
            pytest.skip("the backend has snapshots")
        with pytest.raises(UnsupportedError):
            await workspace.snapshot()

    @_snapshot
    async def test_restore_brings_contents_back(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"old")
        saved = await workspace.snapshot()
        await workspace.write("file", b"new")
        await workspace.restore(saved)
        assert await workspace.read_bytes("file") == b"old"

    @_snapshot
    async def test_restore_brings_what_was_removed_back(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/file", b"old")
        saved = await workspace.snapshot()
        await workspace.remove("directory", recursive=True)
        await workspace.restore(saved)
        assert await workspace.read_bytes("directory/file") == b"old"

    @_snapshot
    async def test_restore_removes_what_came_since(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("old", b"")
        saved = await workspace.snapshot()
        await workspace.write("new", b"")
        await workspace.write("directory/new", b"")
        await workspace.restore(saved)
        assert await names(workspace) == ["old"]

    @_snapshot
    async def test_restore_keeps_modes_links_and_empty_directories(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("tool", b"", mode=0o750)
        await workspace.run(["ln", "-s", "tool", "link"], check=True)
        await workspace.run(["mkdir", "empty"], check=True)
        saved = await workspace.snapshot()
        for name in ("tool", "link"):
            await workspace.remove(name)
        await workspace.remove("empty", recursive=True)
        await workspace.restore(saved)
        assert (await workspace.stat("tool")).mode == 0o750
        assert (await workspace.stat("link", follow=False)).target == "tool"
        assert (await workspace.stat("empty")).is_directory

    @_snapshot
    async def test_restore_keeps_links_that_lead_anywhere(
        self, workspace: WorkspaceBase
    ) -> None:
        targets = {"absolute": "/usr/bin/env", "up": "../x", "dangling": "nowhere"}
        for name, target in targets.items():
            await workspace.run(["ln", "-s", target, name], check=True)
        saved = await workspace.snapshot()
        for name in targets:
            await workspace.remove(name)
        await workspace.restore(saved)
        for name, target in targets.items():
            assert (await workspace.stat(name, follow=False)).target == target

    @_snapshot
    async def test_restore_keeps_odd_names(self, workspace: WorkspaceBase) -> None:
        odd = ["-rf", "two\nlines", _NOT_UTF8]
        for name in odd:
            await workspace.write(name, b"content")
        saved = await workspace.snapshot()
        for name in odd:
            await workspace.remove(name)
        await workspace.restore(saved)
        assert sorted(await names(workspace)) == sorted(odd)

    @_snapshot
    async def test_restore_keeps_times(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"")
        await workspace.run(["touch", "-d", "@1000000000", "file"], check=True)
        saved = await workspace.snapshot()
        await workspace.write("file", b"new")
        await workspace.restore(saved)
        assert (await workspace.stat("file")).mtime_ns == 10**18

    @_snapshot
    async def test_a_snapshot_can_be_restored_again(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"old")
        saved = await workspace.snapshot()
        for _ in range(2):
            await workspace.write("file", b"new")
            await workspace.restore(saved)
            assert await workspace.read_bytes("file") == b"old"

    @_snapshot
    async def test_snapshots_are_apart(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"one")
        one = await workspace.snapshot()
        await workspace.write("file", b"two")
        two = await workspace.snapshot()
        assert one.id != two.id
        await workspace.restore(one)
        assert await workspace.read_bytes("file") == b"one"
        await workspace.restore(two)
        assert await workspace.read_bytes("file") == b"two"

    @_snapshot
    async def test_a_snapshot_is_not_in_the_workspace(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"")
        await workspace.snapshot()
        assert await names(workspace) == ["file"]

    @_snapshot
    async def test_a_snapshot_of_nothing_empties(
        self, workspace: WorkspaceBase
    ) -> None:
        saved = await workspace.snapshot()
        await workspace.write("file", b"")
        await workspace.restore(saved)
        assert await names(workspace) == []

    @_snapshot
    async def test_commands_work_after_a_restore(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"old")
        await workspace.restore(await workspace.snapshot())
        assert (await workspace.run(["cat", "file"])).stdout == "old"
        assert (await workspace.run(["pwd"])).stdout == f"{workspace.root}\n"

    @_snapshot
    async def test_an_unknown_snapshot_is_refused(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"x")
        for name in ("no-such-snapshot", "../x", "/etc", ""):
            with pytest.raises(InvalidArgumentError):
                await workspace.restore(SnapshotRef(name, 0, 0.0))
        assert await workspace.read_bytes("file") == b"x"

    async def test_a_fork_has_the_files(self, workspace: WorkspaceBase) -> None:
        await workspace.write("deep/file", b"x")
        await workspace.write("tool", b"", mode=0o755)
        async with await workspace.fork() as twin:
            assert await twin.read_bytes("deep/file") == b"x"
            assert (await twin.stat("tool")).mode == 0o755

    async def test_a_fork_goes_its_own_way(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"x")
        async with await workspace.fork() as twin:
            await twin.write("file", b"y")
            await twin.write("new", b"")
            assert await workspace.read_bytes("file") == b"x"
            await workspace.write("file", b"z")
            assert await twin.read_bytes("file") == b"y"
        assert await names(workspace) == ["file"]

    async def test_a_fork_has_links_that_lead_anywhere(
        self, workspace: WorkspaceBase
    ) -> None:
        targets = {"absolute": "/usr/bin/env", "up": "../x", "dangling": "nowhere"}
        for name, target in targets.items():
            await workspace.run(["ln", "-s", target, name], check=True)
        async with await workspace.fork() as twin:
            for name, target in targets.items():
                assert (await twin.stat(name, follow=False)).target == target

    async def test_a_fork_has_an_id_of_its_own(self, workspace: WorkspaceBase) -> None:
        async with await workspace.fork() as twin:
            assert twin.workspace_id != workspace.workspace_id

    async def test_a_fork_of_a_fork_works(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"x")
        async with await workspace.fork() as twin, await twin.fork() as third:
            assert await third.read_bytes("file") == b"x"
