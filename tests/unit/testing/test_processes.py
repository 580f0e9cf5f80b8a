"""Processes of the host, for tests of backends."""

import subprocess

import pytest

from isobox.testing.contract._base import unique_seconds
from isobox.testing.processes import kill_tree, runs_on_host

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_a_tree_is_killed_to_its_leaves():
    seconds = unique_seconds()
    script = f"sleep {seconds} & echo ready; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while not runs_on_host("sleep", seconds):
            pass
        await kill_tree(process.pid)
        assert not runs_on_host("sleep", seconds)
    assert process.returncode == -9


def test_what_does_not_run_is_not_found():
    assert not runs_on_host("sleep", unique_seconds())
