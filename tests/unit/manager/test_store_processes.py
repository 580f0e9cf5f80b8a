"""Many at once: tasks of one process, and real processes."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import anyio
import pytest
from tests.stores import LONG, alive, asked, closed, found, live, spare, wrongs

from isobox.errors import HolderExpiredError
from isobox.manager.records import Granted, Held, Record, State
from isobox.manager.sql import SqlStore
from isobox.manager.sql.sqlite import SqliteDatabase

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
IMPOSSIBLE = ("two have one", "too many", "lost", "not given up")


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "manager.db")
    return request.getfixturevalue("postgres").place()


@pytest.fixture
async def store(where):
    async with SqlStore(where) as opened:
        yield opened


async def together(*calls):
    """Return what calls answer that are made at the same time."""
    answers = [None] * len(calls)

    async def keep(number, call):
        answers[number] = await call

    async with anyio.create_task_group() as group:
        for number, call in enumerate(calls):
            group.start_soon(keep, number, call)
    return answers


def run(module, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


async def said(processes):
    """Return what processes have counted once they ended."""
    total = Counter()
    for process in processes:
        output, _ = await anyio.to_thread.run_sync(process.communicate)
        assert process.returncode == 0
        total.update(json.loads(output))
    return total


@pytest.mark.parametrize(("keys", "most"), [(3, 99), (12, 2)])
async def test_processes_never_have_one_workspace_nor_too_many(
    where, tmp_path, keys, most
):
    directory = tmp_path / "had"
    directory.mkdir()
    # They also make the tables at the same time.
    processes = [
        run("tests.claimers", where, directory, f"h{number}", 25, keys, most)
        for number in range(4)
    ]
    total = await said(processes)
    assert {one: total[one] for one in IMPOSSIBLE} == dict.fromkeys(IMPOSSIBLE, 0)
    assert total["Granted"] >= 10
    assert total["Granted"] + total["Held"] + total["Full"] == 100
    async with SqlStore(where) as store:
        records = await store.records(1)
        assert {one.state for one in records} == {State.CLOSED}
        assert {one.holders for one in records} == {()}
        assert len(records) <= keys


async def test_one_of_many_claims_is_granted(store):
    holders = [f"h{number}" for number in range(10)]
    await alive(store, *holders)
    answers = await together(*(store.claim(asked(one), 1) for one in holders))
    (one,) = [one for one in answers if isinstance(one, Granted)]
    (holder,) = one.record.holders
    others = [one for one in answers if isinstance(one, Held)]
    assert others == [Held(holder=holder, state=State.MAKING)] * 9


async def test_one_holder_asking_at_once_has_one(store):
    await alive(store, "a")
    answers = await together(*(store.claim(asked("a"), 1) for _ in range(8)))
    assert sorted(answer.new for answer in answers) == [False] * 7 + [True]
    assert {answer.record.place for answer in answers} == {"w-one.0"}


async def test_quotas_hold_for_claims_at_once(store):
    await alive(store, "a", "b")
    answers = await together(
        *(store.claim(asked("ab"[n % 2], f"n{n}", most=4), 1) for n in range(12))
    )
    assert sum(isinstance(answer, Granted) for answer in answers) == 4
    assert len(await store.records(1)) == 4


async def test_each_spare_is_given_once(store):
    await alive(store, "a")
    for number in range(4):
        await store.spare(spare("a", f"s{number}"), 1)
    answers = await together(
        *(store.claim(asked("a", f"n{n}", spare=True), 1) for n in range(8))
    )
    names = {answer.record.workspace_id for answer in answers}
    assert len(names) == 8
    assert {f"w-s{number}" for number in range(4)} <= names
    assert sum(answer.spare for answer in answers) == 4


async def test_one_is_deleted_or_claimed_not_both(store):
    await alive(store, "a", "b")
    for number in range(12):
        await closed(store, "a", f"n{number}")
        calls = [
            store.claim(asked("a", f"n{number}"), 1),
            store.delete(f"w-n{number}", "b", 1),
        ]
        claim, delete = await together(*calls)
        if isinstance(claim, Granted):
            assert isinstance(delete, Held)
        else:
            assert claim == Held(holder="b", state=State.DELETING)
            assert isinstance(delete, Record)


async def test_one_is_swept_or_claimed_not_both(store):
    await alive(store, "dead", until=10)
    await alive(store, "a", "b")
    for number in range(12):
        await live(store, "dead", f"n{number}")
    claims = [store.claim(asked("a", f"n{number}"), 20) for number in range(12)]
    calls = [*claims, store.abandoned("b", 20, idle_since=20, limit=99)]
    random.shuffle(calls)
    await together(*calls)
    by_holder = Counter(one.holders for one in await store.records(20))
    assert set(by_holder) <= {("a",), ("b",)}
    assert sum(by_holder.values()) == 12


async def test_each_abandoned_one_is_taken_once(store):
    await alive(store, "dead", until=10)
    await alive(store, *"abcd")
    for number in range(20):
        await live(store, "dead", f"n{number}")
    taken = Counter()
    while len(taken) < 20:
        for some in await together(
            *(store.abandoned(one, 20, idle_since=15, limit=3) for one in "abcd")
        ):
            taken.update(one.workspace_id for one in some)
    assert set(taken.values()) == {1}


async def test_a_holder_that_dies_meanwhile_holds_nothing(store):
    await alive(store, "b")

    async def claim(name, now):
        with contextlib.suppress(HolderExpiredError):
            await store.claim(asked("a", name), now)

    for number in range(8):
        now = 10.0 * number
        with contextlib.suppress(HolderExpiredError):
            await store.beat("a", now, now + 5, {})
        await together(
            *(claim(f"n{number}-{n}", now + 4) for n in range(4)),
            store.beat("b", now + 5, LONG, {}),
            store.abandoned("b", now + 5, idle_since=0, limit=1),
        )
        assert await store.holders(now + 4) == ["b"]
        assert await wrongs(store) == {}


async def test_a_holder_that_leaves_meanwhile_holds_nothing(store):
    async def claim(name):
        with contextlib.suppress(HolderExpiredError):
            await store.claim(asked("a", name), 1)

    for number in range(10):
        await alive(store, "a")
        names = [f"n{number}-{n}" for n in range(4)]
        calls = [*map(claim, names), store.leave("a", 1)]
        random.shuffle(calls)
        await together(*calls)
        assert await store.holders(1) == []
        assert await wrongs(store) == {}


async def test_a_beat_waits_for_nothing_that_its_process_writes(store):
    async with anyio.create_task_group() as group:
        with kept_from_writing(store._database, group):
            group.start_soon(store.adopt, found(), 1)
            await anyio.wait_all_tasks_blocked()
            await alive(store, "a")
            assert await store.holders(1) == ["a"]
            assert await store.find("w-one", 1) is None
    assert await store.find("w-one", 1) is not None


@contextlib.contextmanager
def kept_from_writing(database, group):
    """Let what this process writes wait."""
    if isinstance(database, SqliteDatabase):
        free = threading.Event()
        group.start_soon(database._lanes.writing.do, lambda _: free.wait())
        yield
        free.set()
        return
    turns = database._writing
    turns.total_tokens, before = 0, turns.total_tokens
    yield
    turns.total_tokens = before


async def test_cancelled_calls_are_done_or_not(store):
    await alive(store, "a")
    for number in range(10):
        with anyio.move_on_after(random.uniform(0, 0.004)):
            await store.claim(asked("a", f"n{number}"), 1)
    await live(store, "a", "after")
    assert await wrongs(store) == {}


async def test_what_killed_processes_had_is_anybodys(where, tmp_path):
    directory = tmp_path / "had"
    directory.mkdir()
    processes = [
        run("tests.claimers", where, directory, f"h{number}", 10**6, 5, 99)
        for number in range(3)
    ]
    async with SqlStore(where) as store:
        while len(await store.records(1)) < 5:
            await anyio.sleep(0.02)
        for process in processes:
            await anyio.sleep(random.uniform(0, 0.1))
            process.kill()
            process.communicate()
        assert await wrongs(store) == {}
        await alive(store, "b", until=2 * LONG)
        assert await store.holders(LONG) == ["b"]
        for number in range(5):
            await live(store, "b", str(number), LONG)
        assert await wrongs(store) == {}
