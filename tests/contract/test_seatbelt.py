"""The contract over commands under macOS's sandbox; it needs a Mac."""

import sys

import pytest
from typing_extensions import override

from isobox import SeatbeltWorkspace
from isobox.testing.contract import WorkspaceContract
from isobox.testing.processes import kill_tree


@pytest.mark.skipif(sys.platform != "darwin", reason="Seatbelt is a part of macOS")
class TestSeatbelt(WorkspaceContract):
    capabilities = frozenset(
        {
            "bounded_regex",
            "cancel",
            "isolated",
            "no_network",
            "persistent",
            "posix_shell",
            "python3",
            "rlimits",
            "snapshot",
            "streamed_body",
            "tty",
        }
    )
    can_kill_sandbox = True
    host_script_backend = "SeatbeltWorkspace"

    @override
    def make_workspace(self, **options):
        return SeatbeltWorkspace(**options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox._child.pid)
