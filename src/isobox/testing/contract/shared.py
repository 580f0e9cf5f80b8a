"""One workspace for all tests of a class that only need a clean one.

For backends whose sandboxes take long to make. Mix it in before the contract:

    class TestMine(SharedWorkspace, WorkspaceContract): ...

A test that kills its sandbox gets one of its own. A sandbox that cannot be
cleaned after a test, or that the test has closed or replaced, is not used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from typing_extensions import override

from isobox.errors import IsoboxError
from isobox.testing.contract._base import SOON, Contract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from isobox import WorkspaceBase
    from isobox.abc import Sandbox

#: Fixtures of tests that need a sandbox of their own.
_BREAKING = frozenset(("kill_sandbox",))

#: Ends what runs, but for the guest's own, and empties what can be written.
_CLEAN = r"""
cd /
read -r guest < /proc/1/cmdline
for place in /proc/[0-9]*; do
  pid=${place#/proc/} program=
  read -r program < $place/cmdline
  if [ $pid != $$ ] && [ -O $place ] && [ "$program" != "$guest" ]; then
    kill -9 $pid
  fi
done 2> /dev/null
chmod -R u+rwX "$@" 2> /dev/null
exec find "$@" -mindepth 1 -delete
"""


class Shared:
    """A workspace that one test after the other uses.

    Args:
        make: Returns a workspace that is not open yet.
    """

    def __init__(self, make: Callable[[], WorkspaceBase]) -> None:
        self._make = make
        self._workspace: WorkspaceBase | None = None
        self._sandbox: Sandbox | None = None

    async def take(self) -> WorkspaceBase:
        """Return a clean workspace."""
        if self._workspace is None:
            made = self._make()
            await made.initialize()
            self._workspace, self._sandbox = made, made._sandbox
        return self._workspace

    async def clean(self) -> None:
        """Make it clean for the next test, or let it go."""
        try:
            with anyio.fail_after(SOON):
                clean = await self._cleaned()
        except (IsoboxError, TimeoutError):
            clean = False
        if not clean:
            await self.aclose()

    async def _cleaned(self) -> bool:
        workspace = self._workspace
        if workspace is None or workspace._sandbox is not self._sandbox:
            return False
        workspace._shells.clear()
        workspace._processes.clear()
        workspace._sessions.clear()
        places = (workspace.root, "/tmp", "/home/agent")
        result = await workspace.run(["sh", "-c", _CLEAN, "clean", *places])
        return result.exit_code == 0

    async def aclose(self) -> None:
        """Close it."""
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            await workspace.close()


class SharedWorkspace(Contract):
    """Lets a class's tests share a workspace."""

    @override
    @pytest.fixture(scope="class")
    @classmethod
    def anyio_backend(cls) -> str:
        return "asyncio"

    @pytest.fixture(scope="class")
    @classmethod
    async def shared(cls) -> AsyncIterator[Shared]:
        shared = Shared(cls().make_workspace)
        yield shared
        await shared.aclose()

    @override
    @pytest.fixture
    async def workspace(
        self, shared: Shared, request: pytest.FixtureRequest
    ) -> AsyncIterator[WorkspaceBase]:
        if _BREAKING & set(request.fixturenames):
            async with self.make_workspace() as opened:
                yield opened
            return
        yield await shared.take()
        await shared.clean()
