"""isobox: the execution layer of an agent harness.

The model decides what to do; isobox decides what that can touch. See
`BubblewrapWorkspace` and `LocalWorkspace`, and `isobox.sync` for blocking code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobox._approval.memory import ApprovalsWarning
    from isobox._approval.pending import Pending
    from isobox._approval.question import Answer, Question
    from isobox._audit.asciicast import RecordedProcess, Recorder
    from isobox._audit.otel import OtelSink
    from isobox._audit.sinks import AuditSink, JsonlSink, MemorySink
    from isobox._core.budget import Budget, Spent
    from isobox._core.isolation import Barrier, Isolation
    from isobox._core.network import Denial
    from isobox._core.results import (
        Captured,
        Change,
        Changes,
        Edited,
        Entry,
        Exit,
        Listing,
        Match,
        Matches,
        Process,
        ProcessInfo,
        RunResult,
        SnapshotRef,
        Usage,
    )
    from isobox._core.spec import Availability, Limits, Mount
    from isobox._egress.secret import Secret, SigV4
    from isobox._egress.sources import SecretError
    from isobox._policy.network import Network, NetworkRule
    from isobox._policy.op_rule import Rule
    from isobox._policy.policy import Policy
    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.classes import (
        BubblewrapWorkspace,
        LocalWorkspace,
        SeatbeltWorkspace,
    )
    from isobox._workspace.docker import DockerWorkspace
    from isobox._workspace.gvisor import GVisorWorkspace
    from isobox._workspace.mcp.kept import McpWarning
    from isobox._workspace.mcp.server import McpServer, McpStatus
    from isobox._workspace.mcp.speech import Mcp
    from isobox._workspace.offload.offloads import Offloader
    from isobox._workspace.offload.retention import Retention
    from isobox._workspace.policy_files import load_policy
    from isobox._workspace.shell import Shell
    from isobox._workspace.skills.installed import Skill
    from isobox._workspace.skills.seeds import SkillsWarning
    from isobox._workspace.tools.result import DataBlock, TextBlock, ToolResult
    from isobox._workspace.tools.tool import Tool
    from isobox._workspace.verify import Verdict
    from isobox.errors import IsoboxError

_HOMES = {
    "ApprovalsWarning": "isobox._approval.memory",
    "SecretError": "isobox._egress.sources",
    "RecordedProcess": "isobox._audit.asciicast",
    "Recorder": "isobox._audit.asciicast",
    "Pending": "isobox._approval.pending",
    "Answer": "isobox._approval.question",
    "OtelSink": "isobox._audit.otel",
    "Verdict": "isobox._workspace.verify",
    "Offloader": "isobox._workspace.offload.offloads",
    "Retention": "isobox._workspace.offload.retention",
    "Skill": "isobox._workspace.skills.installed",
    "SkillsWarning": "isobox._workspace.skills.seeds",
    "Spent": "isobox._core.budget",
    "Budget": "isobox._core.budget",
    "load_policy": "isobox._workspace.policy_files",
    "Rule": "isobox._policy.op_rule",
    "SigV4": "isobox._egress.secret",
    "Secret": "isobox._egress.secret",
    "Question": "isobox._approval.question",
    "NetworkRule": "isobox._policy.network",
    "Network": "isobox._policy.network",
    "Denial": "isobox._core.network",
    "AuditSink": "isobox._audit.sinks",
    "Availability": "isobox._core.spec",
    "Barrier": "isobox._core.isolation",
    "BubblewrapWorkspace": "isobox._workspace.classes",
    "Captured": "isobox._core.results",
    "Change": "isobox._core.results",
    "Changes": "isobox._core.results",
    "DataBlock": "isobox._workspace.tools.result",
    "DockerWorkspace": "isobox._workspace.docker",
    "Edited": "isobox._core.results",
    "Entry": "isobox._core.results",
    "Exit": "isobox._core.results",
    "GVisorWorkspace": "isobox._workspace.gvisor",
    "IsoboxError": "isobox.errors",
    "Isolation": "isobox._core.isolation",
    "JsonlSink": "isobox._audit.sinks",
    "Limits": "isobox._core.spec",
    "Listing": "isobox._core.results",
    "LocalWorkspace": "isobox._workspace.classes",
    "Mcp": "isobox._workspace.mcp.speech",
    "McpServer": "isobox._workspace.mcp.server",
    "McpStatus": "isobox._workspace.mcp.server",
    "McpWarning": "isobox._workspace.mcp.kept",
    "Match": "isobox._core.results",
    "Matches": "isobox._core.results",
    "Mount": "isobox._core.spec",
    "MemorySink": "isobox._audit.sinks",
    "Policy": "isobox._policy.policy",
    "Process": "isobox._core.results",
    "ProcessInfo": "isobox._core.results",
    "RunResult": "isobox._core.results",
    "SeatbeltWorkspace": "isobox._workspace.classes",
    "Shell": "isobox._workspace.shell",
    "SnapshotRef": "isobox._core.results",
    "TextBlock": "isobox._workspace.tools.result",
    "Tool": "isobox._workspace.tools.tool",
    "ToolResult": "isobox._workspace.tools.result",
    "Usage": "isobox._core.results",
    "WorkspaceBase": "isobox._workspace.base",
}

__all__ = [
    "Answer",
    "ApprovalsWarning",
    "AuditSink",
    "Availability",
    "Barrier",
    "BubblewrapWorkspace",
    "Budget",
    "Captured",
    "Change",
    "Changes",
    "DataBlock",
    "Denial",
    "DockerWorkspace",
    "Edited",
    "Entry",
    "Exit",
    "GVisorWorkspace",
    "IsoboxError",
    "Isolation",
    "JsonlSink",
    "Limits",
    "Listing",
    "LocalWorkspace",
    "Match",
    "Matches",
    "Mcp",
    "McpServer",
    "McpStatus",
    "McpWarning",
    "MemorySink",
    "Mount",
    "Network",
    "NetworkRule",
    "Offloader",
    "OtelSink",
    "Pending",
    "Policy",
    "Process",
    "ProcessInfo",
    "Question",
    "RecordedProcess",
    "Recorder",
    "Retention",
    "Rule",
    "RunResult",
    "SeatbeltWorkspace",
    "Secret",
    "SecretError",
    "Shell",
    "SigV4",
    "Skill",
    "SkillsWarning",
    "SnapshotRef",
    "Spent",
    "TextBlock",
    "Tool",
    "ToolResult",
    "Usage",
    "Verdict",
    "WorkspaceBase",
    "load_policy",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'isobox' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
