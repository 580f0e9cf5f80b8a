"""Editing files."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import (
    ConflictError,
    EditMismatchError,
    InvalidArgumentError,
    NotRegularFileError,
    PathIsDirectoryError,
    PathMissingError,
)
from isobox.testing.contract._base import SOON, Contract, names

if TYPE_CHECKING:
    from isobox import WorkspaceBase


class EditContract(Contract):
    """Editing files."""

    async def test_the_text_is_replaced(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "one two three\n")
        edited = await workspace.edit("file", "two", "2")
        assert await workspace.read_text("file") == "one 2 three\n"
        assert edited.replacements == 1

    async def test_edit_describes_the_new_file(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "one")
        entry = (await workspace.edit("file", "one", "three")).entry
        assert entry.path == f"{workspace.root}/file"
        assert entry.size == 5
        assert entry.digest == hashlib.sha256(b"three").hexdigest()

    async def test_absent_text_is_an_error(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "one")
        with pytest.raises(EditMismatchError):
            await workspace.edit("file", "two", "2")
        assert await workspace.read_text("file") == "one"

    async def test_text_that_stands_twice_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "one one")
        with pytest.raises(EditMismatchError):
            await workspace.edit("file", "one", "1")
        assert await workspace.read_text("file") == "one one"

    async def test_each_line_where_a_text_stands_is_named_once(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "one one\n")
        with pytest.raises(EditMismatchError, match=r"stands 2 times .* \(line 1\);"):
            await workspace.edit("file", "one", "1")
        await workspace.write("file", "one one\n\none\n")
        with pytest.raises(EditMismatchError, match=r"3 times .* \(lines 1, 3\);"):
            await workspace.edit("file", "one", "1")

    async def test_the_same_again_is_no_edit(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "one")
        with pytest.raises(InvalidArgumentError, match="are the same"):
            await workspace.edit("file", "one", "one")

    async def test_every_place_is_replaced_if_asked(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "one one one")
        edited = await workspace.edit("file", "one", "1", replace_all=True)
        assert await workspace.read_text("file") == "1 1 1"
        assert edited.replacements == 3

    async def test_absent_text_is_an_error_for_all_too(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "one")
        with pytest.raises(EditMismatchError):
            await workspace.edit("file", "two", "2", replace_all=True)

    async def test_empty_text_is_refused(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "one")
        with pytest.raises(InvalidArgumentError):
            await workspace.edit("file", "", "x")

    async def test_text_is_removed_by_an_empty_one(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "one two")
        await workspace.edit("file", " two", "")
        assert await workspace.read_text("file") == "one"

    async def test_text_is_no_pattern(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", r"a.c abc [x] $1")
        await workspace.edit("file", "a.c", r"\1 \g<0> $&")
        assert await workspace.read_text("file") == r"\1 \g<0> $& abc [x] $1"

    async def test_the_new_text_may_hold_the_old(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "a a")
        edited = await workspace.edit("file", "a", "aa", replace_all=True)
        assert await workspace.read_text("file") == "aa aa"
        assert edited.replacements == 2

    async def test_text_of_several_lines(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "one\ntwo\r\nthree\n")
        await workspace.edit("file", "one\ntwo\r\n", "1\r\n")
        assert await workspace.read_bytes("file") == b"1\r\nthree\n"

    async def test_what_is_no_text_around_it_stays(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"\xff\x00one\xfe")
        await workspace.edit("file", "one", "grüße")
        assert await workspace.read_bytes("file") == b"\xff\x00gr\xc3\xbc\xc3\x9fe\xfe"

    async def test_a_program_stays_executable_to_edit(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("tool", "#!/bin/echo one\n", mode=0o755)
        assert (await workspace.edit("tool", "one", "two")).entry.mode == 0o755

    async def test_a_link_is_edited_through(self, workspace: WorkspaceBase) -> None:
        await workspace.write("target", "one")
        await workspace.run(["ln", "-s", "target", "link"], check=True)
        await workspace.edit("link", "one", "two")
        assert await workspace.read_text("target") == "two"
        assert (await workspace.stat("link", follow=False)).kind == "symlink"

    async def test_if_match_lets_the_named_content_be_edited(
        self, workspace: WorkspaceBase
    ) -> None:
        old = await workspace.write("file", "one")
        await workspace.edit("file", "one", "two", if_match=old.digest)
        assert await workspace.read_text("file") == "two"

    async def test_if_match_protects_another_content_to_edit(
        self, workspace: WorkspaceBase
    ) -> None:
        old = await workspace.write("file", "one")
        await workspace.write("file", "one more")
        with pytest.raises(ConflictError):
            await workspace.edit("file", "one", "two", if_match=old.digest)
        assert await workspace.read_text("file") == "one more"

    async def test_a_missing_file_is_an_error_to_edit(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PathMissingError):
            await workspace.edit("missing", "a", "b")
        assert await names(workspace) == []

    async def test_a_directory_is_an_error_to_edit(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["mkdir", "directory"], check=True)
        with pytest.raises(PathIsDirectoryError):
            await workspace.edit("directory", "a", "b")

    async def test_a_fifo_is_an_error_to_edit(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["mkfifo", "fifo"], check=True)
        with anyio.fail_after(SOON), pytest.raises(NotRegularFileError):
            await workspace.edit("fifo", "a", "b")

    async def test_a_large_file_is_edited(self, workspace: WorkspaceBase) -> None:
        padding = "x" * 3_000_000
        await workspace.write("file", f"{padding}one{padding}")
        await workspace.edit("file", "one", "two")
        assert await workspace.read_text("file") == f"{padding}two{padding}"

    async def test_an_edit_leaves_no_other_file(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "one")
        await workspace.edit("file", "one", "two")
        with pytest.raises(EditMismatchError):
            await workspace.edit("file", "one", "two")
        assert await names(workspace) == ["file"]
