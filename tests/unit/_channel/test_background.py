"""Tasks that one task starts and another ends."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import anyio
import pytest

from isobox._channel.background import Background

pytestmark = pytest.mark.anyio

WHO: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
async def background():
    made = Background()
    await made.open()
    yield made
    await made.aclose()


async def test_a_callback_of_the_loop_starts_one(background):
    done = anyio.Event()

    async def job():
        await anyio.sleep(0)
        done.set()

    asyncio.get_running_loop().call_soon(background.start, job)
    await done.wait()


async def test_all_are_cancelled_and_waited_for(background):
    ended = []

    async def job():
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0)
            ended.append(1)

    for _ in range(3):
        background.start(job)
    await anyio.lowlevel.checkpoint()
    background.start(job)  # which has not begun by then
    await background.aclose()
    assert len(ended) == 4


async def test_what_is_cancelled_stays_so(background):
    refused = []

    async def job():
        try:
            await anyio.sleep_forever()
        finally:
            try:
                await anyio.sleep_forever()
            finally:
                refused.append(1)

    background.start(job)
    await anyio.lowlevel.checkpoint()
    await background.aclose()
    assert refused == [1]


async def test_one_that_fails_ends_the_others():
    background = Background()
    await background.open()
    ended = anyio.Event()

    async def wait():
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def fail():
        raise ValueError("no")

    background.start(wait)
    background.start(fail)
    await ended.wait()
    background.start(wait)
    with pytest.raises(ExceptionGroup) as raised:
        await background.aclose()
    assert [str(error) for error in raised.value.exceptions] == ["no"]
    await background.aclose()


async def test_nothing_starts_after_the_end(background):
    began = []

    async def job():
        began.append(1)

    await background.aclose()
    background.start(job)
    await anyio.lowlevel.checkpoint()
    assert began == []


async def test_a_task_has_the_context_of_who_opened_it():
    WHO.set("opener")
    background = Background()
    await background.open()
    WHO.set("starter")
    seen = []
    done = anyio.Event()

    async def job():
        seen.append(WHO.get())
        WHO.set("task")
        done.set()

    for _ in range(2):
        done = anyio.Event()
        background.start(job)
        await done.wait()
    await background.aclose()
    assert seen == ["opener", "opener"]
    assert WHO.get() == "starter"
