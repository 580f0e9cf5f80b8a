"""Which offloads go, and which are never touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox import Retention
from isobox._core.results import Entry
from isobox._workspace.offload import retention
from isobox._workspace.offload.retention import Inventory
from isobox.errors import InvalidArgumentError
from isobox.testing.fake import MemoryWorkspace

pytestmark = pytest.mark.anyio
ROOT = "/workspace"


@pytest.fixture
def anyio_backend():
    return "asyncio"


def file(path, size=1, seconds=0, kind="file"):
    return Entry(f"{ROOT}/{path}", kind, size, 0o644, int(seconds * 10**9), 0, 0)


def data(letter):
    return f"{letter * 64}.bin"


def text(session, name="context.jsonl"):
    return f"sessions/{session}/{name}"


def inventory(*entries, used=(), names=()):
    found = Inventory(entries, ROOT, {f"sessions/{each}" for each in used})
    for session, letter in names:
        found.note(f"{ROOT}/{text(session)}", data(letter))
    return found


def gone(paths):
    return [path.removeprefix(f"{ROOT}/") for path in paths]


@pytest.mark.parametrize("value", [0, -1, float("nan"), "30d", True, [1]])
def test_a_bound_is_above_nothing(value):
    for name in ("age", "size"):
        with pytest.raises(InvalidArgumentError, match=name):
            Retention(**{name: value})


def test_what_is_not_ours_is_neither_counted_nor_removed():
    others = [
        file("data/mine"),
        file("data/" + "A" * 64 + ".bin"),
        file("data/" + "a" * 64 + "/x"),
        file("sessions/s/notes.txt"),
        file("sessions/s/tool_result-.txt"),
        file("sessions/context.jsonl"),
        file(text("s"), kind="symlink"),
        file(f"data/{data('a')}", kind="directory"),
    ]
    found = inventory(*others)
    assert found.size in (0, 1)
    assert gone(found.old(10.0)) in ([], ["sessions/context.jsonl"])


def test_data_without_a_name_goes_first_then_the_oldest_session():
    found = inventory(
        file(f"data/{data('a')}", 10, 5),
        file(f"data/{data('b')}", 10, 1),
        file(f"data/{data('c')}", 10, 9),
        file(text("old"), 10, 2),
        file(text("new"), 10, 3),
        names=[("old", "b"), ("new", "c")],
    )
    assert gone(found.over(45)) == [f"data/{data('a')}"]
    assert gone(found.over(25)) == [text("old"), f"data/{data('b')}"]
    assert gone(found.over(0)) == [text("new"), f"data/{data('c')}"]


def test_what_is_in_use_never_goes():
    found = inventory(
        file(text("s"), 10),
        file(text("s", "tool_result-1.txt"), 10),
        file(f"data/{data('a')}", 10),
        file(f"data/{data('b')}", 10),
        used=["s"],
        names=[("s", "a")],
    )
    found.in_use([data("b")])
    assert gone(found.over(0)) == gone(found.old(10.0**9)) == []
    assert found.size == 40


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 50)), max_size=12),
    st.integers(0, 200),
)
def test_no_more_goes_than_must(sessions, most):
    entries = {
        text(f"s{at}"): file(text(f"s{at}"), size, at)
        for at, (_, size) in enumerate(sessions)
    }
    found = inventory(*entries.values())
    before = found.size
    paths = gone(found.over(most))
    assert paths == list(entries)[: len(paths)]
    assert found.size == before - sum(entries[path].size for path in paths)
    assert found.size <= most or not entries
    if paths:
        assert found.size + entries[paths[-1]].size > most


async def test_texts_that_are_too_large_to_read_keep_all_data(monkeypatch):
    monkeypatch.setattr(retention, "_MOST_READ", 100)
    async with MemoryWorkspace(retention=Retention(age=1)) as workspace:
        sandbox = workspace._sandbox
        await workspace.write(f"data/{data('a')}", b"x")
        await workspace.write(text("other"), b"x" * 200)
        sandbox.tree.node(f"{ROOT}/data/{data('a')}").mtime_ns = 0
        await workspace.offload_context("s", [{"a": 1}])
        assert await workspace.exists(f"data/{data('a')}")


async def test_it_looks_once_an_hour_and_where_room_is_short():
    async with MemoryWorkspace(retention=Retention(size=10_000)) as workspace:
        scans = []
        perform = workspace._perform

        async def counted(op):
            if op.name == "scan" and op.path.endswith(("/data", "/sessions")):
                scans.append(op.path)
            return await perform(op)

        workspace._perform = counted
        for number in range(8):
            await workspace.offload_tool_result("s", str(number) * 1000)
        assert len(scans) == 2
        await workspace.remove("sessions", recursive=True)
        for number in range(4):
            await workspace.offload_tool_result("s", str(number) * 1000)
        assert len(scans) == 4
