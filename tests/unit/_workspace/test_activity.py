"""What counts as use of a workspace, and whether its sandbox answers."""

from __future__ import annotations

import os
import signal

import anyio
import pytest

from isobox import LocalWorkspace
from isobox.errors import PathMissingError
from isobox.testing.fake import MemoryWorkspace

pytestmark = pytest.mark.anyio


@pytest.fixture
async def workspace():
    async with MemoryWorkspace() as opened:
        yield opened


async def test_nothing_is_no_use(workspace):
    assert not workspace._activity.in_use


async def test_each_operation_is_use_when_it_begins_and_ends(workspace):
    times = iter((1.0, 2.0, 3.0))
    workspace._activity.go_by(lambda: next(times))
    await workspace.write("file", "text")
    assert not workspace._activity.in_use
    assert workspace._activity.used == 3.0


async def test_one_that_fails_has_ended(workspace):
    with pytest.raises(PathMissingError):
        await workspace.read_bytes("missing")
    assert not workspace._activity.in_use


async def test_a_command_is_use_until_it_ends(workspace):
    process = await workspace.start(["sleep", "1000"])
    assert workspace._activity.in_use
    await process.kill()
    assert not workspace._activity.in_use


async def test_a_command_that_is_run_is_use(workspace):
    async with anyio.create_task_group() as group:
        group.start_soon(workspace.run, ["sleep", "1000"])
        with anyio.fail_after(30):
            while not workspace._activity.in_use:
                await anyio.sleep(0)
        await anyio.wait_all_tasks_blocked()
        assert workspace._activity.in_use
        group.cancel_scope.cancel()
    assert not workspace._activity.in_use


async def test_what_ended_with_its_sandbox_is_no_use_of_the_next(workspace):
    process = await workspace.start(["sleep", "1000"])
    await workspace.reset()
    assert not workspace._activity.in_use
    del process
    await workspace.write("file", "text")
    assert not workspace._activity.in_use


async def test_one_that_is_not_open_is_lost_and_answers_nothing():
    workspace = MemoryWorkspace()
    assert workspace._is_lost()
    assert not await workspace._answers(1)


async def test_a_crash_is_known_at_once(workspace):
    assert await workspace._answers(1)
    workspace._sandbox.crash()
    assert workspace._is_lost()
    assert not await workspace._answers(1)


async def test_a_guest_answers_while_it_is_there():
    async with LocalWorkspace() as workspace:
        for _ in range(3):
            assert await workspace._answers(30)
        await anyio.lowlevel.checkpoint()
        assert (await workspace.run("true")).ok
    assert not await workspace._answers(30)


async def test_a_guest_that_stands_still_does_not_answer():
    async with LocalWorkspace() as workspace:
        pid = workspace._sandbox._child.pid
        os.kill(pid, signal.SIGSTOP)
        assert not await workspace._answers(0.2)
        os.kill(pid, signal.SIGCONT)
        assert await workspace._answers(30)
        assert not workspace._is_lost()


async def test_who_asks_a_guest_that_ends_is_told():
    async with LocalWorkspace() as workspace:
        pid = workspace._sandbox._child.pid
        os.kill(pid, signal.SIGSTOP)
        async with anyio.create_task_group() as group:
            answers = []

            async def ask():
                answers.append(await workspace._answers(30))

            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            os.kill(pid, signal.SIGKILL)
        assert answers == [False]
