"""What `run` keeps of an output."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from isobox.errors import InvalidArgumentError
from isobox.testing.contract._base import GRACE, Contract, names

if TYPE_CHECKING:
    from isobox import WorkspaceBase

MiB = 1024 * 1024
_NUMBERS = "".join(f"{number}\n" for number in range(1, 10_001)).encode()


class OutputContract(Contract):
    """What `run` keeps of an output."""

    async def test_output_is_exact(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run(["seq", "1", "10000"])
        assert result.stdout_bytes == _NUMBERS

    async def test_output_that_is_not_text_is_kept(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["printf", r"a\377\376\000b\r\n"])
        assert result.stdout_bytes == b"a\xff\xfe\x00b\r\n"
        assert result.stdout == "a\ufffd\ufffd\x00b\r\n"

    async def test_errors_are_apart_from_output(self, workspace: WorkspaceBase) -> None:
        await workspace.write("here", "text")
        result = await workspace.run(["cat", "here", "missing"])
        assert result.stdout == "text"
        assert "missing" in result.stderr
        assert result.exit_code == 1

    async def test_a_long_output_keeps_head_and_tail(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["seq", "1", "10000"], output_limit=1000)
        head, tail = result.output.head, result.output.tail
        assert 998 <= len(head) + len(tail) <= 1000
        assert abs(len(head) - len(tail)) <= 2
        assert _NUMBERS.startswith(head)
        assert _NUMBERS.endswith(tail)

    async def test_a_long_output_is_counted_exactly(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["seq", "1", "10000"], output_limit=1000)
        assert result.truncated
        assert result.stdout_total == len(_NUMBERS)
        assert f"{result.output.omitted} bytes omitted" in result.stdout

    async def test_output_of_just_the_limit_is_whole(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["printf", "%s", "x" * 1000], output_limit=1000)
        assert not result.truncated
        assert result.stdout_bytes == b"x" * 1000

    async def test_one_byte_over_the_limit_is_truncated(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["printf", "%s", "x" * 1001], output_limit=1000)
        assert result.truncated
        assert result.stdout_total == 1001
        assert result.output.omitted >= 1

    async def test_a_limit_of_nothing_counts_all(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["seq", "1", "10000"], output_limit=0)
        assert result.stdout_bytes == b""
        assert result.stdout_total == len(_NUMBERS)

    async def test_a_negative_limit_is_refused(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(InvalidArgumentError, match="output_limit"):
            await workspace.run(["true"], output_limit=-1)

    async def test_a_character_cut_in_two_is_no_error(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["printf", "%s", "世" * 999], output_limit=1000)
        assert result.stdout.startswith("世世")
        assert result.stdout.endswith("世世")

    async def test_output_below_the_default_limit_is_whole(
        self, workspace: WorkspaceBase
    ) -> None:
        size = 5 * MiB
        result = await workspace.run(["head", "-c", str(size), "/dev/zero"])
        assert not result.truncated
        digest = hashlib.sha256(result.stdout_bytes).digest()
        assert digest == hashlib.sha256(bytes(size)).digest()

    async def test_fifty_mebibytes_of_output_are_counted(
        self, workspace: WorkspaceBase
    ) -> None:
        size = 50 * MiB
        result = await workspace.run(["head", "-c", str(size), "/dev/zero"])
        assert result.stdout_total == size
        assert result.truncated

    async def test_output_that_never_ends_is_cut_by_the_timeout(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(["yes"], timeout=1.0, output_limit=10_000)
        assert result.timed_out
        assert result.duration <= 1.0 + GRACE
        assert result.stdout_total > 100_000
        assert len(result.stdout_bytes) <= 10_000
        assert set(result.stdout_bytes) == set(b"y\n")
        kept = len(result.output.head) + len(result.output.tail)
        assert result.output.omitted == result.stdout_total - kept

    @pytest.mark.requires("posix_shell")
    async def test_both_outputs_are_read_at_once(
        self, workspace: WorkspaceBase
    ) -> None:
        script = "for i in 1 2 3 4 5; do seq 1 20000; seq 1 20000 >&2; done"
        result = await workspace.run(script, timeout=60)
        expected = "".join(f"{n}\n" for n in range(1, 20_001)) * 5
        assert result.stdout == expected
        assert result.stderr == expected

    async def test_a_spool_has_the_whole_output(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run(
            ["seq", "1", "10000"], output_limit=100, spool="full.txt"
        )
        assert result.truncated
        assert result.spool == f"{workspace.root}/full.txt"
        assert await workspace.read_bytes("full.txt") == _NUMBERS

    async def test_a_spool_has_the_errors_too(self, workspace: WorkspaceBase) -> None:
        await workspace.write("here", "text\n")
        result = await workspace.run(["cat", "here", "missing"], spool="full.txt")
        full = await workspace.read_text("full.txt")
        assert sorted(full.splitlines()) == sorted(
            (result.stdout + result.stderr).splitlines()
        )

    async def test_a_spool_has_what_came_before_a_timeout(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run(
            ["yes"], timeout=0.3, output_limit=10, spool="full.txt"
        )
        assert (await workspace.stat("full.txt")).size == result.stdout_total

    async def test_a_run_leaves_no_file(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["seq", "1", "10000"], output_limit=10)
        assert await names(workspace) == []
