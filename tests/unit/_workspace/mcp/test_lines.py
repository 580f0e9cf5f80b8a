"""Messages over a process's standard streams."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification
from typing_extensions import override

from isobox._core.results import ByteStream, Exit, Process
from isobox._workspace.mcp.lines import LONGEST, Asked, Heard, Said, spoken
from isobox._workspace.mcp.log import Log
from isobox.errors import SandboxLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Output(ByteStream):
    """Gives pieces at once, then ends, or never does."""

    def __init__(self, pieces: Iterator[bytes], *, ends: bool = True) -> None:
        self._pieces = pieces
        self._ends = ends

    @override
    async def receive(self) -> bytes:
        piece = next(self._pieces, b"")
        if not piece and not self._ends:
            await anyio.sleep_forever()
        return piece

    @override
    def receive_nowait(self) -> bytes:
        return next(self._pieces, b"")

    @override
    async def aclose(self) -> None: ...


class Server(Process):
    """A process of which a test says what it prints, and when it takes input."""

    id, pid = "1", 1

    def __init__(self, *pieces: bytes, ends: bool = True) -> None:
        super().__init__()
        self.stdout = Output(iter(pieces), ends=ends)
        self.stderr = self.report = Output(iter(()))
        self.taken = bytearray()
        self.has_room = True
        self.room = anyio.Event()
        self.fails: Exception | None = None
        self.closed = False

    @override
    def write_nowait(self, data: bytes) -> bool:
        if self.fails is not None:
            raise self.fails
        if self.has_room:
            self.taken += data
        return self.has_room

    @override
    async def write(self, data: bytes) -> None:
        if self.fails is not None:
            raise self.fails
        self.taken += data[:5]
        await self.room.wait()
        self.taken += data[5:]

    @override
    async def write_eof(self) -> None: ...

    @override
    async def wait(self) -> Exit:
        return Exit(exit_code=0)

    @override
    async def signal(self, number: int) -> None: ...

    @override
    async def kill(self) -> None: ...

    @override
    async def resize(self, columns: int, rows: int) -> None: ...

    @override
    async def aclose(self) -> None:
        self.closed = True


def note(method: str) -> SessionMessage:
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method))


def line(method: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n"


def methods(data: bytes | bytearray) -> list[str]:
    return [json.loads(each)["method"] for each in data.splitlines()]


def _deaf(_reason: str) -> None: ...


def heard(server: Server, reasons: list[str]) -> Heard:
    return Heard(server, Asked(), Log(), reasons.append)


async def test_messages_come_in_order_however_they_are_cut() -> None:
    whole = line("one") + b"\n \n" + line("two") + line("three")
    for size in (1, 7, len(whole)):
        pieces = (whole[at : at + size] for at in range(0, len(whole), size))
        reasons: list[str] = []
        found = [
            each.message.method  # type: ignore[union-attr]
            async for each in heard(Server(*pieces), reasons)
        ]
        assert found == ["one", "two", "three"]
        assert reasons == ["it closed its standard output"]


async def test_what_is_no_message_is_in_the_log_and_hides_no_other() -> None:
    log = Log()
    server = Server(b"Starting up\n{]\n" + line("one") + b"begun but not en")
    stream = Heard(server, Asked(), log, _deaf)
    assert [each.message.method async for each in stream] == ["one"]  # type: ignore[union-attr]
    assert "Starting up" in log.text
    assert "{]" in log.text


async def test_a_line_without_an_end_is_the_end() -> None:
    reasons: list[str] = []
    server = Server(*[b"x" * (1 << 20)] * ((LONGEST >> 20) + 1))
    with pytest.raises(anyio.EndOfStream):
        await heard(server, reasons).receive()
    assert reasons == ["it sent a message of over 64 MiB"]


@pytest.mark.parametrize("together", [True, False])
async def test_a_flood_lets_others_run(together: bool) -> None:
    # All of it is there already, so that reading it never waits.
    lines = [line("noise")] * 1000
    server = Server(b"".join(lines)) if together else Server(*lines)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.sleep(0)

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        assert len([each async for each in heard(server, [])]) == 1000
        group.cancel_scope.cancel()
    assert turns >= 1000 // 16


@contextlib.asynccontextmanager
async def saying(server: Server) -> AsyncIterator[Said]:
    said = Said(server, Asked())
    async with anyio.create_task_group() as group:
        group.start_soon(said.go_on)
        yield said
        await said.aclose()


async def test_what_there_is_room_for_is_said_at_once() -> None:
    server = Server()
    async with saying(server) as said:
        await said.send(note("one"))
        assert methods(server.taken) == ["one"]


async def test_nothing_is_said_amid_a_message_that_waits_for_room() -> None:
    server = Server()
    async with saying(server) as said, anyio.create_task_group() as group:
        server.has_room = False
        await said.send(note("large"))
        await anyio.wait_all_tasks_blocked()
        assert len(server.taken) == 5
        # There is room for it, but it would land within the other.
        server.has_room = True
        group.start_soon(said.send, note("small"))
        await anyio.wait_all_tasks_blocked()
        assert len(server.taken) == 5
        server.room.set()
        await anyio.wait_all_tasks_blocked()
        assert methods(server.taken) == ["large", "small"]
        await said.send(note("last"))
        assert methods(server.taken) == ["large", "small", "last"]


async def test_who_gives_up_leaves_a_message_whole_or_unsaid() -> None:
    server = Server()
    async with saying(server) as said:
        server.has_room = False
        await said.send(note("large"))
        with anyio.move_on_after(0.05):
            await said.send(note("given up"))
        server.room.set()
        await anyio.wait_all_tasks_blocked()
        server.has_room = True
        await said.send(note("last"))
        await anyio.wait_all_tasks_blocked()
        assert methods(server.taken) == ["large", "last"]


@pytest.mark.parametrize("error", [BrokenPipeError(), SandboxLostError("gone")])
async def test_a_server_that_hears_nothing_is_ended(error: Exception) -> None:
    server = Server(ends=False)
    async with spoken(server, Log(), _deaf) as (_, said):
        server.fails = error
        await said.send(note("one"))
        await anyio.wait_all_tasks_blocked()
        assert server.closed
        # Nobody waits until it takes this.
        with pytest.raises(anyio.BrokenResourceError):
            await said.send(note("two"))
