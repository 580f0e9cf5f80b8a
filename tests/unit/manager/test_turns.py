"""Turns: so many at once, fair between users."""

from __future__ import annotations

import asyncio

import pytest

from isobox.errors import QuotaError
from isobox.manager.turns import Turns
from isobox.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


async def calm():
    for _ in range(20):
        await asyncio.sleep(0)


class Line:
    """Who got a turn, in order; each keeps it until it is told."""

    def __init__(self, *, most=1, rate=None, limit=100):
        self.clock = VirtualClock()
        self.turns = Turns(self.clock, most=most, rate=rate, limit=limit)
        self.got = []
        self.full = {}
        self.over = {}
        self.have = {}
        self.tasks = []

    async def ask(self, user, name=None):
        name = name or user
        self.over[name] = asyncio.Event()
        self.tasks.append(task := asyncio.create_task(self._have(user, name)))
        await calm()
        return task

    async def _have(self, user, name):
        with self.turns.ticket(user) as ticket:
            while True:
                async with self.turns.turn(ticket):
                    self.got.append(name)
                    self.have[name] = ticket
                    if name not in self.full:
                        await self.over[name].wait()
                        return
                    self.turns.full(ticket, of_user=self.full[name])

    async def end(self, name):
        self.over[name].set()
        await calm()

    async def end_all(self):
        for name in self.over:
            self.over[name].set()
        await asyncio.gather(*self.tasks)


async def test_so_many_at_once():
    line = Line(most=2)
    for name in "abc":
        await line.ask(name)
    assert line.got == ["a", "b"]
    await line.end("a")
    assert line.got == ["a", "b", "c"]
    await line.end_all()


async def test_users_take_turns_and_each_ones_line_is_in_order():
    line = Line()
    for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        await line.ask(name[0], name)
    while len(line.got) < 7:
        await line.end(line.got[-1])
    assert line.got == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    await line.end_all()


async def test_one_who_comes_again_and_again_starves_nobody():
    line = Line()
    for name in ("b1", "a1", "a2"):
        await line.ask(name[0], name)
    for number in range(2, 6):
        await line.ask("b", f"b{number}")
        await line.end(line.got[-1])
    assert line.got == ["b1", "b2", "a1", "b3", "a2"]
    await line.end_all()


async def test_spares_come_last():
    line = Line()
    await line.ask("a")
    await line.ask(None, "spare")
    await line.ask("b")
    await line.end("a")
    assert line.got == ["a", "b"]
    await line.end("b")
    assert line.got == ["a", "b", "spare"]
    await line.end_all()


async def test_a_spare_takes_nobodys_place():
    line = Line(limit=2)
    for name in ("a1", "a2", "a3"):
        await line.ask(name[0], name)
    with pytest.raises(QuotaError):
        await (await line.ask(None, "spare"))
    line.tasks.pop()
    await line.end_all()
    assert line.got == ["a1", "a2", "a3"]


async def test_where_too_many_wait_a_spare_makes_way_first():
    line = Line(limit=3)
    await line.ask("a")
    spares = [await line.ask(None, f"spare{number}") for number in range(2)]
    await line.ask("b")
    for name in ("c", "d"):
        await line.ask(name)
    for spare in spares:
        with pytest.raises(QuotaError):
            await spare
        line.tasks.remove(spare)
    await line.end_all()
    assert line.got == ["a", "b", "c", "d"]


async def test_too_many_wait():
    line = Line(limit=1)
    await line.ask("a")
    await line.ask("b")
    with pytest.raises(QuotaError, match="queue_limit"):
        await (await line.ask("c"))
    line.tasks.pop()
    await line.end_all()


async def test_who_gives_up_leaves_its_place():
    line = Line()
    await line.ask("a")
    waiting = await line.ask("b")
    await line.ask("c")
    waiting.cancel()
    await calm()
    await line.end("a")
    assert line.got == ["a", "c"]
    line.tasks.remove(waiting)
    await line.end_all()


async def test_who_gives_up_just_as_its_turn_comes_gives_it_on():
    line = Line()
    await line.ask("a")
    waiting = await line.ask("b")
    await line.ask("c")
    line.over["a"].set()
    await asyncio.sleep(0)
    waiting.cancel()
    await calm()
    assert line.got[-1] == "c"
    line.tasks.remove(waiting)
    await line.end_all()


async def test_at_most_so_many_in_a_second():
    line = Line(most=10, rate=2)
    for name in "abc":
        await line.ask(name)
    assert line.got == ["a"]
    line.clock.advance(0.5)
    await calm()
    assert line.got == ["a", "b"]
    line.clock.advance(0.5)
    await calm()
    assert line.got == ["a", "b", "c"]
    await line.end_all()


async def test_nobody_gets_a_turn_where_there_is_no_room():
    line = Line(most=3)
    line.full["a"] = False
    await line.ask("a")
    await line.ask("b")
    assert line.got == ["a"]
    del line.full["a"]
    line.turns.room()
    await calm()
    line.turns.granted(line.have["a"])
    await calm()
    assert line.got == ["a", "a", "b"]
    await line.end_all()


async def test_where_there_was_no_room_they_ask_one_by_one():
    line = Line(most=3)
    line.full["a"] = False
    await line.ask("a")
    await line.ask("b")
    await line.ask("c")
    del line.full["a"]
    line.turns.room()
    await calm()
    assert line.got == ["a", "a"]
    line.turns.granted(line.have["a"])
    await calm()
    assert line.got == ["a", "a", "b"]
    await line.end_all()
    assert not line.turns._tight
    assert not line.turns._asking


async def test_one_with_many_turns_at_once_gets_no_earlier_one_back():
    line = Line(most=2)
    for name in ("a0", "c", "b", "a1", "a2"):
        await line.ask(name[0], name)
    await line.end("c")
    assert line.got == ["a0", "c", "a1"]
    line.turns.granted(line.have["a1"])
    line.turns.full(line.have["a0"], of_user=False)
    await line.end("a0")
    line.turns.room()
    await calm()
    assert line.got[-1] == "b"
    await line.end_all()


async def test_room_is_looked_for_by_and_by():
    line = Line(most=3)
    line.full["a"] = False
    await line.ask("a")
    line.clock.advance(0.25)
    await calm()
    assert line.got == ["a", "a"]
    del line.full["a"]
    line.clock.advance(0.25)
    await calm()
    await line.end_all()


async def test_one_users_quota_stops_nobody_else():
    line = Line(most=3)
    line.full["a"] = True
    await line.ask("a")
    await line.ask("a", "a2")
    await line.ask("b")
    assert line.got == ["a", "b"]
    del line.full["a"]
    line.turns.room()
    await calm()
    assert line.got == ["a", "b", "a", "a2"]
    await line.end_all()


async def test_nothing_is_left_of_users_that_are_gone():
    line = Line()
    for name in "abc":
        await line.ask(name)
    await line.end_all()
    turns = line.turns
    assert not turns._ranks
    assert not turns._lines
    assert not turns._tickets
    assert not turns._waiting
    assert not turns._running
