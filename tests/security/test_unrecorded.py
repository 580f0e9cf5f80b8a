"""A sandbox that the audit log was not told of does not go on."""

from __future__ import annotations

import pytest

from isobox import BubblewrapWorkspace, Budget, LocalWorkspace, Policy
from isobox._layers.reader import SHARED
from isobox.errors import WorkspaceClosedError

pytestmark = pytest.mark.anyio


class Refusing:
    """A sink that does not take the records of one event."""

    def __init__(self, event):
        self.event = event
        self.records = []

    def put(self, record):
        if record.get("event") == self.event:
            raise OSError(28, "No space left on device")
        self.records.append(record)


def kept(kind):
    class Kept(kind):
        """Remembers the sandboxes that it had."""

        async def _open(self, sandbox):
            self.had = [*getattr(self, "had", []), sandbox]
            await super()._open(sandbox)

    return Kept


@pytest.fixture(params=[LocalWorkspace, BubblewrapWorkspace])
def kind(request):
    return kept(request.param)


@pytest.mark.parametrize(
    "options",
    [{}, {"budget": Budget(seconds=60, close=True)}, {"policy": Policy.auto()}],
    ids=["plain", "budget", "policy"],
)
async def test_a_start_that_is_not_recorded_leaves_nothing(kind, options):
    sink = Refusing("initialize")
    workspace = kind(audit=sink, **options)
    users = SHARED._users
    with pytest.raises(OSError, match="No space left"):
        await workspace.initialize()
    assert workspace.had[0].lost
    assert SHARED._users == users
    with pytest.raises(WorkspaceClosedError):
        await workspace.run("true")
    assert sink.records == []
    # It is as it was before.
    sink.event = "never"
    async with workspace:
        assert (await workspace.run("echo hi")).stdout == "hi\n"
    assert [each.get("event", each["kind"]) for each in sink.records] == [
        "initialize",
        "intent",
        "outcome",
        "close",
    ]
    assert len(workspace.had) == 2


async def test_a_way_out_is_closed_with_it():
    workspace = kept(BubblewrapWorkspace)(
        audit=Refusing("initialize"), network=["a.test"]
    )
    with pytest.raises(OSError, match="No space left"):
        await workspace.initialize()
    assert workspace.had[0].lost
    assert workspace._gate._filter is None


async def test_an_end_that_is_not_recorded_is_an_end(kind):
    workspace = kind(audit=Refusing("close"))
    await workspace.initialize()
    with pytest.raises(OSError, match="No space left"):
        await workspace.close()
    assert workspace.had[0].lost
