"""MCP servers in bubblewrap."""

from typing_extensions import override

from isobox import BubblewrapWorkspace
from isobox.testing.contract.mcp import McpContract
from isobox.testing.processes import kill_tree


class TestBubblewrap(McpContract):
    capabilities = frozenset(
        {"posix_shell", "python3", "proc", "cancel", "kill_tree", "dial", "isolated"}
    )
    can_kill_sandbox = True

    @override
    def make_workspace(self, **options):
        return BubblewrapWorkspace(**options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox._child.pid)
