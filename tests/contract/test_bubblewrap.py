"""The contract over commands in namespaces of their own."""

import os
import signal

from isobox import BubblewrapWorkspace
from isobox.testing.contract import WorkspaceContract


class TestBubblewrap(WorkspaceContract):
    capabilities = frozenset(
        {
            "bounded_regex",
            "cancel",
            "isolated",
            "no_network",
            "sized_tmp",
            "dial",
            "kill_tree",
            "persistent",
            "posix_shell",
            "proc",
            "python3",
            "rlimits",
            "snapshot",
            "streamed_body",
            "tty",
        }
    )
    can_kill_sandbox = True
    host_script_backend = "BubblewrapWorkspace"

    def make_workspace(self, **options):
        return BubblewrapWorkspace(**options)

    async def kill(self, workspace):
        os.kill(workspace._sandbox._child.pid, signal.SIGKILL)
