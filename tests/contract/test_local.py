"""The contract over commands as plain children of the host."""

from typing_extensions import override

from isobox import LocalWorkspace
from isobox.testing.contract import WorkspaceContract
from isobox.testing.processes import kill_tree


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

    @override
    def make_workspace(self, **options):
        return LocalWorkspace(**options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox._child.pid)
