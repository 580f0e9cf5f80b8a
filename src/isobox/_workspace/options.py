"""Options that every workspace has."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from isobox._approval.question import Approve
    from isobox._audit.sinks import AuditSink
    from isobox._core.budget import Budget
    from isobox._core.spec import Limits
    from isobox._egress.secret import Secret
    from isobox._policy.policy import Policy
    from isobox._workspace.arguments import NetworkOption
    from isobox._workspace.mcp.mcps import Answering
    from isobox._workspace.mcp.server import McpServer
    from isobox._workspace.offload.retention import Retention
    from isobox._workspace.skills.package import Source


class Options(TypedDict, total=False):
    """Keywords of every workspace's constructor; `WorkspaceBase` describes them."""

    workspace_id: str | None
    policy: Policy | None
    audit: AuditSink | str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    limits: Limits | None
    labels: Mapping[str, str] | None
    network: NetworkOption
    secrets: Iterable[Secret]
    approve: Approve | None
    budget: Budget | None
    mcps: Mapping[str, object] | Iterable[McpServer]
    max_mcps: int
    elicit: Answering | None
    sample: Answering | None
    skills: Iterable[Source]
    retention: Retention | None
