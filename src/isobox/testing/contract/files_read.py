"""Reading files."""

from __future__ import annotations

import errno
import hashlib
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import (
    InvalidArgumentError,
    NotRegularFileError,
    PathAccessError,
    PathError,
    PathIsDirectoryError,
    PathMissingError,
    PathNotDirectoryError,
    PathOutsideError,
    StorageError,
    WrongEncodingError,
)
from isobox.testing.contract._base import SOON, Contract

if TYPE_CHECKING:
    from isobox import WorkspaceBase

MiB = 1024 * 1024

_SOCKET = "import socket as s; s.socket(s.AF_UNIX).bind('socket')"


class FilesReadContract(Contract):
    """Reading files."""

    async def test_read_gives_what_was_written(self, workspace: WorkspaceBase) -> None:
        data = bytes(range(256)) * 100
        await workspace.write("file", data)
        assert await workspace.read_bytes("file") == data

    async def test_text_keeps_its_line_ends(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "one\r\ntwo\rthree\n\n")
        assert await workspace.read_text("file") == "one\r\ntwo\rthree\n\n"

    async def test_text_in_another_encoding(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "grüße".encode("latin-1"))
        assert await workspace.read_text("file", encoding="latin-1") == "grüße"

    async def test_bytes_that_are_no_text_are_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"\xff\xfe")
        with pytest.raises(UnicodeDecodeError) as error:
            await workspace.read_text("file")
        assert isinstance(error.value, WrongEncodingError)
        assert error.value.path == "file"
        assert "encoding=" in str(error.value)

    async def test_an_empty_file_reads_empty(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"")
        assert await workspace.read_bytes("file") == b""
        assert await workspace.read_text("file") == ""

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [
            (0, None, b"0123456789"),
            (3, None, b"3456789"),
            (0, 4, b"0123"),
            (3, 4, b"3456"),
            (8, 100, b"89"),
            (10, 1, b""),
            (100, None, b""),
            (2, 0, b""),
        ],
    )
    async def test_a_range_is_exact(
        self,
        workspace: WorkspaceBase,
        offset: int,
        length: int | None,
        expected: bytes,
    ) -> None:
        await workspace.write("file", b"0123456789")
        data = await workspace.read_bytes("file", offset=offset, length=length)
        assert data == expected

    async def test_a_range_of_a_large_file_is_exact(
        self, workspace: WorkspaceBase
    ) -> None:
        data = b"".join(number.to_bytes(4, "big") for number in range(MiB))
        await workspace.write("file", data)
        middle = await workspace.read_bytes("file", offset=MiB + 1, length=MiB)
        assert middle == data[MiB + 1 : 2 * MiB + 1]

    async def test_a_negative_range_is_refused(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", b"x")
        with pytest.raises(InvalidArgumentError, match="offset"):
            await workspace.read_bytes("file", offset=-1)
        with pytest.raises(InvalidArgumentError, match="length"):
            await workspace.read_bytes("file", length=-1)

    async def test_a_missing_file_is_an_error_to_read(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PathMissingError) as caught:
            await workspace.read_bytes("missing")
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.errno == errno.ENOENT
        assert caught.value.path is not None
        assert caught.value.path.endswith("missing")

    async def test_a_missing_directory_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PathMissingError):
            await workspace.read_bytes("missing/file")

    async def test_a_directory_is_an_error_to_read(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["mkdir", "directory"], check=True)
        with pytest.raises(PathIsDirectoryError):
            await workspace.read_bytes("directory")

    async def test_the_root_is_an_error_to_read(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(PathIsDirectoryError):
            await workspace.read_bytes(".")

    async def test_a_file_on_the_way_is_an_error_to_read(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"x")
        with pytest.raises(PathNotDirectoryError):
            await workspace.read_bytes("file/below")

    async def test_a_fifo_is_not_opened(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["mkfifo", "fifo"], check=True)
        with anyio.fail_after(SOON), pytest.raises(NotRegularFileError):
            await workspace.read_bytes("fifo")

    async def test_a_fifo_behind_a_link_is_not_opened(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["mkfifo", "fifo"], check=True)
        await workspace.run(["ln", "-s", "fifo", "link"], check=True)
        with anyio.fail_after(SOON), pytest.raises(NotRegularFileError):
            await workspace.read_bytes("link")

    @pytest.mark.requires("python3")
    async def test_a_socket_is_not_opened(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["python3", "-c", _SOCKET], check=True)
        with anyio.fail_after(SOON), pytest.raises(NotRegularFileError):
            await workspace.read_bytes("socket")

    async def test_a_device_is_not_opened(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["ln", "-s", "/dev/zero", "device"], check=True)
        refusals = (NotRegularFileError, PathOutsideError)
        with anyio.fail_after(SOON), pytest.raises(refusals):
            await workspace.read_bytes("device")

    async def test_a_link_is_followed(self, workspace: WorkspaceBase) -> None:
        await workspace.write("directory/file", b"x")
        await workspace.run(["ln", "-s", "directory/file", "link"], check=True)
        assert await workspace.read_bytes("link") == b"x"

    async def test_a_link_on_the_way_is_followed(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("directory/file", b"x")
        await workspace.run(["ln", "-s", "directory", "link"], check=True)
        assert await workspace.read_bytes("link/file") == b"x"

    async def test_a_dangling_link_is_missing(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["ln", "-s", "nowhere", "link"], check=True)
        with pytest.raises(PathMissingError):
            await workspace.read_bytes("link")

    async def test_links_in_a_circle_are_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["ln", "-s", "two", "one"], check=True)
        await workspace.run(["ln", "-s", "one", "two"], check=True)
        with (
            anyio.fail_after(SOON),
            pytest.raises((StorageError, PathError)),
        ):
            await workspace.read_bytes("one")

    async def test_a_file_that_may_not_be_read_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        await _skip_for_root(workspace)
        await workspace.write("file", b"x", mode=0o000)
        with pytest.raises(PathAccessError):
            await workspace.read_bytes("file")

    @pytest.mark.requires("isolated", "proc")
    async def test_a_file_without_a_size_is_read(
        self, workspace: WorkspaceBase
    ) -> None:
        assert b"Linux" in await workspace.read_bytes("/proc/version")

    async def test_fifty_mebibytes_come_back(self, workspace: WorkspaceBase) -> None:
        data = bytes(range(256)) * (50 * MiB // 256)
        await workspace.write("file", data)
        found = await workspace.read_bytes("file")
        assert hashlib.sha256(found).digest() == hashlib.sha256(data).digest()

    async def test_fifty_reads_at_once_do_not_mix(
        self, workspace: WorkspaceBase
    ) -> None:
        for number in range(10):
            await workspace.write(f"file{number}", bytes([number]) * 200_000)
        found: list[tuple[int, bytes]] = []

        async def read(number: int) -> None:
            found.append((number, await workspace.read_bytes(f"file{number}")))

        async with anyio.create_task_group() as group:
            for count in range(50):
                group.start_soon(read, count % 10)
        assert len(found) == 50
        assert all(data == bytes([number]) * 200_000 for number, data in found)


async def _skip_for_root(workspace: WorkspaceBase) -> None:
    if (await workspace.run(["id", "-u"])).stdout == "0\n":
        pytest.skip("root may read everything")
