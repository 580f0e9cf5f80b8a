"""Time limits of what is cleaned up."""

from __future__ import annotations

import asyncio

import pytest

from isobox._channel.deadline import Deadline, deadline

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

EACH = pytest.mark.parametrize("limit", [deadline, Deadline])


@EACH
async def test_what_takes_too_long_is_ended(limit):
    with pytest.raises(TimeoutError):
        async with limit(0.01):
            await asyncio.sleep(3600)
    await asyncio.sleep(0)


@EACH
async def test_what_ends_in_time_goes_on(limit):
    async with limit(3600):
        await asyncio.sleep(0)


@EACH
async def test_what_fails_fails_as_it_does(limit):
    with pytest.raises(ZeroDivisionError):
        async with limit(3600):
            raise ZeroDivisionError


@EACH
async def test_it_holds_while_the_task_is_being_cancelled(limit):
    ended = []

    async def cleaned_up():
        try:
            await asyncio.sleep(3600)
        finally:
            try:
                async with limit(0.01):
                    await asyncio.sleep(3600)
            except TimeoutError:
                ended.append("in time")

    task = asyncio.create_task(cleaned_up())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["in time"]


@EACH
async def test_who_is_cancelled_within_is_cancelled(limit):
    async def limited():
        async with limit(3600):
            await asyncio.sleep(3600)

    task = asyncio.create_task(limited())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
