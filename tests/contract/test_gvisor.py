"""The contract over commands on a kernel of their own in user space."""

from typing import ClassVar

import pytest
from typing_extensions import override

from isobox import GVisorWorkspace
from isobox.testing.contract import WorkspaceContract
from isobox.testing.contract.shared import SharedWorkspace
from isobox.testing.contract.tools import ToolsContract
from isobox.testing.processes import kill_tree

#: Of December 2022; newer ones know it.
_LS = "`ls` of coreutils 9 asks for AT_NO_AUTOMOUNT, which Debian 12's gVisor refuses"


class TestGVisor(SharedWorkspace, WorkspaceContract):
    sampled = 5
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
        }
    )
    can_kill_sandbox = True
    # One test makes hundreds of searches, each of hundreds of files by a gofer.
    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [
        pytest.mark.anyio,
        pytest.mark.timeout(300),
    ]
    deviations: ClassVar = {
        "test_a_process_without_its_first_thread_is_killed": (
            "it names a thread in /proc, where gVisor lets nobody write"
        ),
        "test_no_signal_is_blocked": "gVisor's /proc/self/status names no signals",
        "test_a_command_changes_its_own": "gVisor's scheduler has no SCHED_BATCH",
        "test_a_command_inherits_no_descriptor": _LS,
        "test_reset_empties_tmp_and_home": _LS,
    }

    @override
    def make_workspace(self, **options):
        return GVisorWorkspace(**options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox.child.pid)


class TestTools(SharedWorkspace, ToolsContract):
    sampled = 3
    capabilities = frozenset(
        {"posix_shell", "proc", "cancel", "kill_tree", "no_network", "isolated"}
    )

    @override
    def make_workspace(self, **options):
        return GVisorWorkspace(**options)
