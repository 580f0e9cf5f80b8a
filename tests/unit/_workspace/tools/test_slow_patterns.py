"""Grep whose pattern runs out of time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isobox import LocalWorkspace
from isobox._workspace.tools import grep

pytestmark = pytest.mark.anyio

SLOW = "a" * 60 + "b\n"


@pytest.fixture
def hurried(monkeypatch):
    """Give a search less time than it has."""
    operation = grep._operation
    monkeypatch.setattr(
        grep, "_operation", lambda *given: replace(operation(*given), timeout=1.5)
    )


async def grepped(workspace, **arguments):
    tools = {tool.name: tool for tool in await workspace.list_tools()}
    return await tools["Grep"](**arguments)


@pytest.mark.usefixtures("hurried")
async def test_that_nothing_was_found_in_time_is_an_error():
    async with LocalWorkspace() as workspace:
        await workspace.write("f", SLOW)
        result = await grepped(workspace, pattern="(a+)+$")
    assert result.is_error
    assert result.text == (
        "the pattern ran out of time after 1.5 s, and nothing was found by then; "
        "simplify it, or narrow path or glob"
    )


@pytest.mark.usefixtures("hurried")
async def test_what_was_found_in_time_is_shown():
    async with LocalWorkspace() as workspace:
        await workspace.write("a", "x\naa\n")
        await workspace.write("f", SLOW)
        result = await grepped(workspace, pattern="(a+)+$")
    assert not result.is_error
    assert result.text == (
        "a\n2:aa\n[the pattern ran out of time after 1.5 s, and what comes after "
        "this was not searched; simplify it, or narrow path or glob]"
    )
