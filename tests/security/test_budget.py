"""What a workspace may spend, on real ones: once it is spent, nothing happens."""

from __future__ import annotations

import contextlib
import time

import anyio
import pytest

from isobox import BubblewrapWorkspace, Budget, LocalWorkspace, Policy
from isobox.errors import (
    BudgetError,
    InvalidArgumentError,
    IsoboxError,
    PolicyDeniedError,
    SandboxLostError,
    UnsupportedError,
    WorkspaceClosedError,
)
from isobox.testing.contract._base import SOON

pytestmark = pytest.mark.anyio

KINDS = {"local": LocalWorkspace, "bubblewrap": BubblewrapWorkspace}
#: Takes some tenths of a second of the processor, however busy the machine is.
BUSY = "for ((i = 0; i < 200000; i++)); do :; done"
CLOSED = (SandboxLostError, WorkspaceClosedError, BudgetError)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


async def refused(workspace, name):
    with pytest.raises(BudgetError, match=rf"budget\.{name}") as caught:
        await workspace.run("touch refused")
    assert caught.value.budget == name
    assert caught.value.op == "spawn"


async def closed(workspace, within):
    """Wait until nothing can be done there any more."""
    with anyio.fail_after(within):
        while True:
            try:
                workspace.isolation()
            except WorkspaceClosedError:
                return
            await anyio.sleep(0.02)


async def test_operations(kind, work):
    async with kind(work, budget=Budget(ops=3)) as ws:
        await ws.run("true")
        await ws.write("file", b"x")
        await ws.read_bytes("file")
        with pytest.raises(BudgetError, match="3 operations of 3") as caught:
            await ws.write("other", b"x")
        assert (caught.value.budget, caught.value.op) == ("ops", "write")
        assert ws.spent().ops == 3
        await refused(ws, "ops")
        assert ws.spent().ops == 3
    assert sorted(each.name for each in work.iterdir()) == ["file"]


async def test_what_the_policy_denies_costs_nothing(kind, work):
    policy = Policy.preset("read_only")
    async with kind(work, policy=policy, budget=Budget(ops=1)) as ws:
        for _ in range(3):
            with pytest.raises(PolicyDeniedError):
                await ws.write("file", b"x")
        assert ws.spent().ops == 0
        await ws.scan()


async def test_wall_time_counts_from_the_first_start(kind, work):
    workspace = kind(work, budget=Budget(seconds=0.4))
    await anyio.sleep(0.5)
    async with workspace as ws:
        await ws.run("true")
        await anyio.sleep(0.5)
        await refused(ws, "seconds")
    assert list(work.iterdir()) == []


async def test_processor_time(work):
    async with BubblewrapWorkspace(work, budget=Budget(cpu=0.2)) as ws:
        await ws.run("true")
        await ws.run(BUSY)
        await refused(ws, "cpu")
        assert ws.spent().cpu > 0.2


async def test_a_backend_that_cannot_tell_the_processor_time_says_so(work):
    with pytest.raises(UnsupportedError, match=r"budget\.cpu"):
        async with LocalWorkspace(work, budget=Budget(cpu=1)) as ws:
            await ws.run("touch refused")
    assert list(work.iterdir()) == []


async def test_output_that_is_captured(kind, work):
    async with kind(work, budget=Budget(output=1000)) as ws:
        await ws.run("head -c 400 /dev/zero; head -c 500 /dev/zero >&2")
        assert ws.spent().output == 900
        # What is not kept is printed all the same.
        with pytest.raises(BudgetError, match=r"budget\.output"):
            await ws.run("head -c 9000 /dev/zero", output_limit=10)
        assert 1000 < ws.spent().output <= 9900
        await refused(ws, "output")


@pytest.mark.parametrize("printing", ["exec yes", "yes & yes >&2 & wait", "exec yes a"])
async def test_a_command_that_prints_for_ever_ends_at_the_budget(kind, work, printing):
    async with kind(work, budget=Budget(output=4_000_000)) as ws:
        with anyio.fail_after(SOON), pytest.raises(BudgetError) as caught:
            await ws.run(printing, output_limit=10)
        assert (caught.value.budget, caught.value.op) == ("output", "spawn")
        # As much as was under way, and no more than that.
        assert 4_000_000 < ws.spent().output < 8_000_000
        await refused(ws, "output")


async def test_one_that_prints_little_by_little_ends_there_too(kind, work):
    async with kind(work, budget=Budget(output=20)) as ws:
        began = time.monotonic()
        with pytest.raises(BudgetError):
            await ws.run("while :; do echo xxx; sleep 0.02; done; touch refused")
        assert time.monotonic() - began < SOON
        assert 20 < ws.spent().output < 100
    assert list(work.iterdir()) == []


async def test_a_command_in_the_background_ends_at_the_budget(kind, work):
    async with kind(work, budget=Budget(output=100_000)) as ws:
        tools = {tool.name: tool for tool in await ws.list_tools()}
        await tools["Bash"](command="yes", run_in_background=True)
        with anyio.fail_after(SOON):
            while ws.spent().output <= 100_000:
                await anyio.sleep(0.02)
        spent = ws.spent().output
        await anyio.sleep(0.3)
        assert ws.spent().output == spent
        told = await tools["BashOutput"](job_id="job-1")
        assert "budget.output" in told.text


async def test_who_prints_nothing_has_no_part_in_it(kind, work):
    async with kind(work, budget=Budget(output=1000)) as ws:
        quiet = await ws.start("read x; exit 3", stdin=True)
        with pytest.raises(BudgetError):
            await ws.run("head -c 9000 /dev/zero")
        await quiet.write_eof()
        assert (await quiet.wait()).exit_code == 3


async def test_a_fork_spends_of_the_same_budget(kind, work):
    budget = Budget(ops=8, cost=2)
    async with kind(work, budget=budget) as ws, await ws.fork() as fork:
        other = await fork.fork()
        async with other:
            before, printed = ws.spent().ops, ws.spent().output
            assert before == fork.spent().ops == other.spent().ops
            await fork.run("head -c 300 /dev/zero")
            other.spend(1.5)
            assert (ws.spent().output - printed, ws.spent().cost) == (300, 1.5)
            for _ in range(before + 1, 8):
                await ws.run("true")
            for each in (other, fork, ws):
                await refused(each, "ops")


async def test_a_fork_may_have_a_budget_of_its_own(kind, work):
    async with kind(work, budget=Budget(ops=3)) as ws:
        async with await ws.fork(budget=Budget(ops=2)) as fork:
            await fork.run("true")
            await refused(fork, "ops")
            assert ws.spent().ops == 1
        await ws.run("true")
        await ws.run("true")
        await refused(ws, "ops")


async def test_the_processor_time_of_forks_adds_up(work):
    async with BubblewrapWorkspace(work, budget=Budget(cpu=100)) as ws:
        async with await ws.fork() as fork:
            await fork.run(BUSY)
            await ws.run("true")
            spent = ws.spent().cpu
            assert spent > 0.2
        await ws.run(BUSY)
        await ws.run("true")
        assert ws.spent().cpu > spent + 0.1


async def test_output_that_is_streamed(kind, work):
    async with kind(work, budget=Budget(output=1000)) as ws:
        process = await ws.start("head -c 600 /dev/zero; head -c 700 /dev/zero >&2")
        with anyio.fail_after(20):
            assert len(await process.stdout.read()) == 600
            with pytest.raises(BudgetError):
                await process.stderr.read()
            with pytest.raises(BudgetError):
                await process.wait()
        assert ws.spent().output == 1300
        await refused(ws, "output")


async def test_output_of_a_stream_counts_while_it_runs(kind, work):
    async with kind(work, budget=Budget(output=100_000)) as ws:
        process = await ws.start("exec yes")
        with anyio.fail_after(20):
            with pytest.raises(BudgetError):
                await process.stdout.read()
            assert 100_000 < ws.spent().output < 2_000_000
            # It was killed, whether or not anybody reads on.
            await process._inner.wait()
        await refused(ws, "output")


async def test_a_shell_session_is_counted_once(kind, work):
    async with kind(work, budget=Budget(output=1000)) as ws:
        for _ in range(3):
            result = await ws.run("head -c 200 /dev/zero", session_id="a")
            assert len(result.stdout_bytes) == 200
        await ws.run("head -c 100 /dev/zero >&2", session_id="a")
        assert ws.spent().output == 700
        for script in ("head -c 400 /dev/zero", "touch refused"):
            with pytest.raises(BudgetError, match=r"budget\.output"):
                await ws.run(script, session_id="a")
    assert list(work.iterdir()) == []


async def test_what_is_read_is_output(kind, work):
    (work / "file").write_bytes(b"line\n" * 100)
    async with kind(work, budget=Budget(output=1500)) as ws:
        assert len(await ws.read_bytes("file")) == 500
        assert ws.spent().output == 500
        await ws.read_lines("file")
        assert ws.spent().output == 900
        found = await ws.grep("line", limit=3, before=1)
        names = sum(len(each.path) for each in found.matches)
        assert ws.spent().output == 900 + 3 * 4 + 2 * 4 + names
        await ws.read_lines("file", count=20)
        with pytest.raises(BudgetError) as caught:
            await ws.read_bytes("file")
        assert (caught.value.budget, caught.value.op) == ("output", "read")
        await refused(ws, "output")


READS = {
    "read": lambda ws, _: ws.read_bytes("file"),
    "file": lambda ws, to: ws.download("file", to / "copy"),
    "tree": lambda ws, to: ws.download("tree", to / "copy"),
    "fork": lambda ws, _: ws.fork(),
}


@pytest.mark.parametrize("way", READS)
async def test_a_read_ends_at_the_budget(kind, work, tmp_path, way):
    (work / "tree").mkdir()
    for path in (work / "file", work / "tree" / "file"):
        with path.open("wb") as file:
            file.truncate(30_000_000)
    async with kind(work, budget=Budget(output=1_000_000)) as ws:
        with pytest.raises(BudgetError) as caught:
            await READS[way](ws, tmp_path)
        assert caught.value.budget == "output"
        assert caught.value.op in ("read", "pull")
        assert 1_000_000 < ws.spent().output < 1_000_000 + 131_072 + 1000
        await refused(ws, "output")
    assert sum(each.stat().st_size for each in tmp_path.rglob("copy/*")) < 1_000_000
    assert not (tmp_path / "copy").is_file()


async def scanning(workspace):
    while True:
        await workspace.scan()


async def test_names_are_output(kind, work):
    for n in range(100):
        (work / f"{n:03}{'x' * 97}").touch()
    async with kind(work, budget=Budget(output=35_000)) as ws:
        for look in (ws.scan, lambda: ws.glob("*"), lambda: ws.grep("", mode="files")):
            spent = ws.spent().output
            await look()
            assert ws.spent().output - spent < 100 * 200
        spent = ws.spent().output
        assert spent >= 100 * 100 * 2
        with anyio.fail_after(SOON), pytest.raises(BudgetError, match="output"):
            await scanning(ws)
        await refused(ws, "output")


async def test_a_link_says_no_more_than_the_budget(kind, work):
    (work / "link").symlink_to("x" * 4000)
    async with kind(work, budget=Budget(output=4500)) as ws:
        await ws.scan()
        assert ws.spent().output > 4000
        with pytest.raises(BudgetError, match=r"budget\.output"):
            await ws.scan()


async def test_changes_are_output(work):
    (work / "file").write_text("old\n")
    budget = Budget(output=1000)
    async with BubblewrapWorkspace(work, mode="copy", budget=budget) as ws:
        await ws.write("file", "x" * 600)
        (change,) = (await ws.diff()).changes
        assert ws.spent().output == len("file") + len(change.text)
        # What has come to the directory is told, however much it is.
        assert (await ws.apply()).changes
    assert (work / "file").read_text() == "x" * 600


async def test_what_an_edit_shows_is_output(kind, work):
    (work / "file").write_text("x" * 600)
    async with kind(work, budget=Budget(output=1000)) as ws:
        edited = await ws.edit("file", "x" * 600, "y" * 600)
        assert ws.spent().output == len(edited.diff) > 1000
        await refused(ws, "output")
    assert (work / "file").read_text() == "y" * 600


async def test_cost(kind, work):
    async with kind(work, budget=Budget(cost=2.0)) as ws:
        ws.spend(1.5)
        await ws.run("true")
        with pytest.raises(BudgetError, match=r"2\.25 units of 2\.0"):
            ws.spend(0.75)
        await refused(ws, "cost")
        for wrong in (-1.0, float("nan"), float("inf")):
            with pytest.raises(InvalidArgumentError):
                ws.spend(wrong)
        assert ws.spent().cost == 2.25


async def test_reset_keeps_what_was_spent(kind, work):
    async with kind(work, budget=Budget(ops=2, cost=5, output=10_000)) as ws:
        await ws.run("head -c 100 /dev/zero")
        ws.spend(3)
        await anyio.sleep(0.05)
        before = ws.spent()
        await ws.reset()
        after = ws.spent()
        assert (after.ops, after.cost, after.output) == (1, 3, 100)
        assert after.seconds >= before.seconds > 0.05
        await ws.run("true")
        await refused(ws, "ops")


async def test_reset_begins_no_new_processor_time(work):
    async with BubblewrapWorkspace(work, budget=Budget(cpu=100)) as ws:
        await ws.run(BUSY)
        await ws.run("true")
        first = ws.spent().cpu
        assert first > 0.2
        await ws.reset()
        await ws.run(BUSY)
        await ws.run("true")
        assert ws.spent().cpu > first * 1.4


@pytest.mark.parametrize("spent", ["seconds", "output", "cost", "ops"])
async def test_what_is_spent_closes_the_workspace(kind, work, spent):
    limits = {"seconds": 1.0, "output": 1000, "cost": 1.0, "ops": 2}
    budget = Budget(close=True, **{spent: limits[spent]})
    workspace = kind(work, budget=budget)
    await workspace.initialize()
    try:
        process = await workspace.start("sleep 300 & sleep 300")
        if spent == "output":
            with pytest.raises(BudgetError):
                await workspace.run("head -c 2000 /dev/zero")
        elif spent == "cost":
            with pytest.raises(BudgetError):
                workspace.spend(2)
        elif spent == "ops":
            await workspace.run("true")
            await refused(workspace, "ops")
        began = time.monotonic()
        with anyio.fail_after(10), contextlib.suppress(IsoboxError):
            await process.wait()
        await closed(workspace, within=SOON)
        assert time.monotonic() - began < SOON
        with pytest.raises(CLOSED):
            await workspace.run("touch refused")
        closed_for = f"closed because its budget is spent: .*budget.{spent}"
        with pytest.raises(WorkspaceClosedError, match=closed_for):
            await workspace.run("true")
    finally:
        await workspace.close()
    assert list(work.iterdir()) == []


async def test_processor_time_closes_a_workspace_that_is_busy(work):
    workspace = BubblewrapWorkspace(work, budget=Budget(cpu=0.5, close=True))
    await workspace.initialize()
    try:
        began = time.monotonic()
        with pytest.raises(CLOSED):
            await workspace.run("while :; do :; done")
        # Nothing else would end it; a busy machine takes its time.
        assert time.monotonic() - began < SOON
        await closed(workspace, within=SOON)
    finally:
        await workspace.close()


async def test_without_a_budget_nothing_is_counted(kind, work):
    async with kind(work) as ws:
        await ws.run("echo x")
        ws.spend(1e9)
        assert ws.spent().ops == 0


async def test_what_ran_last_before_a_reset_counts(work):
    async with BubblewrapWorkspace(work, budget=Budget(cpu=100)) as ws:
        await ws.run(BUSY)
        await ws.reset()
        assert ws.spent().cpu > 0.2
