"""How a store's transactions are run: in their order, whole or not at all."""

from __future__ import annotations

import sqlite3
import threading

import anyio
import pytest
from sqlalchemy import bindparam, insert, select, text, update
from tests.stores import alive

from isobox.errors import StoreError
from isobox.manager.sql import SqlStore, tables
from isobox.manager.sql.lane import Lane

pytestmark = pytest.mark.anyio

BEGIN = insert(tables.holders)
ALL = select(tables.holders).order_by(tables.holders.c.holder)
#: What is text of ours and no text of a database.
ODD = "half a pair \ud800, nothing \0, a mark \\0041"


class Resources:
    """Makes resources and remembers which are held."""

    def __init__(self):
        self.made = 0
        self.held = 0

    def acquire(self):
        self.made += 1
        self.held += 1
        return self.made

    def release(self, number):
        self.held -= 1

    def lane(self, threads=1):
        return Lane(threads, acquire=self.acquire, release=self.release)


async def ended(lane):
    await anyio.to_thread.run_sync(lane.end)


class TestLane:
    async def test_in_the_order_in_which_they_come(self):
        resources, done = Resources(), []
        lane = resources.lane()
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(lane.do, lambda _, n=number: done.append(n))
        assert done == list(range(100))
        await ended(lane)

    async def test_a_thread_has_one_resource_once_it_needs_it(self):
        resources = Resources()
        lane = resources.lane()
        assert resources.made == 0
        assert [await lane.do(lambda number: number) for _ in range(3)] == [1, 1, 1]
        await ended(lane)
        assert (resources.made, resources.held) == (1, 0)

    async def test_several_at_once(self):
        lane, together = Resources().lane(2), threading.Barrier(2)
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(lane.do, lambda _: together.wait(timeout=30))
        await ended(lane)

    async def test_who_asked_is_told_of_an_error_and_the_next_is_done(self):
        lane = Resources().lane()
        with pytest.raises(ZeroDivisionError):
            await lane.do(lambda _: 1 / 0)
        assert await lane.do(lambda _: "next") == "next"
        await ended(lane)

    async def test_a_resource_that_there_is_not_yet(self):
        answers = iter([OSError("not yet"), None])

        def acquire():
            if (error := next(answers)) is not None:
                raise error
            return "there"

        lane = Lane(1, acquire=acquire, release=lambda _: None)
        with pytest.raises(OSError, match="not yet"):
            await lane.do(lambda it: it)
        assert await lane.do(lambda it: it) == "there"
        await ended(lane)

    async def test_it_is_done_if_nobody_waits_any_more(self):
        lane, free, done = Resources().lane(), threading.Event(), []
        async with anyio.create_task_group() as group:
            group.start_soon(lane.do, lambda _: free.wait())
            group.start_soon(lane.do, lambda _: done.append("all the same"))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        free.set()
        await ended(lane)
        assert done == ["all the same"]


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request, tmp_path):
    if request.param == "sqlite":
        where = str(tmp_path / "manager.db")
    else:
        where = request.getfixturevalue("postgres").place()
    async with SqlStore(where) as store:
        yield store._database


class TestTransaction:
    async def test_all_of_it_or_nothing(self, database):
        def half(transaction):
            transaction.change(BEGIN, {"holder": "a", "until": 1.0})
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await database.write(half)
        assert await database.read(lambda t: t.rows(ALL)) == []
        await database.write(lambda t: t.change(BEGIN, {"holder": "a", "until": 1.0}))
        assert await database.read(lambda t: t.column(ALL)) == ["a"]

    async def test_any_text_comes_back(self, database):
        await database.write(lambda t: t.change(BEGIN, {"holder": ODD, "until": 1}))
        found = await database.read(lambda t: t.rows(ALL))
        assert found == [{"holder": ODD, "until": 1.0}]

    async def test_how_many_are_changed(self, database):
        each = [{"holder": name, "until": 1.0} for name in "abc"]
        later = update(tables.holders).values(until=bindparam("then"))
        named = later.where(tables.holders.c.holder == bindparam("its"))

        def change(transaction):
            transaction.change_each(BEGIN, each)
            transaction.change_each(BEGIN, [])
            one = transaction.change(named, {"its": "b", "then": 2.0})
            none = transaction.change(named, {"its": "x", "then": 2.0})
            return one, none, transaction.change(later, {"then": 3.0})

        assert await database.write(change) == (1, 0, 3)

    async def test_what_there_is_not(self, database):
        assert await database.read(lambda t: t.row(ALL)) is None
        assert await database.read(lambda t: t.value(ALL)) is None

    async def test_a_value_that_is_not_given(self, database):
        with pytest.raises((KeyError, StoreError)):
            await database.write(lambda t: t.change(BEGIN, {"holder": "a"}))
        assert await database.read(lambda t: t.rows(ALL)) == []


class TestSqlite:
    async def test_a_file_that_another_keeps_locked_is_told(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("isobox.manager.sql.sqlite._PATIENCE", 0.05)
        path = tmp_path / "manager.db"
        async with SqlStore(path) as store:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="locked"):
                await store.beat("a", 0, 1, {})
            assert await store.holders(0) == []
            other.execute("ROLLBACK")
            other.close()
            await alive(store, "a")

    async def test_tables_of_an_earlier_layout_serve(self, tmp_path):
        path = tmp_path / "manager.db"
        async with SqlStore(path) as store:
            await store._database.write(_with_rowids)
            await alive(store, "a")
            assert await store.wanted("a") == ()


def _with_rowids(transaction):
    columns = "workspace_id TEXT NOT NULL, holder TEXT NOT NULL, wanted BOOLEAN"
    transaction.change(text("DROP TABLE isobox_holds"))
    key = "PRIMARY KEY (workspace_id, holder)"
    transaction.change(text(f"CREATE TABLE isobox_holds ({columns}, {key})"))
