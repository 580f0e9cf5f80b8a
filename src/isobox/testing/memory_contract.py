"""The contract as the backend in memory keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from isobox.testing.contract import WorkspaceContract
from isobox.testing.fake import MemorySandbox, MemoryWorkspace

if TYPE_CHECKING:
    from isobox import WorkspaceBase


class MemoryContract(WorkspaceContract):
    """How the contract is tested in memory.

    Attributes:
        workspace_class: The class of workspaces to test.
    """

    capabilities = frozenset(
        {"snapshot", "kill_tree", "cancel", "streamed_body", "confined"}
    )
    can_kill_sandbox = True
    workspace_class: ClassVar[type[MemoryWorkspace]] = MemoryWorkspace

    @override
    def make_workspace(
        self,
        **options: Any,
    ) -> WorkspaceBase:
        return self.workspace_class(**options)

    @override
    async def command_lines(self, workspace: WorkspaceBase) -> str:
        return (await workspace.run(["ps"])).stdout

    @override
    async def kill(self, workspace: WorkspaceBase) -> None:
        sandbox = workspace._sandbox
        if isinstance(sandbox, MemorySandbox):
            sandbox.crash()
