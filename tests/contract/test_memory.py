"""The contract over the fake in memory."""

from isobox.testing.contract import WorkspaceContract
from isobox.testing.fake import MemorySandbox, MemoryWorkspace

CAPABILITIES = frozenset(
    {"snapshot", "kill_tree", "cancel", "streamed_body", "confined"}
)


class MemoryContract(WorkspaceContract):
    """How the contract is kept in memory."""

    capabilities = CAPABILITIES
    can_kill_sandbox = True
    workspace_class = MemoryWorkspace

    def make_workspace(self, **options):
        return self.workspace_class(**options)

    async def command_lines(self, workspace):
        return (await workspace.run(["ps"])).stdout

    async def kill(self, workspace):
        assert isinstance(workspace._sandbox, MemorySandbox)
        workspace._sandbox.crash()


class TestMemory(MemoryContract):
    pass
