"""Files and trees between the host and a workspace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio.from_thread
import anyio.to_thread

from isobox._core.ops import Pull, Push, Read, Scan, Write
from isobox._workspace import archive
from isobox.errors import (
    PathIsDirectoryError,
    PathNotDirectoryError,
)

if TYPE_CHECKING:
    from isobox._core.results import ByteStream, Entry
    from isobox._core.stack import Perform


async def upload(perform: Perform, local: str | os.PathLike[str], remote: str) -> None:
    """Copy a host file or directory into the workspace.

    Raises:
        PathMissingError: There is nothing at `local`.
        PathNotDirectoryError: `local` goes through a file.
        PathAccessError: The host's user may not read it, or something below.
        NotRegularFileError: It is neither a file nor a directory.
        StorageError: The host's file system failed.
    """
    async with archive.Source(os.fspath(local)) as source:
        if source.is_directory:
            await perform(Push(path=remote, body=source))
            return
        await perform(
            Write(
                path=remote,
                body=source,
                mode=source.mode,
                mtime_ns=source.mtime_ns,
            )
        )


async def download(
    perform: Perform, remote: str, local: str | os.PathLike[str]
) -> None:
    """Copy a file or directory of the workspace to the host.

    Directories that were there keep their modes and times; nothing new is
    writable for others. Protected names, such as `.git` and `.vscode`, come
    into a new or an empty directory only.

    Raises:
        PathMissingError: There is nothing at `remote`.
        PathIsDirectoryError: A file is to replace a directory.
        PathNotDirectoryError: A directory is to go where a file is.
        ArchiveError: The sandbox sent what may not come to the host, or a
            protected name is to join what is in a directory.
        StorageError: The host's file system failed.
    """
    path: str = os.path.abspath(os.fspath(local))
    entry = (await perform(Scan(path=remote, depth=0))).entries[0]
    if not entry.is_directory:
        await _download_file(perform, entry, path)
        return
    if os.path.lexists(path) and not os.path.isdir(path):
        raise PathNotDirectoryError(f"{path!r} is a file on the host", path=path)
    async with await perform(Pull(path=remote)) as stream:
        await anyio.to_thread.run_sync(archive.unpack, _Reader(stream), path)


async def _download_file(perform: Perform, entry: Entry, path: str) -> None:
    if os.path.isdir(path):
        raise PathIsDirectoryError(f"{path!r} is a directory on the host", path=path)
    async with await perform(Read(path=entry.path)) as stream:
        with archive.Replaced(path, entry.mode, entry.mtime_ns) as file:
            async for piece in stream:
                file.write(piece)


class _Reader:
    """A stream as the file that a thread reads."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return `size` bytes, less only at the end."""
        pieces = [self._rest]
        have = len(self._rest)
        while have < size:
            piece = anyio.from_thread.run(self._stream.receive)
            if not piece:
                break
            pieces.append(piece)
            have += len(piece)
        data = b"".join(pieces)
        self._rest = data[size:]
        return data[:size]
