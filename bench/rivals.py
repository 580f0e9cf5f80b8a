"""What isobox is measured against."""

import asyncio
import contextlib
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from measure import MiB

CHUNK = MiB


async def plain(argv: Sequence[str], *, pass_fds: Sequence[int] = ()) -> bytes:
    """Run a program as a plain asyncio subprocess; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, pass_fds=pass_fds
    )
    output, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{argv}: {process.returncode}, {errors!r}")
    return output


async def discarded(argv: Sequence[str]) -> int:
    """Run a program, read its output and throw it away; return its length."""
    process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE)
    assert process.stdout is not None
    total = 0
    while piece := await process.stdout.read(CHUNK):
        total += len(piece)
    await process.wait()
    return total


class AgentScope:
    """AgentScope's Bubblewrap backend, as its BubblewrapWorkspace makes it.

    The workspace itself downloads installers before it can start and then
    talks to the sandbox through this backend only, one bwrap for each call.
    """

    def __init__(self, directory: str) -> None:
        from agentscope.workspace import BubblewrapBackend  # noqa: PLC0415 - heavy

        self.work = f"{directory}/work"
        self.backend = BubblewrapBackend(
            host_workdir=f"{directory}/work",
            host_tmpdir=f"{directory}/tmp",
            host_cache_dir=f"{directory}/cache",
        )

    async def run(self, argv: list[str]) -> bytes:
        """Run a program; return what it printed."""
        result = await self.backend.exec_shell(argv)
        if not result.ok():
            raise RuntimeError(f"{argv}: {result}")
        return result.stdout

    async def read(self, name: str) -> bytes:
        """Return a file's content."""
        return await self.backend.read_file(f"/workspace/{name}")

    async def write(self, name: str, data: bytes) -> None:
        """Replace a file's content."""
        await self.backend.write_file(f"/workspace/{name}", data)

    async def upload(self, local: Path, name: str) -> None:
        """Copy a host file in, piece by piece."""
        await self.backend.write_stream(f"/workspace/{name}", _pieces(local))

    async def download(self, name: str, local: Path) -> None:
        """Copy a file out, in the pieces that the backend gives."""
        with local.open("wb") as file:
            async for piece in self.backend.read_stream(f"/workspace/{name}"):
                file.write(piece)


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            yield piece


@contextlib.contextmanager
def agentscope() -> Iterator[AgentScope]:
    """Give AgentScope's backend on a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="bench-agentscope-") as directory:
        yield AgentScope(directory)
