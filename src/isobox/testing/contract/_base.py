"""What every part of the contract shares."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import anyio
import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from isobox import WorkspaceBase

#: Seconds within which anything that does not wait is over, even on a machine
#: that is busy.
SOON = 15.0

#: Seconds that the specification gives a timeout or a cancel.
GRACE = 0.5

#: Seconds of GRACE on a machine that runs other tests beside this one.
SLACK = 3 * GRACE

Kill = Callable[["WorkspaceBase"], Awaitable[None]]


class Factory(Protocol):
    """Makes one more workspace, open until the test ends."""

    async def __call__(
        self,
        **options: Any,  # noqa: ANN401 - each backend has its own options
    ) -> WorkspaceBase: ...


class Contract:
    """What a backend's test class says of its backend.

    Attributes:
        capabilities: What it can do, of `isobox.abc.CAPABILITIES` and of those
            that only tests know: `posix_shell`, a shell with the usual tools;
            `python3`, an interpreter inside; `proc`, a Linux /proc inside;
            `cancel`, calls that can be cancelled; `streamed_body`, writes of
            pieces that arrive; `confined`, file operations stay below the root;
            `bounded_regex`, a search that no expression can hang; `sized_tmp`,
            a /tmp of the size that Limits names; `counted_tmp`, one that holds
            so many files; `spared`, commands cannot change the limits and the
            scheduling of what runs them.
        deviations: Tests that fail, each with the reason.
        host_script_backend: The name in `isobox` of a workspace class that
            needs no arguments and whose processes the host can see; None skips.
        can_kill_sandbox: Whether `kill` is overridden.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset()
    deviations: ClassVar[Mapping[str, str]] = {}
    host_script_backend: ClassVar[str | None] = None
    can_kill_sandbox: ClassVar[bool] = False

    pytestmark: ClassVar[Any] = pytest.mark.anyio

    def make_workspace(
        self,
        **options: Any,  # noqa: ANN401 - each backend has its own options
    ) -> WorkspaceBase:
        """Return a workspace that is not open yet."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say how its workspace is made"
        )

    async def kill(self, workspace: WorkspaceBase) -> None:
        """Kill the sandbox from outside, as a crash would."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say how to kill {workspace.backend}"
        )

    async def command_lines(self, workspace: WorkspaceBase) -> str:
        """Return the arguments of everything that runs in the sandbox."""
        result = await workspace.run("cat /proc/[0-9]*/cmdline 2>/dev/null; true")
        return result.stdout.replace("\0", " ")

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def fresh_workspace(self) -> AsyncIterator[Factory]:
        async with AsyncExitStack() as opened:

            async def make(
                **options: Any,  # noqa: ANN401 - each backend has its own options
            ) -> WorkspaceBase:
                return await opened.enter_async_context(self.make_workspace(**options))

            yield make

    @pytest.fixture
    async def workspace(self) -> AsyncIterator[WorkspaceBase]:
        async with self.make_workspace() as opened:
            yield opened

    @pytest.fixture
    def kill_sandbox(self) -> Kill:
        if not self.can_kill_sandbox:
            pytest.skip("the backend's tests cannot kill its sandbox")
        return self.kill

    async def is_running(self, workspace: WorkspaceBase, text: str) -> bool:
        """Whether a process with `text` in its arguments runs inside."""
        return text in await self.command_lines(workspace)

    async def until_running(self, workspace: WorkspaceBase, text: str) -> None:
        """Wait until a process with `text` in its arguments runs inside."""
        with anyio.fail_after(SOON):
            while not await self.is_running(workspace, text):
                await anyio.sleep(0.01)


def unique_seconds() -> str:
    """Return a long time for `sleep` that no other process has been given."""
    return f"{secrets.randbelow(80_000) + 10_000}.{secrets.randbelow(10**12):012}"


async def names(workspace: WorkspaceBase, path: str = ".") -> list[str]:
    """Return the names in a directory."""
    return [entry.name for entry in (await workspace.scan(path)).entries]
