"""Writing files."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox import Limits
from isobox.errors import (
    ConflictError,
    NotRegularFileError,
    PathError,
    PathIsDirectoryError,
    PathNotDirectoryError,
    PathOutsideError,
    StorageError,
)
from isobox.testing.contract._base import SOON, Contract, Factory, names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isobox import WorkspaceBase

MiB = 1024 * 1024


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        await anyio.lowlevel.checkpoint()
        yield piece


async def _breaking() -> AsyncIterator[bytes]:
    yield b"half"
    raise RuntimeError("the source broke")


class FilesWriteContract(Contract):
    """Writing files."""

    async def test_write_describes_what_it_made(self, workspace: WorkspaceBase) -> None:
        entry = await workspace.write("file", b"hello")
        assert entry.path == f"{workspace.root}/file"
        assert entry.kind == "file"
        assert entry.size == 5
        assert entry.digest == _digest(b"hello")

    async def test_text_is_written_as_utf_8(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "grüße\r\n")
        assert await workspace.read_bytes("file") == "grüße\r\n".encode()

    @pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, MiB, 50 * MiB])
    async def test_every_size_arrives(
        self, workspace: WorkspaceBase, size: int
    ) -> None:
        data = (bytes(range(251)) * (size // 251 + 1))[:size]
        entry = await workspace.write("file", data)
        assert (entry.size, entry.digest) == (size, _digest(data))
        result = await workspace.run(["sha256sum", "file"], check=True)
        assert result.stdout.split()[0] == _digest(data)
        assert _digest(await workspace.read_bytes("file")) == _digest(data)

    async def test_a_shorter_content_replaces_all(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"long content")
        await workspace.write("file", b"short")
        assert await workspace.read_bytes("file") == b"short"

    async def test_missing_directories_are_made(self, workspace: WorkspaceBase) -> None:
        await workspace.write("a/b/c/file", b"x")
        assert await workspace.read_bytes("a/b/c/file") == b"x"

    @pytest.mark.requires("streamed_body")
    async def test_pieces_are_joined(self, workspace: WorkspaceBase) -> None:
        pieces = [b"one", b"", b"two" * 100_000, b"three"]
        entry = await workspace.write("file", _pieces(*pieces))
        assert entry.digest == _digest(b"".join(pieces))
        assert await workspace.read_bytes("file") == b"".join(pieces)

    @pytest.mark.requires("streamed_body")
    async def test_no_pieces_make_an_empty_file(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", _pieces())
        assert await workspace.read_bytes("file") == b""

    @pytest.mark.requires("streamed_body")
    async def test_a_source_that_breaks_changes_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"old")
        with pytest.raises(RuntimeError, match="the source broke"):
            await workspace.write("file", _breaking())
        assert await workspace.read_bytes("file") == b"old"
        assert await names(workspace) == ["file"]

    @pytest.mark.requires("streamed_body")
    async def test_a_reader_sees_the_old_until_the_new_is_whole(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"old")
        seen: list[bytes] = []

        async def watched() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield b"new" * 100_000
                seen.append(await workspace.read_bytes("file"))

        await workspace.write("file", watched())
        assert seen == [b"old"] * 5
        assert await workspace.read_bytes("file") == b"new" * 500_000

    # -- mode -----------------------------------------------------------------

    async def test_a_new_file_has_mode_644(self, workspace: WorkspaceBase) -> None:
        assert (await workspace.write("file", b"")).mode == 0o644

    @pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o700, 0o666, 0o444])
    async def test_a_mode_is_given(self, workspace: WorkspaceBase, mode: int) -> None:
        assert (await workspace.write("file", b"", mode=mode)).mode == mode
        assert (await workspace.stat("file")).mode == mode

    async def test_a_mode_changes_an_old_file(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"", mode=0o644)
        await workspace.write("file", b"", mode=0o755)
        assert (await workspace.stat("file")).mode == 0o755

    async def test_an_old_file_keeps_its_mode(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"old", mode=0o640)
        assert (await workspace.write("file", b"new")).mode == 0o640

    async def test_a_program_stays_executable_to_write(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("tool", "#!/bin/echo one\n", mode=0o755)
        await workspace.write("tool", "#!/bin/echo two\n")
        assert (await workspace.stat("tool")).mode == 0o755
        assert (await workspace.run(["./tool"])).stdout == "two ./tool\n"

    async def test_a_mode_that_a_command_set_is_kept(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("tool", b"old")
        await workspace.run(["chmod", "750", "tool"], check=True)
        await workspace.write("tool", b"new")
        assert (await workspace.stat("tool")).mode == 0o750

    @pytest.mark.requires("posix_shell")
    async def test_the_owner_of_a_file_can_use_it(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("d/file", b"one\n")
        await workspace.run("echo two >> d/file && touch d/new", check=True)
        assert await workspace.read_bytes("d/file") == b"one\ntwo\n"

    # -- links ----------------------------------------------------------------

    async def test_a_link_is_written_through(self, workspace: WorkspaceBase) -> None:
        await workspace.write("target", b"old")
        await workspace.run(["ln", "-s", "target", "link"], check=True)
        await workspace.write("link", b"new")
        assert await workspace.read_bytes("target") == b"new"
        assert (await workspace.stat("link", follow=False)).kind == "symlink"

    async def test_a_link_to_another_directory_is_written_through(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/target", b"old")
        await workspace.run(["ln", "-s", "directory/target", "link"], check=True)
        await workspace.write("link", b"new")
        assert await workspace.read_bytes("directory/target") == b"new"
        assert await names(workspace, "directory") == ["target"]

    async def test_a_linked_directory_is_written_into(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/old", b"x")
        await workspace.run(["ln", "-s", "directory", "link"], check=True)
        await workspace.write("link/new", b"x")
        assert await names(workspace, "directory") == ["new", "old"]

    async def test_a_link_keeps_the_mode_of_its_target(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("target", b"old", mode=0o750)
        await workspace.run(["ln", "-s", "target", "link"], check=True)
        await workspace.write("link", b"new")
        assert (await workspace.stat("target")).mode == 0o750

    async def test_a_dangling_link_is_written_through(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["ln", "-s", "target", "link"], check=True)
        await workspace.write("link", b"new")
        assert await workspace.read_bytes("target") == b"new"
        assert (await workspace.stat("link", follow=False)).kind == "symlink"

    # -- refusals -------------------------------------------------------------

    async def test_a_directory_is_an_error_to_write(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["mkdir", "directory"], check=True)
        with pytest.raises(PathIsDirectoryError):
            await workspace.write("directory", b"x")

    async def test_the_root_is_an_error_to_write(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PathIsDirectoryError):
            await workspace.write(".", b"x")

    async def test_a_file_on_the_way_is_an_error_to_write(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"x")
        with pytest.raises(PathNotDirectoryError):
            await workspace.write("file/below", b"x")
        assert await workspace.read_bytes("file") == b"x"

    async def test_a_fifo_is_an_error_to_write(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["mkfifo", "fifo"], check=True)
        with anyio.fail_after(SOON), pytest.raises(NotRegularFileError):
            await workspace.write("fifo", b"x")
        assert (await workspace.stat("fifo")).kind == "fifo"

    async def test_a_device_is_an_error(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["ln", "-s", "/dev/null", "device"], check=True)
        refusals = (NotRegularFileError, PathOutsideError)
        with anyio.fail_after(SOON), pytest.raises(refusals):
            await workspace.write("device", b"x")

    async def test_a_name_that_is_too_long_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises((StorageError, PathError)):
            await workspace.write("x" * 256, b"x")

    @pytest.mark.requires("isolated", "sized_tmp")
    async def test_a_full_file_system_is_an_error(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(limits=Limits(tmp=2 * MiB))
        with pytest.raises(StorageError):
            await workspace.write("/tmp/big", bytes(8 * MiB))
        assert await names(workspace, "/tmp") == []

    @pytest.mark.requires("isolated", "sized_tmp")
    async def test_a_full_file_system_keeps_the_old_content(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(limits=Limits(tmp=2 * MiB))
        await workspace.write("/tmp/file", b"old")
        with pytest.raises(StorageError):
            await workspace.write("/tmp/file", bytes(8 * MiB))
        assert await workspace.read_bytes("/tmp/file") == b"old"

    @pytest.mark.requires("isolated", "counted_tmp", "posix_shell")
    async def test_many_files_fill_a_file_system(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(limits=Limits(tmp=2 * MiB))
        script = "i=0; while true > /tmp/$i; do i=$((i + 1)); done; echo $i"
        filled = await workspace.run(f"LC_ALL=C; {script}")
        assert "No space left on device" in filled.stderr
        assert 900 < int(filled.stdout) < 1100
        with pytest.raises(StorageError):
            await workspace.write("/tmp/one-more", b"")
        await workspace.write("elsewhere", b"x")
        await workspace.run("rm /tmp/1??", check=True)
        await workspace.write("/tmp/one-more", b"")

    # -- conditions -----------------------------------------------------------

    async def test_if_match_lets_the_named_content_be_replaced(
        self, workspace: WorkspaceBase
    ) -> None:
        old = await workspace.write("file", b"old")
        await workspace.write("file", b"new", if_match=old.digest)
        assert await workspace.read_bytes("file") == b"new"

    async def test_if_match_protects_another_content_to_write(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"other")
        with pytest.raises(ConflictError):
            await workspace.write("file", b"new", if_match=_digest(b"old"))
        assert await workspace.read_bytes("file") == b"other"
        assert await names(workspace) == ["file"]

    async def test_if_match_of_nothing_makes_a_new_file(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"new", if_match="")
        assert await workspace.read_bytes("file") == b"new"

    async def test_if_match_of_nothing_protects_an_old_file(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"")
        with pytest.raises(ConflictError):
            await workspace.write("file", b"new", if_match="")
        assert await workspace.read_bytes("file") == b""

    async def test_if_match_of_a_missing_file_conflicts(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(ConflictError):
            await workspace.write("file", b"new", if_match=_digest(b"old"))
        assert not await workspace.exists("file")

    async def test_if_match_goes_through_a_link(self, workspace: WorkspaceBase) -> None:
        old = await workspace.write("target", b"old")
        await workspace.run(["ln", "-s", "target", "link"], check=True)
        await workspace.write("link", b"new", if_match=old.digest)
        with pytest.raises(ConflictError):
            await workspace.write("link", b"newer", if_match=old.digest)
        assert await workspace.read_bytes("target") == b"new"

    async def test_of_many_that_match_one_wins(self, workspace: WorkspaceBase) -> None:
        old = await workspace.write("file", b"old")
        won: list[int] = []

        async def swap(number: int) -> None:
            try:
                await workspace.write("file", str(number), if_match=old.digest)
            except ConflictError:
                return
            won.append(number)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(swap, number)
        assert len(won) == 1
        assert await workspace.read_text("file") == str(won[0])

    # -- together -------------------------------------------------------------

    async def test_writers_at_once_never_mix(self, workspace: WorkspaceBase) -> None:
        size = 300_000
        await workspace.write("file", b"\0" * size)
        seen: list[bytes] = []

        async def write(number: int) -> None:
            await workspace.write("file", bytes([number]) * size)

        async def read() -> None:
            seen.append(await workspace.read_bytes("file"))

        async with anyio.create_task_group() as group:
            for number in range(1, 21):
                group.start_soon(write, number)
                group.start_soon(read)
        seen.append(await workspace.read_bytes("file"))
        assert all(len(data) == size and len(set(data)) == 1 for data in seen)
        assert await names(workspace) == ["file"]

    async def test_many_files_at_once_arrive(self, workspace: WorkspaceBase) -> None:
        async def write(number: int) -> None:
            await workspace.write(f"d/{number}", str(number))

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(write, number)
        for number in range(100):
            assert await workspace.read_text(f"d/{number}") == str(number)
