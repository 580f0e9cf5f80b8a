"""Finding files by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import PathMissingError
from isobox.testing.contract._base import SOON, Contract

if TYPE_CHECKING:
    from isobox import WorkspaceBase

_FILES = (
    "a.py",
    "b.py",
    "c.txt",
    "src/d.py",
    "src/e.txt",
    "src/deep/er/f.py",
    "src/deep/g.md",
)


async def _found(
    workspace: WorkspaceBase, pattern: str, *, path: str = "."
) -> list[str]:
    listing = await workspace.glob(pattern, path=path)
    return [e.path.removeprefix(f"{workspace.root}/") for e in listing.entries]


class GlobContract(Contract):
    """Finding files by their names."""

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("*.py", ["a.py", "b.py"]),
            ("**/*.py", ["a.py", "b.py", "src/d.py", "src/deep/er/f.py"]),
            ("?.py", ["a.py", "b.py"]),
            ("[ab].py", ["a.py", "b.py"]),
            ("[!a].py", ["b.py"]),
            ("[a-c].*", ["a.py", "b.py", "c.txt"]),
            ("*.{py,txt}", ["a.py", "b.py", "c.txt"]),
            ("src/*", ["src/d.py", "src/deep", "src/e.txt"]),
            ("src/**/*.py", ["src/d.py", "src/deep/er/f.py"]),
            ("src/{d,e}.*", ["src/d.py", "src/e.txt"]),
            ("**/er/*", ["src/deep/er/f.py"]),
            ("a.py", ["a.py"]),
            ("A.PY", []),
            ("*.none", []),
            ("src/deep/**", ["src/deep/er", "src/deep/er/f.py", "src/deep/g.md"]),
        ],
    )
    async def test_a_pattern_finds(
        self, workspace: WorkspaceBase, pattern: str, expected: list[str]
    ) -> None:
        for name in _FILES:
            await workspace.write(name, b"")
        assert await _found(workspace, pattern) == expected

    async def test_a_pattern_is_relative_to_the_path(
        self, workspace: WorkspaceBase
    ) -> None:
        for name in _FILES:
            await workspace.write(name, b"")
        assert await _found(workspace, "*.py", path="src") == ["src/d.py"]

    async def test_a_dot_is_a_dot(self, workspace: WorkspaceBase) -> None:
        await workspace.write("axpy", b"")
        assert await _found(workspace, "a.py") == []

    async def test_a_name_with_a_newline_is_found(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("two\nlines.py", b"")
        assert await _found(workspace, "*.py") == ["two\nlines.py"]

    async def test_a_missing_path_is_an_error_to_glob(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PathMissingError):
            await workspace.glob("*", path="missing")

    async def test_a_limit_cuts_to_glob(self, workspace: WorkspaceBase) -> None:
        for name in _FILES:
            await workspace.write(name, b"")
        listing = await workspace.glob("**/*.py", limit=2)
        assert len(listing.entries) == 2
        assert listing.truncated

    async def test_a_circle_of_links_ends_to_glob(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/file.py", b"")
        await workspace.run(["ln", "-s", "..", "directory/up"], check=True)
        with anyio.fail_after(SOON):
            assert await _found(workspace, "**/*.py") == ["directory/file.py"]

    async def test_entries_are_described(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file.py", b"12345")
        entry = (await workspace.glob("*.py")).entries[0]
        assert (entry.kind, entry.size) == ("file", 5)
