"""Values of secrets leave in no offload."""

from __future__ import annotations

import pytest

from isobox import DataBlock, TextBlock, ToolResult
from isobox._egress.redact import Redactor
from isobox.testing.fake import MemoryWorkspace

pytestmark = pytest.mark.anyio
SECRET = "correct horse battery"


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Knowing(MemoryWorkspace):
    async def _redactor(self):
        return Redactor([SECRET.encode()])


async def test_no_file_holds_a_secret():
    raw = SECRET.encode()
    async with Knowing() as workspace:
        await workspace.offload_context("s", [{SECRET: [SECRET, raw]}])
        for result in (
            SECRET,
            raw,
            b"\0" + raw,
            {"content": [{"type": "text", "text": SECRET}]},
            {"text": 1, "other": SECRET},
            ToolResult(blocks=(TextBlock(SECRET), DataBlock("image/png", raw))),
        ):
            await workspace.offload_tool_result("s", result)
        files = [
            each.path
            for each in (await workspace.scan(depth=None)).entries
            if each.kind == "file"
        ]
        contents = [await workspace.read_bytes(path) for path in files]
    assert len(contents) >= 8
    assert all(raw not in content for content in contents)
    assert sum(b"*" * len(raw) in content for content in contents) >= 8
