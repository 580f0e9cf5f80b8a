"""Removing files and directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from isobox.errors import (
    InvalidArgumentError,
    PathIsDirectoryError,
    PathMissingError,
    PathNotDirectoryError,
    PathOutsideError,
)
from isobox.testing.contract._base import Contract, names

if TYPE_CHECKING:
    from isobox import WorkspaceBase

_DEEP = """
import os
for _ in range(60):
    os.mkdir("d" * 100)
    os.chdir("d" * 100)
"""


class RemoveContract(Contract):
    """Removing files and directories."""

    async def test_a_file_is_removed(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"")
        await workspace.write("other", b"")
        await workspace.remove("file")
        assert await names(workspace) == ["other"]

    async def test_nothing_cannot_be_removed(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(PathMissingError):
            await workspace.remove("missing")
        with pytest.raises(PathMissingError):
            await workspace.remove("missing", recursive=True)

    async def test_below_a_file_is_nothing(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"")
        with pytest.raises(PathNotDirectoryError):
            await workspace.remove("file/below")

    async def test_a_directory_needs_recursive(self, workspace: WorkspaceBase) -> None:
        await workspace.write("directory/file", b"")
        with pytest.raises(PathIsDirectoryError):
            await workspace.remove("directory")
        assert await workspace.exists("directory/file")

    async def test_a_directory_is_removed_with_all_in_it(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/deep/file", b"")
        await workspace.write("directory/file", b"")
        await workspace.remove("directory", recursive=True)
        assert await names(workspace) == []

    async def test_a_file_is_removed_recursively_too(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"")
        await workspace.remove("file", recursive=True)
        assert await names(workspace) == []

    async def test_a_link_is_removed_and_not_its_target(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/file", b"")
        await workspace.run(["ln", "-s", "directory", "link"], check=True)
        await workspace.remove("link")
        assert await names(workspace) == ["directory"]
        assert await workspace.exists("directory/file")

    async def test_a_link_is_removed_recursively_and_not_its_target(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/file", b"")
        await workspace.run(["ln", "-s", "directory", "link"], check=True)
        await workspace.remove("link", recursive=True)
        assert await workspace.exists("directory/file")

    async def test_a_link_within_is_not_followed(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("kept/file", b"")
        await workspace.run(["mkdir", "directory"], check=True)
        await workspace.run(["ln", "-s", "../kept", "directory/link"], check=True)
        await workspace.remove("directory", recursive=True)
        assert await names(workspace, "kept") == ["file"]

    async def test_a_dangling_link_is_removed(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["ln", "-s", "nowhere", "link"], check=True)
        await workspace.remove("link")
        assert await names(workspace) == []

    async def test_a_fifo_is_removed(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["mkfifo", "fifo"], check=True)
        await workspace.remove("fifo")
        assert await names(workspace) == []

    @pytest.mark.parametrize("path", [".", "directory/..", "./."])
    async def test_the_root_is_not_removed(
        self, workspace: WorkspaceBase, path: str
    ) -> None:
        await workspace.write("directory/file", b"")
        with pytest.raises(InvalidArgumentError):
            await workspace.remove(path, recursive=True)
        assert await workspace.exists("directory/file")

    async def test_the_root_by_its_name_is_not_removed(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(InvalidArgumentError):
            await workspace.remove(workspace.root, recursive=True)

    @pytest.mark.parametrize("path", ["/", ".."])
    async def test_above_the_root_is_not_removed(
        self, workspace: WorkspaceBase, path: str
    ) -> None:
        await workspace.write("file", b"")
        with pytest.raises((InvalidArgumentError, PathOutsideError)):
            await workspace.remove(path, recursive=True)
        assert await workspace.exists("file")

    async def test_a_deep_tree_is_removed(self, workspace: WorkspaceBase) -> None:
        await workspace.write("/".join(["d"] * 200) + "/file", b"")
        await workspace.remove("d", recursive=True)
        assert await names(workspace) == []

    @pytest.mark.requires("python3")
    async def test_a_tree_deeper_than_a_path_is_removed(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["python3", "-c", _DEEP], check=True)
        await workspace.remove("d" * 100, recursive=True)
        assert await names(workspace) == []
