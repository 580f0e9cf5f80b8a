"""The tools over commands in namespaces of their own."""

from typing_extensions import override

from isobox import BubblewrapWorkspace
from isobox.testing.contract.tools import ToolsContract


class TestBubblewrap(ToolsContract):
    capabilities = frozenset(
        {"posix_shell", "proc", "cancel", "kill_tree", "no_network", "isolated"}
    )

    @override
    def make_workspace(self, **options):
        return BubblewrapWorkspace(**options)
