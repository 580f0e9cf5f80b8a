"""A command that stops all that it can: its timeout holds, and others go on."""

from __future__ import annotations

import anyio
import pytest
from tests.shelled import ShelledWorkspace

pytestmark = pytest.mark.anyio
STOP = "kill -STOP -1; sleep 100"


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.parametrize("image", ["busybox", "coreutils"])
async def test_a_timeout_holds(image):
    async with ShelledWorkspace(image=image) as workspace:
        # The shell that did this one waits for more, and is stopped as well.
        await workspace.write("a", "x")
        with anyio.fail_after(60):
            result = await workspace.run(STOP, timeout=1)
        assert (result.timed_out, result.signal) == (True, "SIGKILL")
        assert (await workspace.run("cat a")).stdout == "x"
