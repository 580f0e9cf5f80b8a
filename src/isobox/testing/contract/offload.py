"""Context and results that leave the window."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from isobox import DataBlock, MemorySink, Retention, TextBlock, ToolResult
from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    LimitError,
    NotRegularFileError,
    PathIsDirectoryError,
    PathOutsideError,
)
from isobox.testing.contract._base import SOON, Contract, Factory, names

if TYPE_CHECKING:
    from pathlib import Path

    from isobox import Offloader, Tool, WorkspaceBase

_shell = pytest.mark.requires("posix_shell")
_PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
_HOLDER = """
import fcntl, time
file = open("sessions/s/context.jsonl")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""
_CONTEXT = "workspace:///sessions/s/context.jsonl"


def message(text: str) -> dict[str, object]:
    """Return a message as model providers have it."""
    return {"role": "user", "content": text}


async def lines(workspace: WorkspaceBase, session_id: str = "s") -> list[Any]:
    """Return the messages of a session's context."""
    text = await workspace.read_text(f"sessions/{session_id}/context.jsonl")
    return [json.loads(line) for line in text.splitlines()]


async def put(
    workspace: WorkspaceBase, place: Path, path: str, data: bytes, stamp: int
) -> None:
    """Make a file that was changed at a time, in seconds since 1970."""
    local = place / "local"
    local.write_bytes(data)
    os.utime(local, (stamp, stamp))
    await workspace.upload(local, path)


async def tool(workspace: WorkspaceBase, name: str) -> Tool:
    """Return a tool."""
    return next(each for each in await workspace.list_tools() if each.name == name)


class OffloadContract(Contract):
    """Context and results that leave the window."""

    async def test_messages_are_appended(self, workspace: WorkspaceBase) -> None:
        harness: Offloader = workspace
        first = await harness.offload_context("s", [message("a"), message("é\u2028")])
        assert first == await harness.offload_context("s", [message("c")])
        assert first == _CONTEXT
        contents = [each["content"] for each in await lines(workspace)]
        assert contents == ["a", "é\u2028", "c"]

    async def test_no_messages_make_no_file(self, workspace: WorkspaceBase) -> None:
        assert await workspace.offload_context("s", []) == _CONTEXT
        assert not await workspace.exists(_CONTEXT)

    async def test_appends_at_once_are_all_whole(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace()

        async def offload(writer: int) -> None:
            for number in range(10):
                await workspace.offload_context(
                    "s", [message(f"{writer} {number} {'x' * 5000}")]
                )

        async with anyio.create_task_group() as group:
            for writer in range(10):
                group.start_soon(offload, writer)
        found = [each["content"].split()[:2] for each in await lines(workspace)]
        assert len(found) == 100
        for writer in range(10):
            numbers = [int(n) for w, n in found if w == str(writer)]
            assert numbers == list(range(10))

    async def test_half_a_line_of_a_dead_writer_is_cut_off(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.offload_context("s", [message("whole")])
        torn = await workspace.read_bytes(_CONTEXT) + b'{"role": "user", "cont'
        await workspace.write(_CONTEXT, torn)
        await workspace.offload_context("s", [message("next")])
        found = [each["content"] for each in await lines(workspace)]
        assert found == ["whole", "next"]

    async def test_a_line_may_be_long(self, workspace: WorkspaceBase) -> None:
        parts = [{"type": "text", "text": "x" * 200_000} for _ in range(30)]
        for _ in range(2):
            await workspace.offload_context("s", [{"content": parts}, message("b")])
        found = await lines(workspace)
        assert [each["content"] for each in found] == [parts, "b", parts, "b"]
        with pytest.raises(LimitError, match="bytes"):
            await workspace.offload_context("s", [{"content": parts * 2}])

    async def test_data_goes_aside_once(self, workspace: WorkspaceBase) -> None:
        encoded = base64.b64encode(_PIXEL).decode()
        digest = hashlib.sha256(_PIXEL).hexdigest()
        url = f"workspace:///data/{digest}.png"
        source = {"type": "base64", "media_type": "image/png", "data": encoded}
        await workspace.offload_context(
            "s",
            [
                {"content": [{"type": "image", "source": source}]},
                {"content": [{"type": "image_url", "image_url": {"url": ""}}]},
                {"image_url": f"data:image/png;base64,{encoded}"},
                {"type": "image", "data": encoded, "mimeType": "image/png"},
            ],
        )
        first, _, third, fourth = await lines(workspace)
        kept = {"type": "url", "media_type": "image/png", "url": url}
        assert first["content"][0]["source"] == kept
        assert third["image_url"] == url
        assert fourth == {"type": "image", "mimeType": "image/png", "url": url}
        assert await names(workspace, "data") == [f"{digest}.png"]
        assert await workspace.read_bytes(url) == _PIXEL

    async def test_a_long_text_goes_aside(self, workspace: WorkspaceBase) -> None:
        text = "long " * 100_000
        await workspace.offload_context("s", [message(text)])
        [found] = await lines(workspace)
        assert found["content"].endswith(".txt")
        assert await workspace.read_text(found["content"]) == text

    async def test_what_stands_for_data_is_written_anew(
        self, workspace: WorkspaceBase
    ) -> None:
        url = await workspace.offload_tool_result("s", _PIXEL)
        for spoil in (b"other", None):
            await workspace.remove(url, recursive=True)
            if spoil is None:
                await workspace.write(f"{url}/file", b"")
            else:
                await workspace.write(url, spoil)
            assert await workspace.offload_tool_result("s", _PIXEL) == url
            assert await workspace.read_bytes(url) == _PIXEL

    @_shell
    async def test_no_file_in_place_of_data_holds_a_call_up(
        self, workspace: WorkspaceBase
    ) -> None:
        url = await workspace.offload_tool_result("s", _PIXEL)
        path = url.removeprefix("workspace:///")
        for spoil in (
            f"truncate -s 1T {path} || truncate -s 100M {path}",
            f"rm {path}; mkfifo {path}",
            f"rm {path}; ln -s /dev/zero {path}",
            f"rm {path}; ln -s ../outside {path}",
        ):
            await workspace.run(spoil, check=True)
            with anyio.fail_after(SOON):
                assert await workspace.offload_tool_result("s", _PIXEL) == url
            assert (await workspace.stat(path, follow=False)).kind == "file"
            assert await workspace.read_bytes(url) == _PIXEL

    async def test_a_result_is_kept_as_text(self, workspace: WorkspaceBase) -> None:
        result = ToolResult(
            blocks=(TextBlock("before"), DataBlock("image/png", _PIXEL))
        )
        url = await workspace.offload_tool_result("s", result, call_id="call_1")
        assert url == "workspace:///sessions/s/tool_result-call_1.txt"
        before, data = (await workspace.read_text(url)).splitlines()
        assert before == "before"
        assert data.startswith('<data url="workspace:///data/')
        again = await workspace.offload_tool_result("s", "text", call_id="call_1")
        assert again != url
        assert await workspace.read_text(again) == "text"
        blocks = {"content": [{"type": "text", "text": "a"}, {"type": "x", "n": 1}]}
        mixed = await workspace.offload_tool_result("s", blocks)
        assert await workspace.read_text(mixed) == 'a\n{"type": "x", "n": 1}'

    async def test_every_tool_takes_a_reference(self, workspace: WorkspaceBase) -> None:
        url = await workspace.offload_tool_result("s", "one\ntwo\n", call_id="c")
        read = await tool(workspace, "Read")
        grep = await tool(workspace, "Grep")
        glob = await tool(workspace, "Glob")
        edit = await tool(workspace, "Edit")
        assert "two" in (await read(file_path=url)).text
        assert "two" in (await grep(pattern="two", path=url)).text
        found = await glob(pattern="*.txt", path="workspace:///sessions/s")
        assert "sessions/s/tool_result-c.txt" in found.text
        found = await glob(pattern="workspace:///sessions/**/*.txt")
        assert "sessions/s/tool_result-c.txt" in found.text
        change = {"old_string": "two", "new_string": "three"}
        assert not (await edit(file_path=url, edits=[change])).is_error
        assert "three" in await workspace.read_text(url)

    @pytest.mark.parametrize(
        "url",
        [
            "workspace:///../out",
            "workspace:///sessions/%2e%2e/%2e%2e/out",
            "workspace:///%2Fetc/passwd",
            "workspace:///a%00b",
            "workspace:///%ff",
        ],
    )
    async def test_a_reference_stays_below_the_root(
        self, workspace: WorkspaceBase, url: str
    ) -> None:
        with pytest.raises((PathOutsideError, InvalidArgumentError)):
            await workspace.read_bytes(url)

    @pytest.mark.parametrize(
        "session_id", ["Über", "A", "a/b", "..", ".", "../../x", "x" * 200, " ", "-"]
    )
    async def test_a_strange_session_has_a_place_of_its_own(
        self, workspace: WorkspaceBase, session_id: str
    ) -> None:
        url = await workspace.offload_context(session_id, [message("a")])
        folder = url.removeprefix("workspace:///sessions/").split("/")
        assert len(folder) == 2
        assert folder[0].startswith("_")
        assert await names(workspace, "sessions") == [folder[0]]
        assert len(await lines(workspace, folder[0])) == 1

    @pytest.mark.parametrize("session_id", ["", "a\nb", "a\0b", "\ud800", "x" * 300])
    async def test_what_is_no_id_is_refused(
        self, workspace: WorkspaceBase, session_id: str
    ) -> None:
        with pytest.raises(InvalidArgumentError, match="session_id"):
            await workspace.offload_context(session_id, [message("a")])
        with pytest.raises(InvalidArgumentError, match="call_id"):
            await workspace.offload_tool_result("s", "a", call_id=session_id)
        assert not await workspace.exists("sessions")

    async def test_what_json_cannot_hold_is_refused(
        self, workspace: WorkspaceBase
    ) -> None:
        deep: list[object] = []
        for _ in range(1000):
            deep = [deep]
        for bad in (deep, {"a": object()}, {"a": float("nan")}, {"a": {1, 2}}):
            with pytest.raises(InvalidArgumentError):
                await workspace.offload_context("s", [message("a"), bad])
        with pytest.raises(InvalidArgumentError, match="list"):
            await workspace.offload_context("s", message("a"))
        assert not await workspace.exists("sessions")

    async def test_a_directory_in_its_place_is_refused(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("sessions/s/context.jsonl/file", b"")
        await workspace.write("sessions/t", b"")
        with pytest.raises(PathIsDirectoryError):
            await workspace.offload_context("s", [message("a")])
        with pytest.raises(NotADirectoryError):
            await workspace.offload_context("t", [message("a")])

    @_shell
    async def test_a_link_or_a_fifo_in_its_place_is_refused(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(
            "mkdir -p sessions/s sessions/t; ln -s ../out sessions/s/context.jsonl; "
            "mkfifo sessions/t/context.jsonl",
            check=True,
        )
        with anyio.fail_after(SOON):
            for session in "st":
                with pytest.raises(NotRegularFileError):
                    await workspace.offload_context(session, [message("a")])

    @_shell
    async def test_a_file_without_lines_is_refused_soon(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(
            "mkdir -p sessions/s; truncate -s 1T sessions/s/context.jsonl || "
            "truncate -s 100M sessions/s/context.jsonl",
            check=True,
        )
        with anyio.fail_after(SOON), pytest.raises(InvalidArgumentError, match="lines"):
            await workspace.offload_context("s", [message("a")])

    @pytest.mark.requires("python3")
    async def test_a_lock_that_is_held_ends_in_an_error(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace()
        await workspace.offload_context("s", [message("a")])
        holder = await workspace.start(["python3", "-c", _HOLDER])
        async with holder:
            assert await holder.stdout.receive() == b"held\n"
            with anyio.fail_after(2 * SOON), pytest.raises(IsoboxError, match="busy"):
                await workspace.offload_context("s", [message("b")])
        await workspace.offload_context("s", [message("c")])
        assert [each["content"] for each in await lines(workspace)] == ["a", "c"]

    async def test_an_append_costs_the_same_whatever_is_there(
        self, workspace: WorkspaceBase
    ) -> None:
        line = b'{"content": "' + b"x" * 1000 + b'"}\n'
        await workspace.write(_CONTEXT, line * 5_000)
        with anyio.fail_after(SOON):
            for number in range(10):
                await workspace.offload_context("s", [message(str(number))])
        last = await workspace.read_bytes(_CONTEXT, offset=len(line) * 5_000)
        assert len(last.splitlines()) == 10

    async def test_the_oldest_give_way_but_nothing_that_is_in_use(
        self, fresh_workspace: Factory, tmp_path: Path
    ) -> None:
        workspace = await fresh_workspace(retention=Retention(size=10_000))
        for number in range(4):
            path = f"sessions/old-{number}/tool_result-a.txt"
            await put(workspace, tmp_path, path, b"x" * 3000, 10**9 + number)
        await workspace.write("sessions/old-0/mine.txt", b"x" * 50_000)
        await workspace.offload_tool_result("new", "x" * 3000, call_id="a")
        kept = [
            await workspace.exists(f"sessions/old-{number}/tool_result-a.txt")
            for number in range(4)
        ]
        assert kept == [False, False, True, True]
        assert await workspace.exists("sessions/old-0/mine.txt")
        with pytest.raises(LimitError, match="retention"):
            await workspace.offload_tool_result("new", "x" * 8000)
        assert await workspace.exists("sessions/new/tool_result-a.txt")

    async def test_data_stays_as_long_as_a_text_names_it(
        self, fresh_workspace: Factory, tmp_path: Path
    ) -> None:
        workspace = await fresh_workspace(retention=Retention(age=1000))
        named, unnamed, gone = (f"data/{digit * 64}.bin" for digit in "abc")
        for path, body, old in (
            (named, b"1", True),
            (unnamed, b"2", True),
            (gone, b"3", True),
            ("sessions/recent/context.jsonl", named.encode(), False),
            ("sessions/past/context.jsonl", gone.encode(), True),
            ("data/mine", b"4", True),
        ):
            if old:
                await put(workspace, tmp_path, path, body, 10**9)
            else:
                await workspace.write(path, body)
        await workspace.offload_context("s", [message("a")])
        assert await names(workspace, "data") == [f"{'a' * 64}.bin", "mine"]
        assert await names(workspace, "sessions/past") == []
        assert await names(workspace, "sessions/recent") == ["context.jsonl"]

    @_shell
    async def test_what_is_behind_a_link_is_never_removed(
        self, fresh_workspace: Factory, tmp_path: Path
    ) -> None:
        workspace = await fresh_workspace(retention=Retention(age=1000))
        files = [f"mine/{'a' * 64}.bin", "mine/past/context.jsonl"]
        for file in files:
            await put(workspace, tmp_path, file, b"1", 10**9)
        await workspace.run("ln -s mine data; ln -s mine sessions", check=True)
        await workspace.offload_context("s", [message("a")])
        for file in files:
            assert await workspace.exists(file)

    async def test_every_step_is_an_operation(self, fresh_workspace: Factory) -> None:
        sink = MemorySink()
        workspace = await fresh_workspace(audit=sink)
        await workspace.offload_context("s", [{"content": [_PIXEL]}])
        told = [str(record) for record in sink.records]
        assert any("context.jsonl" in each and "append" in each for each in told)
        assert any("/data/" in each for each in told)
