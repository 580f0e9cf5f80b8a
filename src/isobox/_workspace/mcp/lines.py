"""MCP over a process's standard streams: one message a line."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from typing_extensions import override

from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from mcp.client._transport import TransportStreams
    from mcp_types import JSONRPCMessage, RequestId

    from isobox._core.results import Process
    from isobox._workspace.mcp.log import Log

#: Bytes of one message. A server that sends a longer one is ended.
LONGEST: Final = 64 << 20
#: A message of so many bytes is read in a thread: others wait less.
LARGE: Final = 256 << 10
#: Values in one message; each is an object of Python's, or several.
MOST_VALUES: Final = 1_000_000
#: Messages that are read before others may run.
_IN_A_ROW: Final = 16
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


class Heard(ObjectReceiveStream["SessionMessage | Exception"]):
    """What a server says, read from its output as the client asks for more.

    Args:
        process: The server.
        asked: Told of each message.
        log: Where goes what is no message.
        over: Told once, with a reason, when nothing more comes.
    """

    def __init__(
        self, process: Process, asked: Asked, log: Log, over: Callable[[str], None]
    ) -> None:
        self._process = process
        self._asked = asked
        self._log = log
        self._over = over
        self._lines: deque[bytes] = deque()
        self._begun = bytearray()
        self._read = 0

    @override
    async def receive(self) -> SessionMessage:
        reason = "it closed its standard output"
        try:
            if (message := await self._next()) is not None:
                return SessionMessage(message)
        except TooLongError:
            reason = f"it sent a message of over {LONGEST >> 20} MiB"
        except TooFullError:
            reason = f"it sent a message of over {MOST_VALUES:,} values"
        except TooManyError:
            reason = "it asks, and does not take the answers"
        except IsoboxError as error:
            reason = error.message
        self._over(reason)
        raise anyio.EndOfStream

    async def _next(self) -> JSONRPCMessage | None:
        """Return the next message, None at the end."""
        while True:
            while self._lines:
                line = self._lines.popleft()
                message = await _parsed(line, self._log) if line.strip() else None
                if message is not None:
                    self._asked.arrived(message, len(line))
                    await self._give_way()
                    return message
            if not await self._more():
                return None

    async def _give_way(self) -> None:
        """Let others run, now and then: what has arrived is read without waiting."""
        self._read += 1
        if self._read % _IN_A_ROW == 0:
            await anyio.lowlevel.checkpoint()

    async def _more(self) -> bool:
        """Read on; False at the end."""
        piece = await self._process.stdout.receive()
        first, *more = piece.split(b"\n")
        self._begun += first
        for rest in more:
            self._lines.append(bytes(self._begun))
            self._begun = bytearray(rest)
        # SAFETY: a line that never ends would take the host's memory.
        if len(self._begun) > LONGEST:
            raise TooLongError
        return piece != b""

    @override
    async def aclose(self) -> None:
        """Read no more; its process is ended by whoever started it."""


class Said(ObjectSendStream[SessionMessage]):
    """What the client says to a server: at once, or behind what waits for room.

    Whoever says something may be cancelled; a message is written whole or not at
    all, so one that takes long is written by a task that goes on.
    """

    def __init__(self, process: Process, asked: Asked) -> None:
        self._process = process
        self._asked = asked
        #: Whether the task may have something to write.
        self._behind = False
        self._queue, self._queued = anyio.create_memory_object_stream[SessionMessage]()

    @override
    async def send(self, item: SessionMessage) -> None:
        if self._behind or not self._said_at_once(item):
            self._behind = True
            await self._queue.send(item)

    def _said_at_once(self, item: SessionMessage) -> bool:
        try:
            done = self._process.write_nowait(_line(item))
        except (BrokenPipeError, IsoboxError):
            return False  # the task finds out as well, and ends it
        if done:
            self._asked.answered(item.message)
        return done

    async def go_on(self) -> None:
        """Say what waits, until it hears nothing more."""
        with self._queued:
            try:
                async for item in self._queued:
                    await self._process.write(_line(item))
                    self._asked.answered(item.message)
                    waiting = self._queued.statistics().tasks_waiting_send
                    self._behind = waiting > 0
            except (BrokenPipeError, IsoboxError):
                # Nobody should wait for what it would answer.
                with contextlib.suppress(IsoboxError):
                    await self._process.aclose()

    @override
    async def aclose(self) -> None:
        """Say no more."""
        self._queue.close()


def _line(said: SessionMessage) -> bytes:
    text = said.message.model_dump_json(by_alias=True, exclude_unset=True)
    return text.encode() + b"\n"


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
    asked = Asked()
    said = Said(process, asked)
    async with anyio.create_task_group() as group:
        group.start_soon(said.go_on)
        group.start_soon(_listen, process, log)
        try:
            yield Heard(process, asked, log, over), said
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
                await said.aclose()
            group.cancel_scope.cancel()


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
