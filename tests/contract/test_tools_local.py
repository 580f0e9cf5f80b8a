"""The tools over plain children of the host."""

from typing_extensions import override

from isobox import LocalWorkspace
from isobox.testing.contract.tools import ToolsContract


class TestLocal(ToolsContract):
    capabilities = frozenset({"posix_shell", "proc", "cancel", "kill_tree", "confined"})

    @override
    def make_workspace(self, **options):
        return LocalWorkspace(**options)
