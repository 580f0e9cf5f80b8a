"""The contract over a guest that is a daemon, through a relay."""

from tests.daemons import DaemonWorkspace, needs_root
from typing_extensions import override

from isobox.testing.contract import WorkspaceContract
from isobox.testing.processes import kill_tree


@needs_root
class TestDaemon(WorkspaceContract):
    sampled = 3
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
            "reattach",
            "rlimits",
            "snapshot",
            "streamed_body",
            "tty",
        }
    )
    can_kill_sandbox = True

    @override
    def make_workspace(self, **options):
        return DaemonWorkspace(**options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox.daemon.pid)
