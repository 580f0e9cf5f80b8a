"""The contract that every backend keeps, as one class of tests.

A backend's test file subclasses `WorkspaceContract` and says how a workspace is
made, what it can do, and where it deviates:

    class TestMine(WorkspaceContract):
        capabilities = frozenset({"posix_shell", "proc", "kill_tree", "cancel"})

        def make_workspace(self, **options):
            return MyWorkspace(**options)

Load the plugin with `-p isobox.testing.plugin` unless isobox is installed.
"""

from isobox.testing.contract._base import Contract, Factory, Kill
from isobox.testing.contract.cancel import CancelContract
from isobox.testing.contract.commands import CommandsContract
from isobox.testing.contract.edit import EditContract
from isobox.testing.contract.errors import ErrorsContract
from isobox.testing.contract.files_read import FilesReadContract
from isobox.testing.contract.files_write import FilesWriteContract
from isobox.testing.contract.forward import ForwardContract
from isobox.testing.contract.glob import GlobContract
from isobox.testing.contract.grep import GrepContract
from isobox.testing.contract.isolation import IsolationContract
from isobox.testing.contract.lifecycle import LifecycleContract
from isobox.testing.contract.network import NetworkContract
from isobox.testing.contract.offload import OffloadContract
from isobox.testing.contract.output import OutputContract
from isobox.testing.contract.paths import PathsContract
from isobox.testing.contract.remove import RemoveContract
from isobox.testing.contract.scan import ScanContract
from isobox.testing.contract.shell import ShellContract
from isobox.testing.contract.skills import SkillsContract
from isobox.testing.contract.snapshot import SnapshotContract
from isobox.testing.contract.streams import StreamsContract
from isobox.testing.contract.timeouts import TimeoutsContract
from isobox.testing.contract.tools_ops import ToolsOpsContract
from isobox.testing.contract.transfer import TransferContract
from isobox.testing.contract.tty import TtyContract

__all__ = [
    "CancelContract",
    "CommandsContract",
    "Contract",
    "EditContract",
    "ErrorsContract",
    "Factory",
    "FilesReadContract",
    "FilesWriteContract",
    "ForwardContract",
    "GlobContract",
    "GrepContract",
    "IsolationContract",
    "Kill",
    "LifecycleContract",
    "NetworkContract",
    "OffloadContract",
    "OutputContract",
    "PathsContract",
    "RemoveContract",
    "ScanContract",
    "ShellContract",
    "SkillsContract",
    "SnapshotContract",
    "StreamsContract",
    "TimeoutsContract",
    "ToolsOpsContract",
    "TransferContract",
    "TtyContract",
    "WorkspaceContract",
]


class WorkspaceContract(
    LifecycleContract,
    CommandsContract,
    OutputContract,
    StreamsContract,
    TimeoutsContract,
    CancelContract,
    TtyContract,
    FilesReadContract,
    FilesWriteContract,
    EditContract,
    ScanContract,
    GlobContract,
    GrepContract,
    RemoveContract,
    ToolsOpsContract,
    PathsContract,
    TransferContract,
    ShellContract,
    ForwardContract,
    NetworkContract,
    SnapshotContract,
    SkillsContract,
    OffloadContract,
    IsolationContract,
    ErrorsContract,
):
    """Everything that a workspace promises."""
