"""MCP servers as plain children of the host."""

from typing_extensions import override

from isobox import LocalWorkspace
from isobox.testing.contract.mcp import McpContract
from isobox.testing.processes import kill_tree


class TestLocal(McpContract):
    capabilities = frozenset(
        {"posix_shell", "python3", "proc", "cancel", "kill_tree", "dial"}
    )
    can_kill_sandbox = True

    @override
    def make_workspace(self, **options):
        return LocalWorkspace(**options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox._child.pid)
