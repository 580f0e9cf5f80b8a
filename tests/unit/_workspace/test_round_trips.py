"""What a tool does is one round trip: one OPEN frame, and no other operation."""

from __future__ import annotations

import pytest

from isobox import LocalWorkspace
from isobox._guest import agent

pytestmark = pytest.mark.anyio

_PATCH = (
    "*** Begin Patch\n*** Add File: new\n+x\n*** Update File: file\n@@\n-two\n+2\n"
    "*** Delete File: gone\n*** End Patch\n"
)
CALLS = {
    "read_lines": lambda ws: ws.read_lines("file", start=-1),
    "write": lambda ws: ws.write("other", "text", if_match=""),
    "edit": lambda ws: ws.edit("file", "two", "2"),
    "edit_all": lambda ws: ws.edit_all("file", [("two", "2"), ("one", "1")]),
    "apply_patch": lambda ws: ws.apply_patch(_PATCH),
    "glob": lambda ws: ws.glob("**/*", ignored=False, newest=True, limit=2),
    "grep": lambda ws: ws.grep("o", mode="count", ignored=False, types=["py"]),
    "grep many": lambda ws: ws.grep("o", path="many", after=2),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_one_round_trip(name):
    async with LocalWorkspace() as workspace:
        await workspace.write("file", "one\ntwo\n")
        await workspace.write("gone", "")
        await workspace.run(
            "mkdir many; for n in $(seq 300); do echo one > many/$n; done"
        )
        channel = workspace._sandbox.channel
        opened = []
        write = channel.write

        def noting(kind, number, *parts):
            if kind in (agent.OPEN, agent.CONTROL):
                opened.append(kind)
            write(kind, number, *parts)

        channel.write = noting
        await CALLS[name](workspace)
        assert opened == [agent.OPEN]
