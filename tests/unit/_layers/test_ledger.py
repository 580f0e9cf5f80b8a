"""What is spent is counted once, and refused before it happens."""

from __future__ import annotations

import asyncio

import pytest

from isobox import Budget, Usage, abc
from isobox._core.results import Connection, Ongoing
from isobox._core.spec import Limits
from isobox._core.stack import compose
from isobox._layers import Ledger, Limited
from isobox.errors import BudgetError, SandboxLostError, UnsupportedError

pytestmark = pytest.mark.anyio


class Wire(Connection):
    """A connection to a host that counts its bytes."""

    def __init__(self):
        super().__init__()
        self.bytes_in = 0
        self.bytes_out = 0

    async def receive(self):
        self.bytes_in += 100
        return b"x" * 100

    async def send(self, data):
        self.bytes_out += len(data)

    async def send_eof(self):
        pass

    async def aclose(self):
        self._ended({"bytes_in": self.bytes_in, "bytes_out": self.bytes_out})


def connect(result):
    async def reach(_):
        return result

    return abc.Connect(host="a.test", port=443, via="direct", reach=reach)


async def unused():
    raise AssertionError("nobody looks")


def made(usage=unused, **budget):
    ledger = Ledger(Budget(**budget), usage)
    return ledger, compose(None, [Limited(Limits(), ledger)])


async def test_traffic_counts_while_it_flows_and_once():
    ledger, perform = made(egress=450)
    wire = await perform(connect(Wire()))
    assert isinstance(wire, Wire)
    await wire.receive()
    await wire.send(b"x" * 50)
    assert ledger.spent().egress == 150
    await wire.aclose()
    await wire.aclose()
    assert ledger.spent().egress == 150
    again = await perform(connect(Wire()))
    for _ in range(4):
        await again.receive()
    assert ledger.spent().egress == 550
    with pytest.raises(BudgetError, match="550 bytes of traffic of 450") as caught:
        await perform(connect(Wire()))
    assert (caught.value.budget, caught.value.op) == ("egress", "connect")
    await again.aclose()
    assert ledger.spent().egress == 550


async def test_what_has_no_traffic_counts_as_an_operation():
    ledger, perform = made(egress=0, ops=5)
    decided = Ongoing()
    await perform(connect(decided))
    decided._ended({})
    assert (ledger.spent().egress, ledger.spent().ops) == (0, 1)


@pytest.mark.parametrize("seen", [[0.2, 0.5, 0.4], [0.5, 0.1, 0.5]])
async def test_processor_time_is_what_was_seen_at_most(seen):
    numbers = iter(seen)

    async def usage():
        return Usage(cpu=next(numbers))

    ledger, _ = made(usage, cpu=10)
    for _ in seen:
        await ledger.look()
    assert ledger.spent().cpu == 0.5


async def test_processor_time_adds_up_over_sandboxes():
    used = [0.0]

    async def usage():
        return Usage(cpu=used[0])

    ledger = Ledger(Budget(cpu=1.0), usage)
    for each in (0.4, 0.3, 0.5):
        ledger.begin()
        used[0] = each
        await ledger.look()
    assert ledger.spent().cpu == pytest.approx(1.2)
    with pytest.raises(BudgetError, match=r"budget\.cpu"):
        ledger.check()


async def test_a_sandbox_that_is_gone_has_used_what_was_seen():
    async def usage():
        raise SandboxLostError("gone")

    ledger, _ = made(usage, cpu=1.0)
    await ledger.look()
    assert ledger.spent().cpu == 0


async def test_a_backend_that_cannot_tell_refuses():
    async def usage():
        return Usage()

    _, perform = made(usage, cpu=1.0)
    with pytest.raises(UnsupportedError, match=r"budget\.cpu"):
        await perform(abc.Spawn(argv=("true",), cwd="/"))


async def test_operations_at_once_do_not_pass_one_another():
    ledger, perform = made(ops=10)
    ops = [perform(connect(Ongoing())) for _ in range(25)]
    found = await asyncio.gather(*ops, return_exceptions=True)
    assert sum(isinstance(each, BudgetError) for each in found) == 15
    assert ledger.spent().ops == 10


async def test_who_waits_for_the_end_is_told_by_a_refusal_as_well():
    ledger, perform = made(ops=0)
    waiting = asyncio.create_task(ledger.exhausted())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    with pytest.raises(BudgetError):
        await perform(connect(Ongoing()))
    async with asyncio.timeout(5):
        assert (await waiting).budget == "ops"
