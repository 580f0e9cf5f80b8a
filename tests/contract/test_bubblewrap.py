"""The contract over commands in namespaces of their own."""

import os

from typing_extensions import override

from isobox import BubblewrapWorkspace
from isobox.testing.contract import WorkspaceContract
from isobox.testing.processes import kill_tree


class TestBubblewrap(WorkspaceContract):
    capabilities = frozenset(
        {
            "bounded_regex",
            "cancel",
            "capture",
            "isolated",
            "no_network",
            "sized_tmp",
            "spared",
            "dial",
            "kill_tree",
            "listen",
            "persistent",
            "posix_shell",
            "proc",
            "python3",
            "rlimits",
            "snapshot",
            "streamed_body",
            "tty",
        }
    ) | ({"counted_tmp"} if os.geteuid() == 0 else set())
    can_kill_sandbox = True
    host_script_backend = "BubblewrapWorkspace"

    @override
    def make_workspace(self, **options):
        return BubblewrapWorkspace(**options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox._child.pid)
