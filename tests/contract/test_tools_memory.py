"""The tools over the fake in memory, as far as it goes."""

from typing_extensions import override

from isobox.testing.contract.tools import ToolsContract
from isobox.testing.fake import MemoryWorkspace


class TestMemory(ToolsContract):
    capabilities = frozenset({"snapshot", "kill_tree", "cancel", "confined"})

    @override
    def make_workspace(self, **options):
        return MemoryWorkspace(**options)
