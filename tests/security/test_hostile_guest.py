"""Guests that lie, flood and stall: each costs its own workspace only."""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import os
import stat
import struct
import tarfile
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.unit._channel.liar import (
    HELLO,
    ROOT,
    Liar,
    LiarWorkspace,
    Script,
    frame,
    lied_to,
)

from isobox import LocalWorkspace
from isobox._channel.channel import Channel
from isobox._channel.deadline import deadline
from isobox._core import ops
from isobox._guest import agent
from isobox._workspace import archive
from isobox.errors import (
    ArchiveError,
    IsoboxError,
    PathMissingError,
    ProtocolError,
    SandboxLostError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from isobox._channel.sandbox import ChannelSandbox

pytestmark = pytest.mark.anyio

FILE = f"{ROOT}/file"

READ = ops.Read(path=FILE)
WRITE = ops.Write(path=FILE, body=b"x")
SCAN = ops.Scan(path=ROOT)
SEARCH = ops.Search(path=ROOT, pattern="x")
RUN = ops.Spawn(argv=("true",), cwd=ROOT, capture=1000)
START = ops.Spawn(argv=("true",), cwd=ROOT, stdin=True)
DIAL = ops.Dial(port=80)
PULL = ops.Pull(path=ROOT)
PUSH = ops.Push(path=ROOT, body=b"x")
EDIT = ops.Edit(path=FILE, replacements=(ops.Replacement(b"a", b"b"),))
REMOVE = ops.Remove(path=FILE)


async def whole(op: Any, sandbox: ChannelSandbox) -> Any:
    """Perform an operation and use up what it returns."""
    result = await op.on(sandbox)
    if isinstance(op, ops.Spawn):
        async with result:
            return await result.wait()
    if isinstance(op, ops.Read | ops.Pull | ops.Dial):
        async with result:
            return await result.read()
    return result


OPS = [READ, WRITE, SCAN, SEARCH, RUN, START, DIAL, PULL, PUSH, EDIT, REMOVE]


def named(value: Any) -> str:
    return value.name if isinstance(value, ops.Op) else ""


@contextlib.asynccontextmanager
async def performing(
    op: Any,
) -> AsyncIterator[tuple[Liar, int, asyncio.Task[Any], Channel]]:
    """Have an operation under way that the test is to answer."""
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(whole(op, sandbox))
        stream, _ = await liar.opened()
        try:
            yield liar, stream, task, sandbox.channel
        finally:
            task.cancel()
            await asyncio.wait([task])


async def is_refused(task: asyncio.Task[Any], channel: Channel) -> None:
    """The liar was found out: its caller is told, its channel is dead."""
    with pytest.raises(ProtocolError):
        await asyncio.wait_for(task, 5)
    assert isinstance(channel.failure, ProtocolError)
    with pytest.raises(SandboxLostError):
        channel.check()


def data(channel: int, size: int) -> bytes:
    return bytes((channel,)) + bytes(size)


def credit(channel: int, amount: int) -> bytes:
    return bytes((channel,)) + amount.to_bytes(4, "big")


# -- hello ----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def greeted(
    timeout: float = 5.0,
) -> AsyncIterator[tuple[Liar, Channel, asyncio.Task]]:
    liar = Liar()
    channel = await Channel.over(liar.theirs)
    task = asyncio.create_task(channel.greet({"env": {}}, timeout=timeout))
    try:
        yield liar, channel, task
    finally:
        await channel.aclose()
        await asyncio.wait([task])
        await liar.aclose()


async def test_it_never_says_hello():
    async with greeted(timeout=0.1) as (_, channel, task):
        with pytest.raises(SandboxLostError, match="in time"):
            await asyncio.wait_for(task, 5)
        assert channel.failure is not None


@pytest.mark.parametrize("version", [0, 2, -1, None, "1", 1.5, [], b"1"])
async def test_it_speaks_another_version(version):
    async with greeted() as (liar, channel, task):
        await liar.hello(version=version)
        with pytest.raises(ProtocolError, match="version"):
            await asyncio.wait_for(task, 5)
        assert channel.failure is not None


async def test_it_says_hello_twice():
    async with greeted() as (liar, channel, task):
        await liar.hello()
        await task
        await liar.hello()
        await until(lambda: channel.failure is not None)
        assert isinstance(channel.failure, ProtocolError)


@pytest.mark.parametrize(
    "payload",
    [b"", b"N", b"l\0\0\0\0", b"d\xff\xff\xff\xff", b"garbage", b"l\0\0\0\1" * 800],
)
async def test_its_hello_is_no_mapping(payload):
    async with greeted() as (liar, _, task):
        await liar.say(agent.HELLO, 0, payload)
        with pytest.raises(ProtocolError):
            await asyncio.wait_for(task, 5)


@pytest.mark.parametrize("kind", [agent.DATA, agent.RESULT, agent.ERROR, agent.EVENT])
async def test_it_answers_before_it_is_asked(kind):
    async with greeted() as (liar, _, task):
        await liar.say(kind, 1, b"\0")
        with pytest.raises(ProtocolError):
            await asyncio.wait_for(task, 5)


async def test_it_hangs_up_instead_of_hello():
    async with greeted() as (liar, _, task):
        liar.sock.close()
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(task, 5)


async def until(met: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not met():
            await anyio.sleep(0.001)


# -- frames ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [0, agent.CONFIG, agent.OPEN, agent.CONTROL, agent.PING, 14, 255]
)
async def test_a_frame_of_a_kind_that_no_guest_sends(kind):
    async with performing(READ) as (liar, stream, task, channel):
        await liar.say(kind, stream, b"")
        await is_refused(task, channel)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (agent.DATA, agent.PIECE + 2),
        (agent.DATA, 2**32 - 1),
        (agent.RESULT, (1 << 18) + 1),
        (agent.ERROR, (1 << 16) + 1),
        (agent.EVENT, 4097),
        (agent.PONG, 4097),
        (agent.HELLO, 2**31),
    ],
)
async def test_a_frame_longer_than_its_kind_is_refused_at_its_header(kind, size):
    async with performing(READ) as (liar, stream, task, channel):
        await liar.shout(agent.HEADER.pack(size, kind, stream))
        await is_refused(task, channel)


@pytest.mark.parametrize("stream", [0, 2, 99, agent.ACCEPTED | 1, 2**32 - 1])
@pytest.mark.parametrize(
    "kind",
    [agent.DATA, agent.END, agent.CREDIT, agent.RESULT, agent.ERROR, agent.EVENT],
)
async def test_a_frame_for_no_stream(kind, stream):
    async with performing(READ) as (liar, _, task, channel):
        await liar.say(kind, stream, data(0, 4))
        await is_refused(task, channel)


async def test_a_frame_after_the_answer():
    async with performing(REMOVE) as (liar, stream, task, channel):
        await liar.result(stream, {})
        await task
        await liar.say(agent.END, stream, b"\0")
        await until(lambda: channel.failure is not None)
        assert isinstance(channel.failure, ProtocolError)


@pytest.mark.parametrize("stream", [1, 2, agent.ACCEPTED | 1])
async def test_a_stream_that_nobody_listens_for(stream):
    async with performing(READ) as (liar, _, task, channel):
        await liar.say(agent.ACCEPT, stream, agent.encode({"listener": 1}))
        await is_refused(task, channel)


@pytest.mark.parametrize("number", [1, 3, 4, 255])
@pytest.mark.parametrize("kind", [agent.DATA, agent.END])
async def test_bytes_on_a_channel_that_the_operation_has_not(kind, number):
    async with performing(READ) as (liar, stream, task, channel):
        await liar.say(
            kind, stream, bytes((number,)) + (b"x" if kind == agent.DATA else b"")
        )
        await is_refused(task, channel)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (agent.DATA, b""),
        (agent.DATA, b"\0"),
        (agent.END, b""),
        (agent.END, b"\0\0"),
        (agent.CREDIT, b""),
        (agent.CREDIT, b"\0\0\0\1"),
        (agent.CREDIT, b"\0\0\0\0\0\1"),
        (agent.EVENT, agent.encode({"event": "dance"})),
        (agent.RESULT, b""),
        (agent.RESULT, b"N"),
        (agent.ERROR, b"x"),
    ],
)
async def test_a_frame_that_is_malformed_or_out_of_place(kind, payload):
    async with performing(READ) as (liar, stream, task, channel):
        await liar.say(kind, stream, payload)
        await is_refused(task, channel)


@pytest.mark.parametrize("op", OPS, ids=named)
@pytest.mark.parametrize("cut", [0, 1, 8, 9, 12])
async def test_half_a_frame_and_the_end(op, cut):
    async with performing(op) as (liar, stream, task, _):
        await liar.shout(frame(agent.RESULT, stream, agent.encode({"a": 1}))[:cut])
        liar.sock.close()
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(task, 5)


@pytest.mark.parametrize("op", OPS, ids=named)
async def test_an_answer_that_says_nothing(op):
    """It may be taken as an empty one, or refused; never anything else."""
    async with performing(op) as (liar, stream, task, _):
        await liar.result(stream, {})
        with contextlib.suppress(IsoboxError):
            await asyncio.wait_for(task, 5)


# -- more than was granted --------------------------------------------------------


@pytest.mark.parametrize(
    "op", [READ, SCAN, SEARCH, PULL, DIAL, EDIT, REMOVE], ids=named
)
async def test_more_data_than_credit(op):
    async with performing(op) as (liar, stream, task, channel):
        if op is DIAL:
            await liar.say(agent.EVENT, stream, agent.encode({"event": "connected"}))
        # In one go, so that no reader gets in between.
        piece = frame(agent.DATA, stream, data(0, agent.PIECE))
        count = agent.WINDOW // agent.PIECE + 1
        feed(channel, piece * count)
        await is_refused(task, channel)


def feed(channel: Channel, raw: bytes) -> None:
    channel.data_received(raw)


async def test_a_flood_of_data_is_read_no_faster_than_it_is_taken():
    async with performing(START) as (liar, stream, task, channel):
        await liar.say(
            agent.EVENT, stream, agent.encode({"event": "started", "pid": 5})
        )
        flood = asyncio.create_task(
            flooding(liar, frame(agent.DATA, stream, data(agent.STDOUT, 1000)))
        )
        await until(lambda: channel.failure is not None)
        await is_refused(task, channel)
        flood.cancel()
        await asyncio.wait([flood])


async def flooding(liar: Liar, raw: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            await liar.shout(raw * 64)


async def test_data_without_bytes_costs_credit_or_is_refused():
    async with performing(START) as (_, stream, task, channel):
        empty = frame(agent.DATA, stream, data(agent.STDOUT, 0))
        feed(channel, empty * 1000)
        await is_refused(task, channel)


@pytest.mark.parametrize("amount", [1, agent.WINDOW, 2**32 - 1])
async def test_credit_beyond_the_window(amount):
    async with performing(START) as (liar, stream, task, channel):
        await liar.say(agent.CREDIT, stream, credit(agent.STDIN, amount))
        await is_refused(task, channel)


STARTED = agent.encode({"event": "started", "pid": 5})
ENDED = agent.encode({"event": "exit", "exit": 0})


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (agent.EVENT, STARTED),
        (agent.CREDIT, credit(agent.STDIN, 0)),
        (agent.PONG, b""),
    ],
    ids=["started", "credit", "pong"],
)
async def test_what_means_nothing_is_refused_at_once(kind, payload):
    async with performing(START) as (liar, stream, task, channel):
        await liar.say(agent.EVENT, stream, STARTED)
        # A stream of its own for those that belong to the channel.
        await liar.say(kind, 0 if kind == agent.PONG else stream, payload)
        await is_refused(task, channel)


async def test_a_command_ends_once():
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(START.on(sandbox))
        stream, _ = await liar.opened()
        await liar.say(agent.EVENT, stream, STARTED)
        process = await task
        await liar.say(agent.EVENT, stream, ENDED)
        assert (await process.wait()).exit_code == 0
        assert sandbox.channel.failure is None
        await liar.say(agent.EVENT, stream, ENDED)
        await until(lambda: sandbox.channel.failure is not None)
        assert isinstance(sandbox.channel.failure, ProtocolError)
        await process.aclose()


class Peak:
    """How far this process's memory rises above what it is now."""

    def __init__(self) -> None:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        self._before = self._highest()

    @property
    def growth(self) -> int:
        return self._highest() - self._before

    @staticmethod
    def _highest() -> int:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024


async def test_more_than_was_asked_of_a_file():
    async with performing(ops.Read(path=FILE, length=10)) as (
        liar,
        stream,
        task,
        channel,
    ):
        await liar.say(agent.DATA, stream, data(0, 11))
        await is_refused(task, channel)


@pytest.mark.parametrize("inline", [True, False])
async def test_more_captured_output_than_was_asked(inline):
    async with performing(RUN) as (liar, stream, task, channel):
        if inline:
            answer = {
                "exit": 0,
                "stdout_total": 5000,
                "stdout": [bytes(600), bytes(600)],
            }
            await liar.result(stream, answer)
        else:
            await liar.say(agent.DATA, stream, data(agent.STDOUT, 1002))
        await is_refused(task, channel)


@pytest.mark.parametrize(
    "output",
    [
        {"stdout": [b"abc", b""], "stdout_total": 2},
        {"stdout": [b"", b""], "stdout_total": -1},
        {"stdout": [b"", b""], "stdout_total": "many"},
        {"stdout": [b""], "stdout_total": 0},
        {"stdout": [b"", b"", b""], "stdout_total": 0},
        {"stdout": ["", ""], "stdout_total": 0},
        {"stdout": [5, 5], "stdout_total": 10},
        {"stdout": [-5, 5], "stdout_total": 0},
        {"stdout": [0, b""], "stdout_total": 0},
        {"stdout": {}, "stdout_total": 0},
        {"stdout": None, "stdout_total": 0},
    ],
)
async def test_captured_output_that_makes_no_sense(output):
    async with performing(RUN) as (liar, stream, task, channel):
        await liar.result(stream, {"exit": 0, **output})
        await is_refused(task, channel)


# -- how a command ended ----------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        {},
        {"exit": -1},
        {"exit": 256},
        {"exit": 2**62},
        {"exit": "0"},
        {"exit": None},
        {"signal": 0},
        {"signal": 128},
        {"signal": -9},
        {"signal": 2**62},
        {"signal": "KILL"},
        {"failed": 0},
        {"failed": -1},
        {"failed": 2**62},
        {"failed": 4096},
        {"failed": "no"},
    ],
)
@pytest.mark.parametrize("op", [RUN, START], ids=["captured", "streamed"])
async def test_an_end_that_no_process_has(op, end):
    async with performing(op) as (liar, stream, task, channel):
        if op is START:
            await liar.say(
                agent.EVENT, stream, agent.encode({"event": "started", "pid": 5})
            )
        await liar.result(stream, end)
        await is_refused(task, channel)


@pytest.mark.parametrize("failed", [7, 11, 22, 2, 4095])
@pytest.mark.parametrize("op", [RUN, START], ids=["captured", "streamed"])
async def test_every_failure_to_start_is_a_result_or_an_error(op, failed):
    async with performing(op) as (liar, stream, task, _):
        await liar.result(stream, {"failed": failed})
        try:
            end = await asyncio.wait_for(task, 5)
        except IsoboxError:
            return
        assert end.exit_code in (126, 127)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "exit"},
        {"event": "exit", "failed": 7},
        {"event": "exit", "failed": 11},
        {"event": "exit", "exit": 1000},
        {"event": "exit", "signal": 1.5},
        {"event": "started"},
        {"event": "started", "pid": "5"},
        {"event": ["exit"]},
        {},
    ],
)
async def test_an_event_that_makes_no_sense(event):
    async with performing(START) as (liar, stream, task, channel):
        await liar.say(agent.EVENT, stream, agent.encode(event))
        await is_refused(task, channel)


@pytest.mark.parametrize("duration", [math.nan, math.inf, -1.0, "long", None, 2**62])
async def test_a_duration_that_no_command_takes_harms_nobody(duration):
    async with performing(RUN) as (liar, stream, task, _):
        await liar.result(stream, {"exit": 0, "duration": duration})
        assert (await task).exit_code == 0


# -- refusals ---------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS, ids=named)
@pytest.mark.parametrize(
    "refusal",
    [
        {},
        {"code": 5, "message": 5, "errno": "x"},
        {"code": "storage", "errno": 2**62},
        {"code": "storage", "errno": -(2**62)},
        {"code": "storage", "errno": 28},
        {"code": "mismatch", "message": "nonsense"},
        {"code": "missing", "message": "\0" * 60_000},
        {"code": "no such code"},
    ],
    ids=lambda value: "",
)
async def test_any_refusal_is_an_error_of_the_tree(op, refusal):
    async with performing(op) as (liar, stream, task, _):
        await liar.say(agent.ERROR, stream, agent.encode(refusal))
        with pytest.raises(IsoboxError) as error:
            await asyncio.wait_for(task, 5)
        assert len(str(error.value)) < 2000


async def test_a_read_that_breaks_off_is_never_a_whole_file():
    async with performing(READ) as (liar, stream, task, _):
        await liar.say(agent.DATA, stream, data(0, 100))
        await liar.say(agent.ERROR, stream, agent.encode({"code": "missing"}))
        with pytest.raises(PathMissingError):
            await asyncio.wait_for(task, 5)


# -- entries and matches ----------------------------------------------------------


def entry(
    path: str | bytes,
    *,
    kind: bytes = b"f",
    target: bytes = b"",
    digest: bytes = b"",
    lengths: tuple[int, int, int] | None = None,
) -> bytes:
    raw = path.encode() if isinstance(path, str) else path
    dlen, plen, tlen = lengths or (len(digest), len(raw), len(target))
    head = agent.ENTRY.pack(kind, 0o644, 0, 0, 5, 0, dlen, plen, tlen)
    return head + digest + raw + target


OUTSIDE = [
    "/etc/passwd",
    "",
    "relative",
    ROOT + "d/neighbour",
    f"{ROOT}/../etc/passwd",
    f"{ROOT}/a/../../etc",
    f"{ROOT}/..",
    f"{ROOT}/nul\0",
]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_an_entry_outside_of_what_was_asked(path):
    async with performing(SCAN) as (liar, stream, task, channel):
        await liar.say(agent.DATA, stream, b"\0" + entry(path))
        await is_refused(task, channel)


@pytest.mark.parametrize("path", OUTSIDE)
async def test_a_match_outside_of_what_was_asked(path):
    async with performing(SEARCH) as (liar, stream, task, channel):
        raw = path.encode()
        await liar.say(
            agent.DATA, stream, b"\0" + agent.MATCH.pack(1, len(raw), 0, 0, 0) + raw
        )
        await liar.result(stream, {"files": 1})
        await is_refused(task, channel)


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("op", [WRITE, EDIT], ids=named)
async def test_it_wrote_elsewhere(op, path):
    async with performing(op) as (liar, stream, task, channel):
        await liar.result(stream, {"count": 1, "entry": entry(path)})
        await is_refused(task, channel)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"entry": b""},
        {"entry": "x"},
        {"entry": entry(FILE) * 2, "count": 1},
        {"entry": entry(FILE)[:-1], "count": 1},
        {"entry": None, "count": 1},
    ],
)
@pytest.mark.parametrize("op", [WRITE, EDIT], ids=named)
async def test_it_does_not_say_what_it_wrote(op, answer):
    async with performing(op) as (liar, stream, task, channel):
        await liar.result(stream, answer)
        await is_refused(task, channel)


@pytest.mark.parametrize(
    "raw",
    [
        entry(FILE, kind=b"x"),
        entry(FILE, kind=b"\0"),
        entry(FILE)[:-1],
        entry(FILE) + b"\0",
        entry(FILE, digest=b"short"),
        entry(FILE, kind=b"l", target=b"x" * 8193),
        entry(FILE, lengths=(0, 2**32 - 1, 0)),
        entry(FILE, lengths=(0, 2**32 - 1, 2**32 - 1)),
        entry(FILE, lengths=(255, 0, 0)),
        entry(ROOT + "/" + "x" * 9000),
        b"\0",
    ],
    ids=lambda raw: "",
)
async def test_entries_that_are_none(raw):
    async with performing(SCAN) as (liar, stream, task, channel):
        await liar.say(agent.DATA, stream, b"\0" + raw)
        await is_refused(task, channel)


async def test_an_entry_without_end_is_refused_by_its_end():
    async with performing(SCAN) as (liar, stream, task, channel):
        await liar.say(agent.DATA, stream, b"\0" + entry(FILE)[:10])
        await is_refused(task, channel)


@pytest.mark.parametrize("limit", [0, 1, 10])
async def test_more_entries_than_the_limit(limit):
    async with performing(ops.Scan(path=ROOT, limit=limit)) as (
        liar,
        stream,
        task,
        channel,
    ):
        count = max(limit, 1) + 1
        raw = b"".join(entry(f"{ROOT}/{number}") for number in range(count))
        await liar.say(agent.DATA, stream, b"\0" + raw)
        await is_refused(task, channel)


@pytest.mark.parametrize("count", [0, 2])
async def test_one_path_is_described_once(count):
    async with performing(ops.Scan(path=FILE, depth=0)) as (
        liar,
        stream,
        task,
        channel,
    ):
        if count:
            await liar.say(agent.DATA, stream, b"\0" + entry(FILE) * count)
        with contextlib.suppress(OSError):
            await liar.result(stream, {"truncated": False})
        await is_refused(task, channel)


async def test_matches_beyond_the_limit_are_not_kept():
    async with performing(ops.Search(path=ROOT, pattern="x", limit=5)) as (
        liar,
        stream,
        task,
        _,
    ):
        raw = ROOT.encode()
        one = agent.MATCH.pack(1, len(raw), 0, 0, 0) + raw
        pieces = (agent.PIECE - 1) // len(one)
        await liar.say(agent.DATA, stream, b"\0" + one * pieces)
        await liar.result(stream, {"files": -(2**62), "skipped": [5, b"\xff", None]})
        assert len((await task).matches) == 5


@pytest.mark.parametrize(
    "raw",
    [
        b"\0",
        agent.MATCH.pack(1, 2**32 - 1, 0, 0, 0),
        agent.MATCH.pack(1, 0, 2**32 - 1, 65535, 65535),
        agent.MATCH.pack(1, 10, 0, 65535, 0) + b"/workspace",
    ],
)
async def test_matches_that_are_none(raw):
    async with performing(SEARCH) as (liar, stream, task, channel):
        await liar.say(agent.DATA, stream, b"\0" + raw)
        await liar.result(stream, {})
        await is_refused(task, channel)


# -- stalling ---------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS, ids=named)
async def test_a_stalled_operation_is_cancelled_within_five_seconds(op, monkeypatch):
    # The same code with less patience: eleven times five seconds would be long.
    monkeypatch.setattr("isobox._channel.stream.deadline", sooner)
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(whole(op, sandbox))
        await liar.opened()
        began = time.monotonic()
        task.cancel()
        await asyncio.wait([task], timeout=10)
        assert task.done()
        assert time.monotonic() - began < 5
        assert isinstance(sandbox.channel.failure, SandboxLostError)
        while said := await liar.hear():
            if said[0] == agent.CONTROL:
                break
        assert said is not None
        assert agent.decode(said[2]) == {"do": "cancel"}


def sooner(delay: float) -> AbstractAsyncContextManager[object]:
    assert delay == 5
    return deadline(0.05)


async def test_the_patience_is_really_five_seconds():
    async with performing(READ) as (_, _stream, task, channel):
        began = time.monotonic()
        task.cancel()
        await asyncio.wait([task])
        assert 4.9 < time.monotonic() - began < 5.5
        assert channel.failure is not None


async def test_a_flood_does_not_delay_a_cancel(monkeypatch):
    monkeypatch.setattr("isobox._channel.stream.deadline", sooner)
    async with performing(PULL) as (liar, stream, task, channel):
        await liar.say(agent.DATA, stream, data(0, 10))

        async def flood() -> None:
            with contextlib.suppress(OSError):
                while True:
                    await liar.say(agent.DATA, stream, data(0, agent.WINDOW // 8))

        flooding = asyncio.create_task(flood())
        await anyio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.done()
        await asyncio.wait([flooding], timeout=5)
        assert channel.failure is not None


async def test_a_writer_waits_for_credit_and_is_cancelled(monkeypatch):
    monkeypatch.setattr("isobox._channel.stream.deadline", sooner)
    op = ops.Write(path=FILE, body=bytes(8 << 20))
    async with performing(op) as (liar, stream, task, channel):
        received = 0
        while received < agent.WINDOW:
            said = await liar.hear()
            assert said is not None
            assert said[:2] == (agent.DATA, stream)
            received += len(said[2]) - 1
        assert received == agent.WINDOW
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(liar.hear(), 0.05)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.done()
        assert channel.failure is not None


async def test_a_guest_that_reads_nothing_bounds_what_is_queued():
    body = bytes(64 << 20)
    async with lied_to() as (_, sandbox):
        tasks = [
            asyncio.create_task(
                ops.Write(path=f"{FILE}{number}", body=body).on(sandbox)
            )
            for number in range(4)
        ]
        await anyio.sleep(0.1)
        transport = sandbox.channel._transport
        assert transport is not None
        assert transport.get_write_buffer_size() <= 4 * (2 * agent.PIECE + agent.WINDOW)
        sandbox.channel.fail(SandboxLostError("enough"))
        for task in tasks:
            with pytest.raises(SandboxLostError):
                await asyncio.wait_for(task, 5)


async def test_a_command_that_outlives_its_timeout_ends_the_sandbox(monkeypatch):
    monkeypatch.setattr("isobox._channel.process._GRACE", 0.1)
    op = ops.Spawn(argv=("true",), cwd=ROOT, capture=10, timeout=0.1)
    async with performing(op) as (_, _stream, task, channel):
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(task, 5)
        assert channel.failure is not None


async def test_a_kill_that_is_not_answered_ends_the_sandbox(monkeypatch):
    monkeypatch.setattr("isobox._channel.process._GRACE", 0.1)
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(START.on(sandbox))
        stream, _ = await liar.opened()
        await liar.say(
            agent.EVENT, stream, agent.encode({"event": "started", "pid": 5})
        )
        process = await task
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(process.kill(), 5)
        await process.aclose()


async def test_silence_is_asked_about_and_then_the_end(monkeypatch):
    monkeypatch.setattr("isobox._channel.channel._QUIET", 0.05)
    monkeypatch.setattr("isobox._channel.channel._DEAD", 0.3)
    async with performing(READ) as (liar, _stream, task, _):
        with pytest.raises(SandboxLostError, match="does not answer"):
            await asyncio.wait_for(task, 5)
        kinds = {said[0] async for said in everything(liar)}
        assert agent.PING in kinds


async def everything(liar: Liar) -> AsyncIterator[tuple[int, int, bytes]]:
    while said := await liar.hear():
        yield said


async def test_one_that_answers_pings_may_take_its_time(monkeypatch):
    monkeypatch.setattr("isobox._channel.channel._QUIET", 0.05)
    monkeypatch.setattr("isobox._channel.channel._DEAD", 0.2)
    async with performing(REMOVE) as (liar, stream, task, _):
        for _ in range(6):
            said = await liar.hear()
            assert said is not None
            if said[0] == agent.PING:
                await liar.say(agent.PONG, 0, said[2])
        await liar.result(stream, {})
        await task


async def test_each_ping_has_one_answer(monkeypatch):
    monkeypatch.setattr("isobox._channel.channel._QUIET", 0.05)
    async with performing(REMOVE) as (liar, _, task, channel):
        said = await liar.hear()
        assert said is not None
        assert said[0] == agent.PING
        # More than can have been asked meanwhile.
        await liar.shout(frame(agent.PONG, 0) * 10_000)
        await is_refused(task, channel)


# -- one workspace and another ------------------------------------------------------


async def test_a_hostile_workspace_does_not_disturb_another(tmp_path):
    async def script(liar: Liar, stream: int, fields: dict[str, Any]) -> None:
        if fields["op"] == "spawn":
            await liar.say(agent.EVENT, stream, STARTED)
            raw = frame(agent.DATA, stream, data(agent.STDOUT, 1000))
            asyncio.ensure_future(flooding(liar, raw))  # noqa: RUF006
        elif fields["op"] == "read":
            await liar.say(agent.DATA, stream, data(0, agent.PIECE) * 2)

    async with LocalWorkspace(tmp_path) as honest, LiarWorkspace(script) as hostile:
        process = await hostile.start(["flood"])
        for number in range(20):
            result = await honest.run(["echo", str(number)], timeout=20)
            assert result.stdout == f"{number}\n"
        with pytest.raises(SandboxLostError):
            await hostile.read_bytes("x")
        with pytest.raises(SandboxLostError):
            await process.wait()
        await honest.write("f", b"x" * 300_000)
        assert await honest.read_bytes("f") == b"x" * 300_000


# -- download: a tar stream that was made to harm -----------------------------------


def serving(raw: bytes) -> Script:
    async def script(liar: Liar, stream: int, fields: dict[str, Any]) -> None:
        if fields["op"] == "scan":
            await liar.say(agent.DATA, stream, b"\0" + entry(fields["path"], kind=b"d"))
            await liar.result(stream, {"truncated": False})
        elif fields["op"] == "pull":
            asyncio.ensure_future(sending(liar, stream, raw))  # noqa: RUF006

    return script


async def sending(liar: Liar, stream: int, raw: bytes) -> None:
    """Send by and by, as the window of a host that reads allows."""
    room = agent.WINDOW
    seen = len(liar.heard)
    with contextlib.suppress(OSError):
        for at in range(0, len(raw), 60_000):
            piece = raw[at : at + 60_000]
            while room < len(piece):
                await anyio.sleep(0.001)
                for kind, number, payload in liar.heard[seen:]:
                    if kind == agent.CREDIT and number == stream:
                        room += int.from_bytes(payload[1:], "big")
                seen = len(liar.heard)
            room -= len(piece)
            await liar.say(agent.DATA, stream, b"\0" + piece)
        await liar.result(stream, {})


def tar(
    *members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes], **options: Any
) -> bytes:
    file = io.BytesIO()
    options.setdefault("format", tarfile.PAX_FORMAT)
    with tarfile.open(fileobj=file, mode="w", **options) as out:
        for each in members:
            info, content = each if isinstance(each, tuple) else (each, b"")
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return file.getvalue()


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", **pax: str
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o644
    info.pax_headers = pax
    return info


@pytest.fixture
def place(tmp_path):
    """A directory to download into, beside what must not change."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "into").mkdir()
    (tmp_path / "into/mine").write_text("mine")
    yield tmp_path / "into"
    assert sorted(os.listdir(tmp_path)) == ["into", "secret"]
    assert (tmp_path / "secret").read_text() == "secret"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert (tmp_path / "secret").stat().st_nlink == 1
    stays_inside(tmp_path / "into")


def stays_inside(top: os.PathLike[str]) -> None:
    """Every link of a tree leads to somewhere in it, and nothing is special."""
    root = os.path.realpath(top)
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            real = os.path.realpath(path)
            assert real == root or real.startswith(root + "/"), path
            mode = os.lstat(path).st_mode
            assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
            assert not mode & 0o7000 or stat.S_ISLNK(mode)


async def download(raw: bytes, place: os.PathLike[str]) -> None:
    async with LiarWorkspace(serving(raw)) as workspace:
        await workspace.download(".", place)


S, L, D = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE

SPARSE: dict[str, Any] = {"GNU.sparse.size": str(1 << 20), "GNU.sparse.map": "0,0"}

HOSTILE = {
    "absolute": [member("/secret")],
    "up": [member("../secret")],
    "up in the middle": [member("a/../../secret")],
    "absolute link": [member("l", S, "/etc/passwd")],
    "link up": [member("l", S, "../secret")],
    "link up from below": [member("d/l", S, "../../secret")],
    "link chain": [member("x", S, "."), member("y", S, "x/.."), member("z", S, "y/..")],
    "link chain below": [
        member("d", D),
        member("d/x", S, ".."),
        member("y", S, "d/x/../.."),
    ],
    "through a link": [member("l", S, "."), (member("l/f"), b"x")],
    "directory over a link": [member("l", S, "."), member("l", D)],
    "hard link up": [member("h", L, "../secret")],
    "absolute hard link": [member("h", L, "/etc/passwd")],
    "hard link through a link": [member("l", S, "."), member("h", L, "l/mine")],
    "hard link to a link": [member("l", S, "mine"), member("h", L, "l")],
    "hard link to a directory": [member("d", D), member("h", L, "d")],
    "hard link to nothing": [member("h", L, "absent/x")],
    "hard link to the top": [member("h", L, ".")],
    "fifo": [member("p", tarfile.FIFOTYPE)],
    "character device": [member("c", tarfile.CHRTYPE)],
    "block device": [member("b", tarfile.BLKTYPE)],
    "no name": [member("")],
    "the top as a file": [(member("."), b"x")],
    "a name with a NUL": [member("x", path="a\0b")],
    "a link with a NUL": [member("l", S, "x", linkpath="a\0b")],
    "a name as pax": [member("x", path="../secret")],
    "a link as pax": [member("l", S, "x", linkpath="../secret")],
    "time without end": [member("f", mtime="inf")],
    "time that is no number": [member("f", mtime="nan")],
    "time beyond all": [member("f", mtime="1e300")],
    "time of a directory": [member("d", D, mtime="-1e300")],
    "sparse": [member("f", **SPARSE)],
    "a file below a file": [(member("f"), b"x"), (member("f/g"), b"x")],
    "a name too long": [member("x" * 300)],
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_a_harmful_archive_is_refused(case, place):
    with pytest.raises(IsoboxError) as error:
        await download(tar(*HOSTILE[case]), place)
    assert not isinstance(error.value, SandboxLostError)
    if case not in ("hard link to nothing", "a name too long"):
        assert isinstance(error.value, ArchiveError)


async def test_links_that_stay_inside_come(place):
    await download(
        tar(
            member("d", D),
            (member("d/f"), b"x"),
            member("d/l", S, "./f"),
            member("d/up", S, "../d/f"),
            member("around", S, "d"),
            member("dangling", S, "nothing/here"),
            member("hard", L, "d/f"),
        ),
        place,
    )
    assert (place / "d/up").read_bytes() == b"x"
    assert (place / "hard").stat().st_ino == (place / "d/f").stat().st_ino


async def test_set_id_bits_do_not_come(place):
    info, folder = member("f"), member("d", D)
    info.mode, folder.mode = 0o7777, 0o7777
    await download(tar(info, folder), place)
    assert stat.S_IMODE((place / "f").stat().st_mode) == 0o755
    assert stat.S_IMODE((place / "d").stat().st_mode) == 0o755


async def test_a_link_on_the_host_is_replaced_not_followed(place):
    (place / "f").symlink_to("../secret")
    (place / "d").symlink_to("..")
    await download(tar((member("f"), b"x")), place)
    assert (place / "f").read_bytes() == b"x"
    with pytest.raises(ArchiveError):
        await download(tar((member("d/secret"), b"x")), place)
    (place / "d").unlink()


async def test_names_that_are_no_text_come(place):
    await download(tar((member("\udcff\n"), b"x"), encoding="utf-8"), place)
    assert b"\xff\n" in os.listdir(os.fsencode(place))


@pytest.mark.parametrize(
    "raw", [b"", bytes(1024), b"x" * 512, b"x" * 5000, os.urandom(20_000)]
)
async def test_what_is_no_archive_brings_nothing(raw, place):
    with contextlib.suppress(ArchiveError):
        await download(raw, place)
    assert os.listdir(place) == ["mine"]


@pytest.mark.parametrize("cut", [100, 512, 600, 5000])
async def test_an_archive_that_ends_too_soon_is_refused(cut, place):
    raw = tar((member("f"), bytes(20_000)))
    with pytest.raises(ArchiveError):
        await download(raw[:cut], place)


async def test_the_sandbox_ends_in_the_middle(place):
    async def script(liar: Liar, stream: int, fields: dict[str, Any]) -> None:
        if fields["op"] == "scan":
            await serving(b"")(liar, stream, fields)
        else:
            await liar.say(
                agent.DATA, stream, b"\0" + tar((member("f"), bytes(20_000)))[:5000]
            )
            liar.sock.close()

    async with LiarWorkspace(script) as workspace:
        with pytest.raises(SandboxLostError):
            await workspace.download(".", place)


@pytest.mark.parametrize("how", ["asyncio", "anyio"])
async def test_a_download_that_stalls_is_cancelled(how, place, monkeypatch):
    monkeypatch.setattr("isobox._channel.stream.deadline", patient_or_sooner)

    async def script(liar: Liar, stream: int, fields: dict[str, Any]) -> None:
        if fields["op"] == "scan":
            await serving(b"")(liar, stream, fields)
        else:
            await liar.say(
                agent.DATA, stream, b"\0" + tar((member("f"), bytes(20_000)))[:5000]
            )

    async with LiarWorkspace(script) as workspace:
        began = time.monotonic()
        if how == "anyio":
            with anyio.move_on_after(0.2):
                await workspace.download(".", place)
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(workspace.download(".", place), 0.2)
        assert time.monotonic() - began < 5
        await until(lambda: workspace.channel.failure is not None)


def patient_or_sooner(delay: float) -> AbstractAsyncContextManager[object]:
    return deadline(0.05 if delay == 5 else delay)


def header(info: tarfile.TarInfo, size: int) -> bytes:
    """Return one block that claims `size` bytes behind it."""
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    ],
)
async def test_a_header_of_many_gigabytes_is_not_gathered(kind, place):
    raw = header(member("h", kind), 2**33 - 1) + bytes(8 << 20)
    peak = Peak()
    with pytest.raises(ArchiveError, match="too long"):
        await download(raw, place)
    assert peak.growth < 48 << 20


async def test_headers_upon_headers_are_refused(place):
    one = header(member("h", tarfile.XHDTYPE), 12) + b"12 path=abc\n".ljust(512, b"\0")
    with pytest.raises(ArchiveError):
        await download(one * 2000, place)


async def test_a_sparse_map_without_end_is_refused(place):
    info = member("f", tarfile.GNUTYPE_SPARSE)
    raw = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    raw[482] = 1  # more of the map follows
    raw[148:156] = b"%06o\0 " % (sum(raw[:148]) + 8 * 32 + sum(raw[156:512]))
    more = b"%011o\0%011o\0" % (0, 0) * 21 + b"\1" + bytes(7)
    with pytest.raises(ArchiveError):
        await download(bytes(raw) + more * 20_000, place)


async def test_global_headers_do_not_pile_up(place):
    one = header(member("h", tarfile.XGLTYPE), 12) + b"12 abou=abc\n".ljust(512, b"\0")
    with pytest.raises(ArchiveError, match="too long"):
        await download(one * 20_000, place)


async def test_a_size_below_nothing_is_refused(place):
    raw = bytearray(header(member("f"), 0))
    raw[124:136] = b"\xff" * 12
    raw[148:156] = b"%06o\0 " % (sum(raw[:148]) + 8 * 32 + sum(raw[156:512]))
    with anyio.fail_after(10):
        with contextlib.suppress(ArchiveError):
            await download(bytes(raw) * 10, place)


def unpack_whole(raw: bytes, place: os.PathLike[str]) -> int:
    return archive.unpack(io.BytesIO(raw), os.fspath(place))


async def test_a_hundred_thousand_members_cost_no_memory(place):
    raw = header(member("d", D), 0) * 100_000 + bytes(1024)
    peak = Peak()
    assert await anyio.to_thread.run_sync(unpack_whole, raw, place) == 100_000
    assert peak.growth < 32 << 20


def test_the_words_of_this_file_are_the_protocols():
    assert struct.calcsize(agent.HEADER.format) == 9
    assert HELLO["version"] == agent.VERSION
