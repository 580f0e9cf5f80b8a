"""MCP over a process's standard streams: one message a line."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from anyio.streams.memory import (
        MemoryObjectReceiveStream,
        MemoryObjectSendStream,
    )
    from mcp.client._transport import TransportStreams
    from mcp_types import JSONRPCMessage

    from isobox._core.results import Process
    from isobox._workspace.mcp.log import Log

    Arrived = MemoryObjectSendStream[SessionMessage | Exception]
    Leaving = MemoryObjectReceiveStream[SessionMessage]

#: Bytes of one message. A server that sends a longer one is ended.
LONGEST: Final = 64 << 20
#: A message of so many bytes is read in a thread: others wait less.
_LARGE: Final = 256 << 10
#: Seconds that a server has to end by itself once its input has.
_GRACE: Final = 2.0


class TooLongError(Exception):
    """A server sent a line without an end."""


@contextlib.asynccontextmanager
async def spoken(
    process: Process, log: Log, over: Callable[[str], None]
) -> AsyncGenerator[TransportStreams]:
    """Speak MCP with a process; it is gone on the way out.

    Args:
        process: What was started with its standard input open.
        log: Where its standard error goes, and what is no message.
        over: Told once, with a reason, when it says nothing more.
    """
    arrived, reading = anyio.create_memory_object_stream["SessionMessage | Exception"]()
    writing, leaving = anyio.create_memory_object_stream[SessionMessage]()
    async with anyio.create_task_group() as group:
        group.start_soon(_receive, process, arrived, log, over)
        group.start_soon(_send, process, leaving, arrived)
        group.start_soon(_listen, process, log)
        try:
            yield reading, writing
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
                for stream in (arrived, reading, writing, leaving):
                    stream.close()
            group.cancel_scope.cancel()


async def _receive(
    process: Process, arrived: Arrived, log: Log, over: Callable[[str], None]
) -> None:
    reason = "it closed its standard output"
    try:
        async for message in _messages(process, log):
            await arrived.send(SessionMessage(message))
    except TooLongError:
        reason = f"it sent a message of over {LONGEST >> 20} MiB"
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        return
    except IsoboxError as error:
        reason = error.message
    over(reason)
    await arrived.aclose()


async def _messages(process: Process, log: Log) -> AsyncGenerator[JSONRPCMessage]:
    held = bytearray()
    while piece := await process.stdout.receive():
        first, *more = piece.split(b"\n")
        held += first
        for rest in more:
            if held.strip():
                message = await _parsed(bytes(held), log)
                if message is not None:
                    yield message
            held = bytearray(rest)
        # SAFETY: a line that never ends would take the host's memory.
        if len(held) > LONGEST:
            raise TooLongError


async def _parsed(line: bytes, log: Log) -> JSONRPCMessage | None:
    """Return the message of a line; what is none goes to the log."""
    parse = jsonrpc_message_adapter.validate_json
    try:
        if len(line) < _LARGE:
            return parse(line, by_name=False)
        return await anyio.to_thread.run_sync(lambda: parse(line, by_name=False))
    except (ValueError, RecursionError):
        log.put(line[:1000] + b"\n")
        return None


async def _send(process: Process, leaving: Leaving, arrived: Arrived) -> None:
    try:
        async for sent in leaving:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.write(text.encode() + b"\n")
    except (BrokenPipeError, IsoboxError):
        # It lives, perhaps, but hears nothing: nobody should wait for it.
        await arrived.aclose()


async def _listen(process: Process, log: Log) -> None:
    with contextlib.suppress(IsoboxError):
        while piece := await process.stderr.receive():
            log.put(piece)


async def _end(process: Process) -> None:
    """Close its input, wait a little, and kill what is left."""
    with contextlib.suppress(IsoboxError, BrokenPipeError, OSError):
        await process.write_eof()
        with anyio.move_on_after(_GRACE):
            await process.wait()
    with contextlib.suppress(IsoboxError):
        await process.aclose()
