"""The contract where a shell inside does everything."""

from __future__ import annotations

from typing import ClassVar

from tests.shelled import ShelledWorkspace, crash
from typing_extensions import override

from isobox.testing.contract import WorkspaceContract

CAPABILITIES = frozenset(
    {
        "bounded_regex",
        "cancel",
        "dial",
        "isolated",
        "kill_tree",
        "no_network",
        "posix_shell",
        "proc",
        "rlimits",
        "sized_tmp",
        "snapshot",
        "streamed_body",
        "tty",
    }
)


class ShellFallbackContract(WorkspaceContract):
    capabilities = CAPABILITIES
    can_kill_sandbox = True
    image: ClassVar[str]

    @override
    def make_workspace(self, **options):
        return ShelledWorkspace(image=self.image, **options)

    @override
    async def kill(self, workspace):
        await crash(workspace)


class TestBusybox(ShellFallbackContract):
    image = "busybox"


class TestCoreutils(ShellFallbackContract):
    image = "coreutils"
