"""The clocks of a manager."""

from __future__ import annotations

import asyncio

import pytest

from isobox.manager.clock import SystemClock
from isobox.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


async def calm():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_virtual_time_moves_when_it_is_told():
    clock = VirtualClock(now=100.0)
    sleeping = asyncio.ensure_future(clock.sleep(10))
    await calm()
    clock.advance(9.5)
    await calm()
    assert not sleeping.done()
    clock.advance(0.5)
    await sleeping
    assert (clock.time(), clock.monotonic()) == (110.0, 10.0)


async def test_what_is_due_happens_in_its_order_and_at_its_time():
    clock, seen = VirtualClock(), []
    for seconds in (3, 1, 2, 1):
        clock.call_later(seconds, lambda: seen.append(clock.monotonic()))
    clock.call_later(1, lambda: seen.append("cancelled")).cancel()
    assert clock.next == 1
    clock.advance(10)
    assert seen == [1, 1, 2, 3]
    assert clock.next is None


@pytest.mark.parametrize("make", [SystemClock, VirtualClock])
class TestWait:
    async def test_it_ends_with_the_future(self, make):
        future = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(make().wait(future, 1000))
        await calm()
        future.set_result(None)
        assert await waiting

    async def test_who_gives_up_cancels_only_itself(self, make):
        future = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(make().wait(future))
        await calm()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not future.cancelled()

    async def test_no_time_is_a_look(self, make):
        future = asyncio.get_running_loop().create_future()
        assert not await make().wait(future, 0)
        future.set_result(None)
        assert await make().wait(future, 0)


async def test_a_wait_ends_with_its_time():
    clock = VirtualClock()
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(clock.wait(future, 5))
    await calm()
    clock.advance(5)
    assert not await waiting
    assert not future.done()


async def test_this_machines_clock_sleeps():
    clock = SystemClock()
    await clock.sleep(0.01)
    assert clock.time() > 1_700_000_000
