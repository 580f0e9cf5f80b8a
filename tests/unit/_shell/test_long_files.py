"""Searches of files that are longer than what is brought out of a sandbox."""

from __future__ import annotations

import pytest
from tests.shelled import ShelledWorkspace

from isobox._shell import sought

pytestmark = pytest.mark.anyio


async def test_those_not_searched_to_the_end_are_named(monkeypatch):
    monkeypatch.setattr(sought, "_LARGEST", 64)
    async with ShelledWorkspace(image="busybox") as workspace:
        await workspace.write("long", "straw\n" * 40 + "needle\n")
        await workspace.write("binary", "\0" + "straw\n" * 40)
        await workspace.write("short", "straw\n")
        found = await workspace.grep("nee+dle")
        root = workspace.root
    assert found.matches == ()
    assert found.partial == (f"{root}/long",)
