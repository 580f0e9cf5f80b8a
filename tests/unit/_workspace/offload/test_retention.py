"""Which offloads go, and which are never touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox import Retention
from isobox._core.results import Entry
from isobox._workspace.offload import retention
from isobox._workspace.offload.names import safe
from isobox._workspace.offload.retention import Inventory
from isobox.errors import InvalidArgumentError, StorageError
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
        found.note(f"{ROOT}/{text(session)}", [data(letter)])
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
        file("sessions/tool_result-1.txt"),
        file("sessions/My Notes/context.jsonl"),
        file("sessions/.git/tool_result-1.txt"),
        file("sessions/_digest/context.jsonl"),
        file("sessions/s/t/context.jsonl"),
        file("elsewhere/s/context.jsonl"),
        file(text("s"), kind="symlink"),
        file(f"data/{data('a')}", kind="directory"),
    ]
    found = inventory(*others)
    assert found.size == 0
    assert gone(found.old(10.0)) == []


def test_what_a_session_with_a_strange_id_has_is_ours():
    found = inventory(file(f"sessions/{safe('id', 'A/B')}/context.jsonl"))
    assert found.size == 1


def test_data_that_a_long_text_names_goes_with_it():
    long, named = f"data/{'a' * 64}.txt", f"data/{data('b')}"
    entries = [file(long, 10, 5), file(named, 10, 1), file(text("s"), 10, 3)]
    for used in (["s"], []):
        found = inventory(*entries, used=used)
        found.note(f"{ROOT}/{text('s')}", [long.removeprefix("data/")])
        found.note(f"{ROOT}/{long}", [data("b"), long.removeprefix("data/")])
        assert [each.path for each in found.texts()] == [
            f"{ROOT}/{long}",
            f"{ROOT}/{text('s')}",
        ]
        wanted = [] if used else [text("s"), long, named]
        assert gone(found.over(0)) == wanted


def test_what_comes_into_use_meanwhile_stays():
    for method, argument in (("over", 0), ("old", 10.0)):
        used = set()
        found = Inventory([file(text("a")), file(text("b"), 1, 1)], ROOT, used)
        going = iter(getattr(found, method)(argument))
        assert next(going) == f"{ROOT}/{text('a')}"
        used.add("sessions/b")
        assert list(going) == []
        assert found.size == 1


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


async def test_a_look_that_fails_is_made_again():
    async with MemoryWorkspace(retention=Retention(size=10_000)) as workspace:
        perform = workspace._perform
        looks = []

        async def failing(op):
            if op.name == "scan" and op.path.endswith("/sessions"):
                looks.append(op)
                if len(looks) == 1:
                    raise StorageError("input/output error", code=5)
            return await perform(op)

        workspace._perform = failing
        with pytest.raises(StorageError):
            await workspace.offload_tool_result("s", "a")
        await workspace.offload_tool_result("s", "a")
    assert len(looks) == 2


async def test_a_text_that_is_as_it_was_is_read_once():
    async with MemoryWorkspace(retention=Retention(size=10_000)) as workspace:
        await workspace.write(f"data/{data('a')}", b"x" * 100)
        await workspace.write(text("other"), f"data/{data('a')}".encode())
        reads = []
        perform = workspace._perform

        async def counted(op):
            if op.name == "read":
                reads.append(op.path)
            return await perform(op)

        workspace._perform = counted
        for _ in range(3):
            await workspace.offload_context("s", [{"a": 1}])
            workspace._offloads._keeper._looked = float("-inf")
        assert reads.count(f"{ROOT}/{text('other')}") == 1
        await workspace.write(text("other"), b"nothing")
        await workspace.offload_context("s", [{"a": 1}])
        assert reads.count(f"{ROOT}/{text('other')}") == 2


async def test_what_tools_of_a_session_keep_is_in_use():
    async with MemoryWorkspace(retention=Retention(age=1)) as workspace:
        await workspace.list_tools(session_id="tools")
        for session in ("tools", "past"):
            await workspace.write(text(session, "tool_result-1.txt"), b"x")
            path = f"{ROOT}/{text(session, 'tool_result-1.txt')}"
            workspace._sandbox.tree.node(path).mtime_ns = 0
        await workspace.offload_context("s", [{"a": 1}])
        assert await workspace.exists(text("tools", "tool_result-1.txt"))
        assert not await workspace.exists(text("past", "tool_result-1.txt"))


async def test_data_that_is_there_takes_no_room_twice():
    async with MemoryWorkspace(retention=Retention(size=3000)) as workspace:
        image = b"\0" * 2000
        url = await workspace.offload_tool_result("s", image)
        for _ in range(3):
            assert await workspace.offload_tool_result("s", image) == url
            await workspace.offload_context("s", [{"image": image}])


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
