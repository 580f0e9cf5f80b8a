"""The workspaces by name; each only chooses its provider and its directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Self

from typing_extensions import override

from isobox._workspace.base import WorkspaceBase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from isobox._audit.sinks import AuditSink
    from isobox._core.spec import Limits
    from isobox._policy.policy import Policy


class LocalWorkspace(WorkspaceBase):
    """Commands as plain children of the host: it isolates nothing.

    For trusted code and for machines that are a sandbox themselves. The host's
    environment is not passed on, and file operations stay below `workdir`.

    Args:
        workdir: Host directory that is the workspace's root; it must exist. A
            temporary one, removed at close, if None.
        workspace_id: See WorkspaceBase, as for the rest.
    """

    backend: ClassVar[str] = "local"

    def __init__(
        self,
        workdir: str | os.PathLike[str] | None = None,
        *,
        workspace_id: str | None = None,
        policy: Policy | None = None,
        audit: AuditSink | str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            workspace_id=workspace_id,
            policy=policy,
            audit=audit,
            env=env,
            limits=limits,
            labels=labels,
        )
        self._workdir = _host_path(workdir)

    @override
    def _twin(self) -> Self:
        return type(self)(
            policy=self._policy, env=self._env, limits=self._limits, labels=self._labels
        )


class BubblewrapWorkspace(WorkspaceBase):
    """Commands in namespaces of their own, without network, as no host user.

    They see the system's programs read-only, a private /tmp and home, and the
    workspace at /workspace.

    Args:
        host_workdir: Host directory that appears at /workspace; it must exist.
            Files made inside belong to its owner. A temporary one, removed at
            close, if None.
        workspace_id: See WorkspaceBase, as for the rest.
    """

    backend: ClassVar[str] = "bubblewrap"

    def __init__(
        self,
        host_workdir: str | os.PathLike[str] | None = None,
        *,
        workspace_id: str | None = None,
        policy: Policy | None = None,
        audit: AuditSink | str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            workspace_id=workspace_id,
            policy=policy,
            audit=audit,
            env=env,
            limits=limits,
            labels=labels,
        )
        self._workdir = _host_path(host_workdir)

    @override
    def _twin(self) -> Self:
        return type(self)(
            policy=self._policy, env=self._env, limits=self._limits, labels=self._labels
        )


def _host_path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.path.abspath(os.fspath(path))
