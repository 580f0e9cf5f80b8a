"""Streams, inboxes, and the processes and bodies over them, with an honest guest."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._channel.liar import ROOT, lied_to

from isobox._channel.background import Background, collapsed
from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal, Inbox, refusal
from isobox._core import ops
from isobox._core.stack import CallerError
from isobox._guest import agent
from isobox.errors import (
    ConflictError,
    InvalidArgumentError,
    IsoboxError,
    NotRegularFileError,
    PathMissingError,
    PathOutsideError,
    ProtocolError,
    SandboxLostError,
    StorageError,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio

START = ops.Spawn(argv=("cat",), cwd=ROOT, stdin=True)
RUN = ops.Spawn(argv=("cat",), cwd=ROOT, capture=100)


def event(**fields: object) -> bytes:
    return agent.encode(fields)


# -- inboxes ----------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans()), max_size=60))
def test_an_inbox_holds_no_more_than_its_window(steps):
    box, granted, sent = Inbox(1000), 1000, 0
    for size, taking in steps:
        if taking and box:
            _, grant = box.take()
            granted += grant
        elif sent + size <= granted:
            box.put(bytes(size))
            sent += size
        else:
            with pytest.raises(ProtocolError):
                box.put(bytes(size))
        assert box._held <= 1000
        assert granted - sent <= 1000


def test_after_its_end_an_inbox_takes_nothing():
    box = Inbox(10)
    box.end()
    with pytest.raises(ProtocolError):
        box.put(b"x")


async def test_an_inbox_wakes_its_reader():
    box = Inbox(10)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(box.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        box.put(b"x")
    assert box.drain() == b"x"
    box.end()
    await box.wait()


# -- operations -------------------------------------------------------------------


async def test_each_operation_has_a_stream_of_its_own():
    async with lied_to() as (liar, sandbox):
        tasks = [
            asyncio.create_task(ops.Remove(path=f"{ROOT}/{n}").on(sandbox))
            for n in range(3)
        ]
        opened = [await liar.opened() for _ in tasks]
        assert len({stream for stream, _ in opened}) == 3
        for stream, fields in reversed(opened):
            if fields["path"].endswith(b"1"):
                await liar.say(agent.ERROR, stream, agent.encode({"code": "missing"}))
            else:
                await liar.result(stream, {})
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [type(None), PathMissingError, type(None)]
        assert not sandbox.channel._streams


async def test_what_was_consumed_is_granted_again():
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(ops.Read(path=f"{ROOT}/f").on(sandbox))
        stream, _ = await liar.opened()
        await liar.say(agent.DATA, stream, b"\0x")
        body = await task
        assert await body.receive() == b"x"
        piece = b"\0" + bytes(agent.WINDOW // 8)
        for _ in range(2):
            await liar.say(agent.DATA, stream, piece)
            await body.receive()
        said = await liar.hear()
        assert said == (
            agent.CREDIT, stream, b"\0" + (agent.WINDOW // 4 + 1).to_bytes(4, "big")
        )  # fmt: skip
        await liar.result(stream, {})
        assert await body.receive() == b""
        await body.aclose()


async def test_large_content_is_sent_in_pieces_and_its_end_is_said():
    data = bytes(range(256)) * 2000
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(ops.Write(path=f"{ROOT}/f", body=data).on(sandbox))
        stream, fields = await liar.opened()
        assert fields["body"] is None
        received = b""
        while said := await liar.hear():
            if said[0] == agent.END:
                break
            received += said[2][1:]
        assert received == data
        await liar.say(
            agent.ERROR, stream, agent.encode({"code": "storage", "errno": 28})
        )
        with pytest.raises(StorageError, match="free some space"):
            await task


async def test_an_answer_before_the_end_of_the_content_stops_it():
    async def body():
        while True:
            yield bytes(1000)
            await asyncio.sleep(0)

    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(ops.Write(path=f"{ROOT}/f", body=body()).on(sandbox))
        stream, _ = await liar.opened()
        await liar.say(agent.ERROR, stream, agent.encode({"code": "conflict"}))
        with pytest.raises(ConflictError):
            await asyncio.wait_for(task, 5)


async def test_content_that_fails_cancels_the_operation():
    class MineError(Exception):
        pass

    async def body():
        yield b"x"
        raise MineError

    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(ops.Write(path=f"{ROOT}/f", body=body()).on(sandbox))
        stream, _ = await liar.opened()
        while said := await liar.hear():
            if said[0] == agent.CONTROL:
                break
        await liar.say(agent.ERROR, stream, agent.encode({"code": "cancelled"}))
        with pytest.raises(CallerError) as failed:
            await asyncio.wait_for(task, 5)
        assert isinstance(failed.value.error, MineError)
        assert sandbox.channel.failure is None


async def test_what_is_closed_early_is_cancelled():
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(ops.Read(path=f"{ROOT}/f").on(sandbox))
        stream, _ = await liar.opened()
        await liar.say(agent.DATA, stream, b"\0x")
        body = await task
        closing = asyncio.create_task(body.aclose())
        said = await liar.hear()
        assert said == (agent.CONTROL, stream, event(do="cancel"))
        await liar.say(agent.ERROR, stream, agent.encode({"code": "cancelled"}))
        await asyncio.wait_for(closing, 5)
        assert sandbox.channel.failure is None


@pytest.mark.parametrize(
    "op",
    [
        ops.Spawn(argv=("x",), cwd=ROOT, user="root"),
        ops.Spawn(argv=("x",), cwd=ROOT, limits={"dreams": 1}),
        ops.Spawn(script="x" * ((8 << 20) + 1), cwd=ROOT),
    ],
)
async def test_what_cannot_be_asked_does_not_reach_the_guest(op):
    async with lied_to() as (liar, sandbox):
        with pytest.raises((UnsupportedError, InvalidArgumentError)):
            await op.on(sandbox)
        await ops_remove(liar, sandbox)


async def ops_remove(liar, sandbox):
    """The next that the guest hears of is this one."""
    task = asyncio.create_task(ops.Remove(path=f"{ROOT}/f").on(sandbox))
    stream, fields = await liar.opened()
    assert fields["op"] == "remove"
    await liar.result(stream, {})
    await task


# -- processes --------------------------------------------------------------------


async def started(liar, sandbox, op=START):
    task = asyncio.create_task(op.on(sandbox))
    stream, _ = await liar.opened()
    await liar.say(agent.EVENT, stream, event(event="started", pid=77))
    return await task, stream


async def test_a_process_is_written_to_read_and_waited_for():
    async with lied_to() as (liar, sandbox):
        process, stream = await started(liar, sandbox)
        assert process.pid == 77
        await process.write(b"in")
        assert await liar.hear() == (agent.DATA, stream, b"\0in")
        await process.write_eof()
        assert await liar.hear() == (agent.END, stream, b"\0")
        await liar.say(agent.DATA, stream, b"\1out")
        await liar.say(agent.DATA, stream, b"\2err")
        await liar.say(agent.EVENT, stream, event(event="exit", exit=3))
        assert (await process.wait()).exit_code == 3
        await liar.result(stream, {"exit": 3, "duration": 1.5})
        assert await process.stdout.read() == b"out"
        assert await process.stderr.read() == b"err"
        facts: list[dict[str, object]] = []
        process.on_end(facts.append)
        assert facts[0]["exit_code"] == 3
        await process.aclose()


async def test_what_goes_at_once_goes_whole_or_not_at_all():
    async with lied_to() as (liar, sandbox):
        process, stream = await started(liar, sandbox)
        assert process.write_nowait(b"in")
        assert await liar.hear() == (agent.DATA, stream, b"\0in")
        assert not process.write_nowait(bytes(agent.PIECE + 1))
        for _ in range(agent.WINDOW // agent.PIECE - 1):
            assert process.write_nowait(bytes(agent.PIECE))
            await liar.hear()
        # What was not granted: all of the window but two bytes is taken.
        assert not process.write_nowait(bytes(agent.PIECE))
        assert process.write_nowait(bytes(agent.PIECE - 2))
        await liar.hear()
        assert not process.write_nowait(b"x")
        credit = b"\0" + (1).to_bytes(4, "big")
        await liar.say(agent.CREDIT, stream, credit)
        await process.write(b"x")
        assert await liar.hear() == (agent.DATA, stream, b"\0x")
        await liar.result(stream, {"exit": 0})
        await process.wait()
        with pytest.raises(BrokenPipeError):
            process.write_nowait(b"x")


async def test_nothing_goes_at_once_behind_what_is_queued():
    async with lied_to() as (liar, sandbox):
        process, stream = await started(liar, sandbox)
        channel = process.stream.channel
        channel.pause_writing()
        assert not process.write_nowait(b"in")
        channel.resume_writing()
        assert process.write_nowait(b"in")
        assert await liar.hear() == (agent.DATA, stream, b"\0in")
        await liar.result(stream, {"exit": 0})
        await process.wait()


async def test_a_process_is_signalled_and_resized():
    async with lied_to() as (liar, sandbox):
        process, stream = await started(liar, sandbox)
        await process.signal(15)
        assert await liar.hear() == (
            agent.CONTROL,
            stream,
            event(do="signal", signal=15),
        )
        await process.resize(100, 50)
        assert await liar.hear() == (
            agent.CONTROL, stream, event(do="resize", columns=100, rows=50)
        )  # fmt: skip
        for number in (0, 65, -1):
            with pytest.raises(InvalidArgumentError):
                await process.signal(number)
        for size in ((0, 1), (1, 65536)):
            with pytest.raises(InvalidArgumentError):
                await process.resize(*size)
        await liar.result(stream, {"exit": 0})
        await process.wait()


async def test_a_process_without_input_is_not_written_to():
    async with lied_to() as (liar, sandbox):
        op = ops.Spawn(argv=("x",), cwd=ROOT)
        process, stream = await started(liar, sandbox, op)
        with pytest.raises(InvalidArgumentError):
            await process.write(b"x")
        with pytest.raises(InvalidArgumentError):
            process.write_nowait(b"x")
        await liar.result(stream, {"signal": 9})
        end = await process.wait()
        assert (end.exit_code, end.signal) == (137, "SIGKILL")


async def test_a_program_that_is_missing_says_so_on_standard_error():
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(RUN.on(sandbox))
        stream, _ = await liar.opened()
        await liar.result(stream, {"failed": 2})
        async with await task as process:
            end = await process.wait()
        assert end.exit_code == 127
        assert end.stderr is not None
        assert b"cat: No such file" in end.stderr.data


async def test_the_loss_of_the_sandbox_is_never_an_end_of_output():
    async with lied_to() as (liar, sandbox):
        process, stream = await started(liar, sandbox)
        await liar.say(agent.DATA, stream, b"\1out")
        assert await process.stdout.receive() == b"out"
        liar.sock.close()
        with pytest.raises(SandboxLostError):
            await process.stdout.receive()
        with pytest.raises(SandboxLostError):
            await process.wait()
        with pytest.raises(SandboxLostError):
            await process.write(b"x")
        with pytest.raises(SandboxLostError):
            await process.kill()
        with pytest.raises(SandboxLostError):
            await RUN.on(sandbox)
        await process.aclose()


async def test_each_caller_gets_an_error_of_its_own():
    async with lied_to() as (liar, sandbox):
        liar.sock.close()
        errors = []
        with anyio.fail_after(5):
            for _ in range(2):
                with pytest.raises(SandboxLostError) as error:
                    await ops.Remove(path=ROOT).on(sandbox)
                errors.append(error.value)
        assert errors[0] is not errors[1]


async def test_closing_tells_whoever_waits():
    async with lied_to() as (liar, sandbox):
        task = asyncio.create_task(ops.Remove(path=ROOT).on(sandbox))
        await liar.opened()
        await sandbox.aclose()
        with pytest.raises(SandboxLostError, match="closed"):
            await task
        await sandbox.aclose()


async def test_a_listener_is_told_of_what_it_asked_for():
    async with lied_to() as (liar, sandbox):
        accepted: list[object] = []
        sandbox.channel.listeners[1] = lambda stream, fields: accepted.append(
            (stream, fields)
        )
        number = agent.ACCEPTED | 1
        await liar.say(agent.ACCEPT, number, event(listener=1))
        with anyio.fail_after(5):
            while not accepted:
                await asyncio.sleep(0.001)
        await liar.say(agent.ACCEPT, number, event(listener=1))
        with anyio.fail_after(5):
            while sandbox.channel.failure is None:
                await asyncio.sleep(0.001)
        assert isinstance(sandbox.channel.failure, ProtocolError)


# -- refusals ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("missing", PathMissingError),
        ("outside", PathOutsideError),
        ("not_regular", NotRegularFileError),
        ("storage", StorageError),
        ("conflict", ConflictError),
        ("invalid", InvalidArgumentError),
        ("too_long", InvalidArgumentError),
        ("internal", SandboxLostError),
        ("anything else", SandboxLostError),
    ],
)
def test_a_refusal_becomes_an_error_with_op_and_path(code, kind):
    error = error_for(GuestRefusal(code, "why", 5), op="read", path="/x")
    assert type(error) is kind
    assert (error.op, error.path) == ("read", "/x")


@given(
    st.dictionaries(
        st.sampled_from(["code", "message", "errno"]),
        st.none() | st.text() | st.integers(-(2**63), 2**63 - 1) | st.binary(),
    )
)
def test_any_refusal_becomes_an_error(fields):
    error = error_for(refusal(fields), op="read", path="/x")
    assert isinstance(error, IsoboxError)
    assert str(error)


# -- background -------------------------------------------------------------------


async def test_a_background_ends_its_tasks_when_it_is_closed():
    background = Background()
    await background.open()
    ended = asyncio.Event()

    async def job():
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    background.start(job)
    await asyncio.sleep(0)
    await background.aclose()
    assert ended.is_set()
    await background.aclose()


async def test_a_background_is_closed_by_another_task():
    background = Background()
    await background.open()
    await asyncio.create_task(background.aclose())


async def test_a_group_of_one_error_is_that_error():
    with pytest.raises(KeyError), collapsed():
        async with anyio.create_task_group():
            raise KeyError
    with pytest.raises(KeyError), collapsed():
        raise KeyError
    with collapsed():
        pass
