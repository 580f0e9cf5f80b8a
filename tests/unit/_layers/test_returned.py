"""What a result brings out is counted in bytes, names and texts alike."""

from __future__ import annotations

import pytest

from isobox import Budget, abc
from isobox._core.results import (
    ByteStream,
    Change,
    Changes,
    Edited,
    Entry,
    Listing,
    Match,
    Matches,
    Page,
    Patched,
)
from isobox._core.spec import Limits
from isobox._layers import Ledger, Limited
from isobox._layers.returned import size
from isobox.errors import BudgetError

pytestmark = pytest.mark.anyio

ENTRY = Entry("/w/\udcff", "symlink", 9, 0o777, 0, target="é")
CHANGES = Changes(
    (Change("a", "added", "file", text="+x"), Change("b", "added", "file"))
)


@pytest.mark.parametrize(
    ("result", "count"),
    [
        (Page(entry=ENTRY, lines=("ab", "é"), data=b"123"), 7),
        (Listing((ENTRY, ENTRY)), 12),
        (Matches((Match("/a", 1, "b", ("c",), ("d", "e")),), skipped=("/f",)), 8),
        (Matches((), partial=("/f",)), 2),
        (CHANGES, 4),
        (Edited(ENTRY, 1, diff="-a\n+b\n"), 6),
        (Patched((ENTRY,), ("/x",)), 8),
        (Listing(()), 0),
    ],
)
def test_size(result, count):
    assert size(result) == count


class Pieces(ByteStream):
    def __init__(self, *sizes):
        super().__init__()
        self.sizes = list(sizes)

    async def receive(self):
        return b"x" * (self.sizes.pop(0) if self.sizes else 0)

    async def aclose(self):
        self.sizes = []


async def unused():
    raise AssertionError("nobody looks")


def limited(most):
    ledger = Ledger(Budget(output=most), unused)
    return ledger, Limited(Limits(), ledger)


def giving(result):
    async def inner(_):
        return result

    return inner


async def test_a_read_is_stopped_at_the_piece_that_is_too_much():
    ledger, layer = limited(25)
    stream = await layer(abc.Read(path="/w/a"), giving(Pieces(*[10] * 9)))
    assert [len(await stream.receive()) for _ in range(2)] == [10, 10]
    with pytest.raises(BudgetError) as caught:
        await stream.receive()
    assert (caught.value.budget, caught.value.op) == ("output", "read")
    assert ledger.spent().output == 30


async def test_who_gets_nothing_has_no_part_in_what_others_got():
    _, layer = limited(25)
    stream = await layer(abc.Read(path="/w/a"), giving(Pieces(10)))
    other = await layer(abc.Read(path="/w/a"), giving(Pieces(20)))
    await stream.receive()
    with pytest.raises(BudgetError):
        await other.receive()
    assert await stream.receive() == b""


async def test_what_looks_is_refused_and_what_changes_is_told():
    for op in (abc.Scan(path="/w"), abc.Diff()):
        ledger, layer = limited(3)
        with pytest.raises(BudgetError, match=r"budget\.output"):
            await layer(op, giving(CHANGES))
        assert ledger.spent().output == 4
    ledger, layer = limited(3)
    assert await layer(abc.Apply(), giving(CHANGES)) is CHANGES
    assert ledger.spent().output == 4
