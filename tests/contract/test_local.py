"""The contract over commands as plain children of the host."""

import os
import signal

from isobox import LocalWorkspace
from isobox.testing.contract import WorkspaceContract


class TestLocal(WorkspaceContract):
    capabilities = frozenset(
        {
            "bounded_regex",
            "cancel",
            "confined",
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
    host_script_backend = "LocalWorkspace"

    def make_workspace(self, **options):
        return LocalWorkspace(**options)

    async def kill(self, workspace):
        os.kill(workspace._sandbox._child.pid, signal.SIGKILL)
