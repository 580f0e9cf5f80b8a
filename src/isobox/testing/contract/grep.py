"""Finding lines in files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import InvalidArgumentError, PathMissingError
from isobox.testing.contract._base import SLACK, SOON, Contract

if TYPE_CHECKING:
    from isobox import Matches, WorkspaceBase

_TEXT = "alpha\nbeta one\ngamma\nBETA two\ndelta.\n"


def _lines(found: Matches) -> list[tuple[int, str]]:
    return [(match.line, match.text) for match in found.matches]


class GrepContract(Contract):
    """Finding lines in files."""

    async def test_a_line_is_found(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", _TEXT)
        found = await workspace.grep("beta")
        assert _lines(found) == [(2, "beta one")]
        assert found.matches[0].path == f"{workspace.root}/file"
        assert not found.truncated

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            (r"^b\w+", [(2, "beta one")]),
            (r"a$", [(1, "alpha"), (3, "gamma")]),
            (r"one|two", [(2, "beta one"), (4, "BETA two")]),
            (r"^delta\.$", [(5, "delta.")]),
            (r"^$", []),
            ("missing", []),
        ],
    )
    async def test_an_expression_finds(
        self, workspace: WorkspaceBase, pattern: str, expected: list[tuple[int, str]]
    ) -> None:
        await workspace.write("file", _TEXT)
        assert _lines(await workspace.grep(pattern)) == expected

    async def test_plain_text_is_no_expression(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "a.c\nabc\n(\n")
        assert _lines(await workspace.grep("a.c", literal=True)) == [(1, "a.c")]
        assert _lines(await workspace.grep("(", literal=True)) == [(3, "(")]

    async def test_case_can_be_ignored(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", _TEXT)
        found = await workspace.grep("beta", ignore_case=True)
        assert _lines(found) == [(2, "beta one"), (4, "BETA two")]

    async def test_context_surrounds_a_match(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", _TEXT)
        match = (await workspace.grep("gamma", context=1)).matches[0]
        assert (match.before, match.after) == (("beta one",), ("BETA two",))

    async def test_context_ends_with_the_file(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", _TEXT)
        first = (await workspace.grep("alpha", context=2)).matches[0]
        assert (first.before, first.after) == ((), ("beta one", "gamma"))
        last = (await workspace.grep("delta", context=2)).matches[0]
        assert (last.before, last.after) == (("gamma", "BETA two"), ())

    async def test_files_are_found_below_the_path_in_order(
        self, workspace: WorkspaceBase
    ) -> None:
        for name in ("b/file", "a/deep/file", "c"):
            await workspace.write(name, "needle\n")
        found = await workspace.grep("needle")
        below = [m.path.removeprefix(f"{workspace.root}/") for m in found.matches]
        assert below == ["a/deep/file", "b/file", "c"]
        assert found.files == 3

    async def test_one_file_can_be_searched(self, workspace: WorkspaceBase) -> None:
        await workspace.write("one", "needle\n")
        await workspace.write("two", "needle\n")
        found = await workspace.grep("needle", path="two")
        assert [match.path for match in found.matches] == [f"{workspace.root}/two"]

    async def test_a_glob_chooses_files(self, workspace: WorkspaceBase) -> None:
        for name in ("a.py", "b.txt", "d/c.py"):
            await workspace.write(name, "needle\n")
        found = await workspace.grep("needle", glob="**/*.py")
        below = [m.path.removeprefix(f"{workspace.root}/") for m in found.matches]
        assert below == ["a.py", "d/c.py"]

    async def test_a_limit_cuts_to_grep(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "needle\n" * 100)
        found = await workspace.grep("needle", limit=10)
        assert len(found.matches) == 10
        assert found.truncated
        assert not found.timed_out

    async def test_a_limit_that_is_just_enough_does_not_cut_to_grep(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "needle\n" * 10)
        found = await workspace.grep("needle", limit=10)
        assert len(found.matches) == 10
        assert not found.truncated

    async def test_binary_files_are_passed_over(self, workspace: WorkspaceBase) -> None:
        await workspace.write("binary", b"needle\n\0\n")
        await workspace.write("text", "needle\n")
        found = await workspace.grep("needle")
        assert [match.path for match in found.matches] == [f"{workspace.root}/text"]

    async def test_bytes_that_are_no_text_are_replaced(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"needle \xff\n")
        assert _lines(await workspace.grep("needle")) == [(1, "needle \ufffd")]

    async def test_line_ends_are_not_part_of_a_line(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "needle\r\nneedle\nneedle")
        found = await workspace.grep("needle$")
        assert _lines(found) == [(1, "needle"), (2, "needle"), (3, "needle")]

    async def test_a_bad_expression_is_refused(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(InvalidArgumentError):
            await workspace.grep("(")

    async def test_a_missing_path_is_an_error_to_grep(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PathMissingError):
            await workspace.grep("needle", path="missing")

    async def test_links_are_not_followed(self, workspace: WorkspaceBase) -> None:
        await workspace.write("directory/file", "needle\n")
        await workspace.run(["ln", "-s", "..", "directory/up"], check=True)
        with anyio.fail_after(SOON):
            assert len((await workspace.grep("needle")).matches) == 1

    async def test_a_fifo_hangs_nothing(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["mkfifo", "a-fifo"], check=True)
        await workspace.write("file", "needle\n")
        with anyio.fail_after(SOON):
            assert len((await workspace.grep("needle")).matches) == 1

    async def test_an_unreadable_file_loses_no_other(
        self, workspace: WorkspaceBase
    ) -> None:
        if (await workspace.run(["id", "-u"])).stdout == "0\n":
            pytest.skip("root may read everything")
        await workspace.write("a-secret", "needle\n", mode=0o000)
        await workspace.write("file", "needle\n")
        found = await workspace.grep("needle")
        assert [match.path for match in found.matches] == [f"{workspace.root}/file"]
        assert found.skipped == (f"{workspace.root}/a-secret",)

    @pytest.mark.requires("bounded_regex")
    async def test_no_expression_can_hang(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "a" * 60 + "b\n")
        started = time.monotonic()
        found = await workspace.grep("(a+)+$", timeout=1.0)
        assert time.monotonic() - started <= 1.0 + SLACK
        assert found.truncated
        assert found.timed_out

    @pytest.mark.requires("bounded_regex")
    async def test_an_expression_that_hangs_delays_no_other(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "a" * 60 + "b\n")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: workspace.grep("(a+)+$", timeout=3.0))
            await anyio.sleep(0.3)
            started = time.monotonic()
            assert (await workspace.run(["echo", "hi"])).stdout == "hi\n"
            assert time.monotonic() - started <= 2.0

    async def test_a_large_file_is_searched(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "hay\n" * 200_000 + "needle\n")
        assert _lines(await workspace.grep("needle")) == [(200_001, "needle")]
