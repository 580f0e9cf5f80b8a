"""Matching in a process that is killed when it takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import anyio

from isobox._channel.deadline import deadline
from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal
from isobox._guest import agent
from isobox._shell import worker
from isobox.errors import InvalidArgumentError, SandboxLostError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator

_LARGEST: Final = 128 << 20


class Asides:
    """The processes that match for one sandbox: one is kept for the next."""

    def __init__(self) -> None:
        self._idle: list[Process] = []
        self._closed = False

    @contextlib.asynccontextmanager
    async def one(self, *, op: str, path: str) -> AsyncGenerator[Aside]:
        """Have one for a while; one that owes an answer then is killed.

        Args:
            op: Which operation it is for.
            path: The path that this is about.
        """
        process = self._idle.pop() if self._idle else await _started()
        aside = Aside(process, op=op, path=path)
        try:
            yield aside
        finally:
            if aside.free and not self._idle and not self._closed:
                self._idle.append(process)
            else:
                with anyio.CancelScope(shield=True):
                    await _ended(process)

    async def aclose(self) -> None:
        """End them."""
        self._closed = True
        while self._idle:
            await _ended(self._idle.pop())


async def _started() -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        os.path.abspath(worker.__file__),
        os.path.abspath(agent.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )


async def _ended(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


class Aside:
    """A process that matches.

    Attributes:
        free: Whether it has answered everything.
    """

    def __init__(self, process: Process, *, op: str, path: str) -> None:
        self.free = True
        self._process = process
        self._op = op
        self._path = path

    async def ask(self, message: dict[str, Any], *, timeout: float) -> dict[str, Any]:
        """Give it a message and return its answer.

        Raises:
            TimeoutError: It took longer.
            InvalidArgumentError: It refuses.
        """
        self.free = False
        async with deadline(timeout):
            told = await self._exchanged(agent.encode(message))
        self.free = True
        if "refused" in told:
            refused = GuestRefusal(told["refused"], told["message"], 0)
            raise error_for(refused, op=self._op, path=self._path)
        return told

    async def _exchanged(self, data: bytes) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None  # noqa: S101 - a pipe
        assert process.stdout is not None  # noqa: S101 - likewise
        try:
            process.stdin.write(len(data).to_bytes(8, "big") + data)
            await process.stdin.drain()
            size = int.from_bytes(await process.stdout.readexactly(8), "big")
            if size > _LARGEST:
                raise SandboxLostError("matching found more than can be")
            told: dict[str, Any] = agent.decode(await process.stdout.readexactly(size))
        except (ConnectionError, asyncio.IncompleteReadError):
            raise InvalidArgumentError(
                "matching took more memory than it may; ask for less", op=self._op
            ) from None
        return told
