"""What a question costs: by what it finds, not by what there is."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import ClassVar

import pytest
from sqlalchemy import event, insert, text
from tests.stores import LONG, alive, asked

from isobox.manager.records import State
from isobox.manager.sql import SqlStore, direct, sqlite, tables
from isobox.manager.sql.direct import Direct
from isobox.manager.sql.transaction import NOTHING

pytestmark = pytest.mark.anyio

MANY = 12_000
#: Whole tables are only read where they are small: one row for each process.
SMALL = "isobox_holders"


def _rows():
    """Closed ones of many users, and some that are held by one holder of many."""
    for number in range(MANY):
        state = State.LIVE if number % 2 == 0 else State.CLOSED
        yield {
            "workspace_id": f"w-{number:06}",
            "key": f"k{number}",
            "user_digest": f"u{number % 300}",
            "user_id": f"u{number % 300}",
            "agent_id": None,
            "session_id": None,
            "backend": "local",
            "place": f"w-{number:06}.0",
            "state": state.value,
            "held": state is State.LIVE,
            "created_at": 1.0,
            "used_at": float(number),
            "closed_at": float(number) if state is State.CLOSED else None,
            "options": "{}",
        }


def fill(transaction):
    """Enter many workspaces without asking the store."""
    rows = list(_rows())
    held = [
        {"workspace_id": row["workspace_id"], "holder": f"h{n % 50}", "wanted": False}
        for n, row in enumerate(rows)
        if row["held"]
    ]
    transaction.change_each(insert(tables.workspaces), rows)
    transaction.change_each(insert(tables.holds), held)
    transaction.change(text("ANALYZE"))


ASKED = ("SELECT", "UPDATE", "DELETE")


class Explained(Direct):
    """Also asks SQLite how it goes about each statement."""

    found: ClassVar[list] = []

    def rows(self, statement, values=NOTHING):
        self._explain(statement, values)
        return super().rows(statement, values)

    def change(self, statement, values=NOTHING):
        self._explain(statement, values)
        return super().change(statement, values)

    def change_each(self, statement, each):
        for values in each[:1]:
            self._explain(statement, values)
        super().change_each(statement, each)

    def _explain(self, statement, values):
        its = direct._prepared(statement)
        if its.text.startswith(ASKED):
            plan = f"EXPLAIN QUERY PLAN {its.text}"
            steps = self._cursor.execute(plan, its.bound(values)).fetchall()
            self.found.append((its.text, steps))


@pytest.fixture
def explained(monkeypatch):
    """Collect how SQLite goes about each statement."""
    monkeypatch.setattr(Explained, "found", [])
    monkeypatch.setattr(sqlite, "Direct", Explained)
    return Explained.found


@contextmanager
def plans(store):
    """Collect how PostgreSQL goes about each statement."""
    engine = store._database._engine.sync_engine
    found = []

    def look(connection, cursor, statement, parameters, context, executemany):
        if statement.startswith(ASKED) and not executemany:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
            found.append((statement, cursor.fetchall()))

    event.listen(engine, "before_cursor_execute", look)
    yield found
    event.remove(engine, "before_cursor_execute", look)


async def ask(store):
    """Ask everything whose answer is short."""
    await alive(store, "me")
    await store.wanted("me")
    await store.abandoned("me", 5, idle_since=LONG, limit=50)
    await store.forgotten("me", 5, closed_since=30.0, limit=5)
    await store.claim(asked("me", most=MANY, most_of_user=3, spare=True), 5)
    await store.release("w-one", "me", 6, 6)
    await store.closed("w-one", "me", 6)
    await store.find("w-one", 6)
    await store.records(6, user="u1", limit=5)
    await store.records(6, after="w-000500", limit=5)
    await store.leave("me", 6)


@pytest.fixture
async def full(where):
    async with SqlStore(where) as store:
        await alive(store, *(f"h{number}" for number in range(50)))
        await store._database.write(fill)
        yield store


class TestSqlite:
    @pytest.fixture
    def where(self, tmp_path):
        return tmp_path / "manager.db"

    async def test_no_table_is_read_whole(self, full, explained):
        explained.clear()
        await ask(full)
        steps = [(step[-1], sql) for sql, plan in explained for step in plan]
        scans = [
            (step, sql)
            for step, sql in steps
            if re.match(rf"SCAN (?!anon_1|{SMALL})", step) and "USING" not in step
        ]
        assert len(steps) > 30
        assert scans == []

    async def test_counting_reads_an_index_alone(self, full, explained):
        explained.clear()
        await full.counts(1)
        assert "USING COVERING INDEX" in str(explained)


class TestPostgres:
    @pytest.fixture
    def where(self, postgres):
        return postgres.place()

    async def test_no_table_is_read_whole(self, full):
        with plans(full) as found:
            await ask(full)
        scans = [
            (node["Relation Name"], sql)
            for sql, plan in found
            for node in _nodes(plan[0][0][0]["Plan"])
            if node["Node Type"] == "Seq Scan"
        ]
        assert len(found) > 20
        assert [scan for scan in scans if scan[0] != SMALL] == []


def _nodes(node):
    yield node
    for inner in node.get("Plans", ()):
        yield from _nodes(inner)
