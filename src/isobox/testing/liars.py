"""Sandboxes that lie, each in one way: the contract has to catch them all."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import anyio
from typing_extensions import override

from isobox.abc import Captured, Exit, Listing
from isobox.errors import IsoboxError, PathError
from isobox.testing._pipes import Content
from isobox.testing._process import MemoryProcess
from isobox.testing._tree import Node
from isobox.testing.fake import MemorySandbox, MemoryWorkspace

if TYPE_CHECKING:
    from isobox import abc

__all__ = ["LIARS", "Liar"]

_MiB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Liar:
    """A lying sandbox.

    Attributes:
        kind: Its class; the docstring says what the lie is.
        caught_by: Tests of the contract that must fail.
    """

    kind: type[MemorySandbox]
    caught_by: tuple[str, ...]

    def workspace(self) -> type[MemoryWorkspace]:
        """Return a class of workspaces over this sandbox."""

        class LyingWorkspace(MemoryWorkspace):
            kind: ClassVar[type[MemorySandbox]] = self.kind

        return LyingWorkspace


async def _bytes_of(body: abc.Body) -> bytes:
    if isinstance(body, bytes):
        return body
    return b"".join([piece async for piece in body])


class LosesTheEnd(MemorySandbox):
    """Leaves the last byte of every read out."""

    @override
    async def read(self, op: abc.Read, /) -> abc.ByteStream:
        async with await super().read(op) as stream:
            data = await stream.read()
        return Content(data[:-1], self._require)


class CutsWrites(MemorySandbox):
    """Writes the first mebibyte only, and says that it wrote all."""

    @override
    async def write(self, op: abc.Write, /) -> abc.Entry:
        data = await _bytes_of(op.body)
        said = await super().write(replace(op, body=data))
        await super().write(replace(op, body=data[:_MiB], if_match=None))
        return said


class WritesInPlace(MemorySandbox):
    """Empties a file, then fills it piece by piece."""

    @override
    async def write(self, op: abc.Write, /) -> abc.Entry:
        if isinstance(op.body, bytes) or op.if_match is not None:
            return await super().write(op)
        entry = await super().write(replace(op, body=b""))
        written = b""
        async for piece in op.body:
            written += piece
            entry = await super().write(replace(op, body=written))
        return entry


class LeavesDescendants(MemorySandbox):
    """Kills a command, and not what the command started."""

    @override
    async def spawn(self, op: abc.Spawn, /) -> abc.Process:
        process = await super().spawn(op)
        if "sleep" in op.argv:
            await super().spawn(replace(op, timeout=None, idle_timeout=None))
        return process


class _Successful(MemoryProcess):
    @override
    async def wait(self) -> Exit:
        return replace(await super().wait(), exit_code=0, signal=None)


class AlwaysSucceeds(MemorySandbox):
    """Reports a status of 0 for every command."""

    process_kind = _Successful


class SpeaksAsTheProgram(MemorySandbox):
    """Shows its own failure as what a program printed."""

    @override
    async def spawn(self, op: abc.Spawn, /) -> abc.Process:
        try:
            return await super().spawn(op)
        except IsoboxError as error:
            self._lost = False
            return await super().spawn(
                replace(op, argv=("echo", str(error)), cwd=self.root)
            )


class FollowsLinksOutside(MemorySandbox):
    """Reads and writes whatever a link leads to."""

    @override
    async def read(self, op: abc.Read, /) -> abc.ByteStream:
        async with self._call():
            return Content(self.tree.file(op.path).data, self._require)

    @override
    async def write(self, op: abc.Write, /) -> abc.Entry:
        place = self.tree.place(op.path)
        self.tree.put(place.path, Node("file", data=await _bytes_of(op.body)))
        return await super().write(replace(op, path=place.path))


class IgnoresConditions(MemorySandbox):
    """Writes whatever `if_match` says."""

    @override
    async def write(self, op: abc.Write, /) -> abc.Entry:
        return await super().write(replace(op, if_match=None))


class ChecksTooEarly(MemorySandbox):
    """Compares the digest long before it writes."""

    @override
    async def write(self, op: abc.Write, /) -> abc.Entry:
        if op.if_match is None:
            return await super().write(op)
        checked = replace(op, body=self._content(op.path))
        await super().write(checked)
        await anyio.lowlevel.checkpoint()
        return await super().write(replace(op, if_match=None))

    def _content(self, path: str) -> bytes:
        try:
            return self.tree.file(path).data
        except PathError:
            return b""


class ForgetsModes(MemorySandbox):
    """Gives every file that it writes mode 644."""

    @override
    async def write(self, op: abc.Write, /) -> abc.Entry:
        return await super().write(replace(op, mode=0o644))


class ReplacesLinks(MemorySandbox):
    """Puts a file where a link was, instead of writing through it."""

    @override
    async def write(self, op: abc.Write, /) -> abc.Entry:
        place = self.tree.place(op.path, follow=False)
        if place.node is not None and place.node.kind == "symlink":
            self.tree.drop(place.path)
        return await super().write(op)


class MissesEntries(MemorySandbox):
    """Leaves the last entry of a listing out."""

    @override
    async def scan(self, op: abc.Scan, /) -> abc.Listing:
        found = await super().scan(op)
        if op.depth == 0:
            return found
        return Listing(found.entries[:-1], found.truncated)


class _Whole(MemoryProcess):
    @override
    async def wait(self) -> Exit:
        end = await super().wait()
        kept = end.stdout or Captured()
        return replace(end, stdout=Captured(kept.data, b"", len(kept.data)))


class HidesTruncation(MemorySandbox):
    """Says that what it kept of an output is all there was."""

    process_kind = _Whole


class FollowsLinksToRemove(MemorySandbox):
    """Removes what a link leads to."""

    @override
    async def remove(self, op: abc.Remove, /) -> None:
        place = self.tree.place(op.path)
        await super().remove(replace(op, path=place.path))


class LeavesDrafts(MemorySandbox):
    """Leaves a draft beside every file that it could not write."""

    @override
    async def write(self, op: abc.Write, /) -> abc.Entry:
        try:
            return await super().write(op)
        except BaseException:
            self.tree.put(f"{self.root}/.draft", Node("file"))
            raise


class SharesItsFiles(MemorySandbox):
    """Gives every workspace the same files."""

    _shared: ClassVar[list[MemorySandbox]] = []

    def __init__(self, spec: abc.SandboxSpec) -> None:
        super().__init__(spec)
        self._shared.append(self)
        self.tree = self._shared[0].tree


class LeaksTheHost(MemorySandbox):
    """Passes the host's environment to commands."""

    def __init__(self, spec: abc.SandboxSpec) -> None:
        super().__init__(replace(spec, env={**os.environ, **spec.env}))


LIARS = (
    Liar(
        LosesTheEnd,
        ("test_read_gives_what_was_written", "test_fifty_mebibytes_come_back"),
    ),
    Liar(CutsWrites, ("test_every_size_arrives",)),
    Liar(
        WritesInPlace,
        (
            "test_a_reader_sees_the_old_until_the_new_is_whole",
            "test_a_cancelled_write_leaves_the_old_content",
            "test_a_source_that_breaks_changes_nothing",
        ),
    ),
    Liar(
        LeavesDescendants,
        (
            "test_nothing_runs_after_a_timeout",
            "test_nothing_runs_after_a_cancel",
            "test_it_is_gone_when_kill_returns",
        ),
    ),
    Liar(
        AlwaysSucceeds,
        (
            "test_failure_is_a_result",
            "test_a_missing_program_is_127",
            "test_kill_ends_it",
        ),
    ),
    Liar(
        SpeaksAsTheProgram,
        (
            "test_a_missing_cwd_is_an_error",
            "test_after_a_crash_every_call_says_so",
        ),
    ),
    Liar(
        FollowsLinksOutside,
        (
            "test_a_link_does_not_lead_outside",
            "test_a_dangling_link_makes_nothing_outside",
        ),
    ),
    Liar(
        IgnoresConditions,
        (
            "test_if_match_protects_another_content_to_write",
            "test_if_match_of_nothing_protects_an_old_file",
        ),
    ),
    Liar(ChecksTooEarly, ("test_of_many_that_match_one_wins",)),
    Liar(
        ForgetsModes,
        ("test_a_program_stays_executable_to_write", "test_a_mode_is_given"),
    ),
    Liar(
        ReplacesLinks,
        (
            "test_a_link_is_written_through",
            "test_a_dangling_link_is_written_through",
        ),
    ),
    Liar(
        MissesEntries,
        ("test_a_scan_lists_one_level", "test_three_hundred_entries_are_listed"),
    ),
    Liar(
        HidesTruncation,
        (
            "test_a_long_output_is_counted_exactly",
            "test_one_byte_over_the_limit_is_truncated",
        ),
    ),
    Liar(
        FollowsLinksToRemove,
        ("test_a_link_is_removed_and_not_its_target",),
    ),
    Liar(
        LeavesDrafts,
        (
            "test_a_cancelled_write_leaves_no_file",
            "test_if_match_protects_another_content_to_write",
        ),
    ),
    Liar(SharesItsFiles, ("test_two_workspaces_share_no_file",)),
    Liar(LeaksTheHost, ("test_the_host_environment_is_not_passed",)),
)
