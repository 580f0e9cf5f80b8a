"""Matching in a process that is killed when it takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal
from isobox._guest import agent
from isobox._shell import worker
from isobox.errors import InvalidArgumentError, SandboxLostError

if TYPE_CHECKING:
    from asyncio.subprocess import Process

_LARGEST: Final = 128 << 20


class Aside:
    """A process that matches.

    Args:
        op: Which operation it is for.
        path: The path that this is about.
    """

    def __init__(self, *, op: str, path: str) -> None:
        self._op = op
        self._path = path
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
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
        return self

    async def ask(self, message: dict[str, Any], *, timeout: float) -> dict[str, Any]:
        """Give it a message and return its answer.

        Raises:
            TimeoutError: It took longer.
            InvalidArgumentError: It refuses.
        """
        async with asyncio.timeout(timeout):
            told = await self._exchanged(agent.encode(message))
        if "refused" in told:
            refused = GuestRefusal(told["refused"], told["message"], 0)
            raise error_for(refused, op=self._op, path=self._path)
        return told

    async def _exchanged(self, data: bytes) -> dict[str, Any]:
        process = self._process
        assert process is not None  # noqa: S101 - entered
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

    async def __aexit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()
