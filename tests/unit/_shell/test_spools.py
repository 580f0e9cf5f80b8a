"""Outputs that are to be written in full, and cannot be."""

from __future__ import annotations

import anyio
import pytest
from tests.shelled import ShelledWorkspace

from isobox._core.ops import Spawn
from isobox.abc import Limits

pytestmark = pytest.mark.anyio
#: The second is more than a pipe takes that nobody reads.
_AMOUNTS = {"little": 9, "much": 1 << 20}


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def _spooled(workspace, path, size):
    script = f"head -c {size} /dev/zero; exit 3"
    asked = Spawn(script=script, cwd="/workspace", capture=8, spool=path)
    with anyio.fail_after(60):
        return await (await workspace._sandbox.spawn(asked)).wait()


@pytest.mark.parametrize("amount", _AMOUNTS)
@pytest.mark.parametrize("image", ["busybox", "coreutils"])
async def test_nothing_is_told_of_a_spool_in_no_directory(image, amount):
    async with ShelledWorkspace(image=image) as workspace:
        end = await _spooled(workspace, "/proc/none/out", _AMOUNTS[amount])
    assert (end.exit_code, end.signal, end.spool) == (3, None, None)
    assert end.stdout.total == _AMOUNTS[amount]


@pytest.mark.parametrize("amount", _AMOUNTS)
@pytest.mark.parametrize("image", ["busybox", "coreutils"])
async def test_nothing_is_told_of_a_spool_on_a_full_disk(image, amount):
    async with ShelledWorkspace(image=image, limits=Limits(tmp=1 << 20)) as workspace:
        await workspace.run("cat /dev/zero >/tmp/fill")
        end = await _spooled(workspace, "/tmp/out", _AMOUNTS[amount])
    assert (end.exit_code, end.signal, end.spool) == (3, None, None)


@pytest.mark.parametrize("amount", _AMOUNTS)
async def test_a_spool_that_is_written_is_told_of(amount):
    async with ShelledWorkspace() as workspace:
        end = await _spooled(workspace, "/workspace/a/out", _AMOUNTS[amount])
        data = await workspace.read_bytes("a/out")
    assert (end.exit_code, end.spool) == (3, "/workspace/a/out")
    assert data == bytes(_AMOUNTS[amount])


async def test_the_timeout_of_a_command_whose_spool_failed_holds():
    script = "head -c 1048576 /dev/zero; while :; do sleep 1; done"
    async with ShelledWorkspace() as workspace:
        asked = Spawn(
            script=script, cwd="/workspace", capture=8, spool="/proc/x", timeout=1
        )
        with anyio.fail_after(60):
            end = await (await workspace._sandbox.spawn(asked)).wait()
    assert (end.timed_out, end.signal, end.spool) == (True, "SIGKILL", None)
