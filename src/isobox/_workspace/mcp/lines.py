"""MCP over a process's standard streams: one message a line."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from anyio.streams.memory import (
        MemoryObjectReceiveStream,
        MemoryObjectSendStream,
    )
    from mcp.client._transport import TransportStreams
    from mcp_types import JSONRPCMessage, RequestId

    from isobox._core.results import Process
    from isobox._workspace.mcp.log import Log

    Arrived = MemoryObjectSendStream[SessionMessage | Exception]
    Leaving = MemoryObjectReceiveStream[SessionMessage]

#: Bytes of one message. A server that sends a longer one is ended.
LONGEST: Final = 64 << 20
#: A message of so many bytes is read in a thread: others wait less.
LARGE: Final = 256 << 10
#: Values in one message; each is an object of Python's, or several.
MOST_VALUES: Final = 1_000_000
#: Questions of a server that wait for an answer, and bytes of all of them.
_MOST_ASKED: Final = 256
_MOST_BYTES: Final = LONGEST
#: Seconds that a server has to end by itself once its input has.
_GRACE: Final = 2.0


class TooLongError(Exception):
    """A server sent a line without an end."""


class TooFullError(Exception):
    """A server sent a message of more values than may be."""


class TooManyError(Exception):
    """A server asks, and does not take the answers."""


class Asked:
    """What a server has asked and was not answered; each is held in memory."""

    def __init__(self) -> None:
        self._sizes: dict[RequestId, int] = {}

    def arrived(self, message: JSONRPCMessage, size: int) -> None:
        """Note a message of the server's.

        Raises:
            TooManyError: It asks too much.
        """
        if isinstance(message, JSONRPCRequest):
            again = message.id in self._sizes
            self._sizes[message.id] = size
            much = sum(self._sizes.values()) > _MOST_BYTES
            if again or much or len(self._sizes) > _MOST_ASKED:
                raise TooManyError
        elif isinstance(message, JSONRPCNotification):
            self._withdrawn(message)

    def answered(self, message: JSONRPCMessage) -> None:
        """Note a message of ours, once the server has taken it."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._forget(message.id)

    def _withdrawn(self, note: JSONRPCNotification) -> None:
        if note.method == "notifications/cancelled":
            number = (note.params or {}).get("requestId")
            if isinstance(number, str | int) and not isinstance(number, bool):
                self._forget(number)

    def _forget(self, number: RequestId | None) -> None:
        if number is not None:
            self._sizes.pop(number, None)


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
    asked = Asked()
    async with anyio.create_task_group() as group:
        group.start_soon(_receive, process, arrived, asked, log, over)
        group.start_soon(_send, process, leaving, arrived, asked)
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
    process: Process,
    arrived: Arrived,
    asked: Asked,
    log: Log,
    over: Callable[[str], None],
) -> None:
    reason = "it closed its standard output"
    try:
        async for message, size in _messages(process, log):
            asked.arrived(message, size)
            await arrived.send(SessionMessage(message))
    except TooLongError:
        reason = f"it sent a message of over {LONGEST >> 20} MiB"
    except TooFullError:
        reason = f"it sent a message of over {MOST_VALUES:,} values"
    except TooManyError:
        reason = "it asks, and does not take the answers"
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        return
    except IsoboxError as error:
        reason = error.message
    over(reason)
    await arrived.aclose()


async def _messages(
    process: Process, log: Log
) -> AsyncGenerator[tuple[JSONRPCMessage, int]]:
    held = bytearray()
    while piece := await process.stdout.receive():
        first, *more = piece.split(b"\n")
        held += first
        for rest in more:
            if held.strip():
                message = await _parsed(bytes(held), log)
                if message is not None:
                    yield message, len(held)
            held = bytearray(rest)
        # SAFETY: a line that never ends would take the host's memory.
        if len(held) > LONGEST:
            raise TooLongError


async def _parsed(line: bytes, log: Log) -> JSONRPCMessage | None:
    """Return the message of a line; what is none goes to the log."""
    try:
        if len(line) < LARGE:
            return _parse(line)
        return await anyio.to_thread.run_sync(_parse, line)
    except (ValueError, RecursionError):
        log.put(line[:1000] + b"\n")
        return None


def _parse(line: bytes) -> JSONRPCMessage:
    check_values(line)
    return jsonrpc_message_adapter.validate_json(line, by_name=False)


def check_values(text: bytes) -> None:
    """Return if a message has few enough values to be read.

    Raises:
        TooFullError: It has too many.
    """
    # SAFETY: two bytes of an empty list take a hundred times the memory.
    if _values(text) > MOST_VALUES and _values(_outside(text)) > MOST_VALUES:
        raise TooFullError


def _values(text: bytes) -> int:
    return sum(map(text.count, (b",", b"[", b"{")))


def _outside(line: bytes) -> bytes:
    """Return what stands outside of strings."""
    bare = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Each value has a name at most, and each string two quotes.
    if bare.count(b'"') > 4 * MOST_VALUES:
        raise TooFullError
    return b"".join(bare.split(b'"')[::2])


async def _send(
    process: Process, leaving: Leaving, arrived: Arrived, asked: Asked
) -> None:
    try:
        async for sent in leaving:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.write(text.encode() + b"\n")
            asked.answered(sent.message)
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
