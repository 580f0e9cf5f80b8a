"""Grep of files that are too long to be taken at once."""

from __future__ import annotations

import pytest

from isobox import LocalWorkspace

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tree(tmp_path):
    (tmp_path / "big.log").write_bytes(b"straw and straw\n" * (5 << 20) + b"NEEDLE\n")
    async with LocalWorkspace(workdir=str(tmp_path)) as workspace:
        yield workspace


async def grepped(workspace, **arguments):
    tools = {tool.name: tool for tool in await workspace.list_tools()}
    return await tools["Grep"](path="big.log", **arguments)


async def test_what_comes_late_is_found(tree):
    result = await grepped(tree, pattern="NE+DLE")
    assert result.text == "big.log\n5242881:NEEDLE"


async def test_that_it_was_not_searched_to_the_end_is_said(tree):
    result = await grepped(tree, pattern="NE+DLE", multiline=True)
    assert result.text == (
        "[no match in what was searched of 1 file; include_ignored=true searches "
        "ignored files too]\n[over 64 MiB, and not searched to the end: big.log]"
    )
