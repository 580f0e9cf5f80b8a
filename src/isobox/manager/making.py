"""How a manager's workspaces are made, left and found by their class."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from isobox.errors import InvalidArgumentError, IsoboxError
from isobox.manager import containers, deployment, keys
from isobox.manager.keywords import Keywords, kind_of
from isobox.manager.places import owner_text
from isobox.manager.settings import called

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from isobox._workspace.base import WorkspaceBase
    from isobox.manager.clock import Clock
    from isobox.manager.places import Place
    from isobox.manager.records import Record, Tenant

_log = logging.getLogger("isobox.manager")

#: What a manager's workspaces are made with besides its own: keywords of the
#: class, or what returns them for a tenant.
Options = Mapping[str, Any] | Callable[["Tenant"], Mapping[str, Any]]

#: The label that says whose a sandbox is, for who finds it on its engine.
OWNER: Final = "isobox-owner"
_DIRECTORIES: Final = ("host_workdir", "workdir")
#: What opens a workspace elsewhere, and is no secret.
_REMEMBERED: Final = frozenset(
    ("image", "runtime", "python", "user", "engine", "rootfs", "platform", "mode")
)


class Making:
    """Makes workspaces of one class, each in its place.

    Args:
        kind: The class.
        options: Its keywords, or what returns them for a tenant.
        clock: What tells the workspaces' use its time.
        audit: Whether each has an audit log in its place.
        prewarm: Whether some are made ahead of their tenant.

    Raises:
        InvalidArgumentError: It is no class of workspaces, or an option is the
            manager's.
    """

    def __init__(
        self,
        kind: type[WorkspaceBase],
        options: Options,
        clock: Clock,
        *,
        audit: bool,
        prewarm: bool,
    ) -> None:
        if prewarm:
            _require_mapping(options)
        if callable(options):
            called("options", options, waits=False)
        self.kind = kind_of(kind)
        self._keywords = Keywords(kind)
        self.options = options
        self.backend = kind.backend
        #: Of which store and directory they are; known once those are open.
        self.deployment = ""
        self.shared = kind._shared
        self._clock = clock
        self._audit = audit
        self._directory = next(
            (one for one in _DIRECTORIES if one in self._keywords.known), None
        )
        if not callable(options):
            self._checked(options)

    def remembered(self, tenant: Tenant | None) -> dict[str, object]:
        """Return the options that are kept in the store."""
        return {
            name: value if isinstance(value, int | float) else str(value)
            for name, value in self._options(tenant).items()
            if name in _REMEMBERED and value is not None
        }

    def workspace(
        self, record: Record, place: Place, stays: Callable[[], Awaitable[None] | None]
    ) -> WorkspaceBase:
        """Return a workspace of a record, not open yet.

        Args:
            record: Which.
            place: Where its files are.
            stays: Asked before each of its operations whether it is ours still.

        Raises:
            InvalidArgumentError: The options cannot be honoured.
        """
        options = dict(self._options(record.tenant))
        labels = _labels(options.pop("labels", {}))
        labels[OWNER] = owner_text(self._named(record), "-")
        labels[deployment.LABEL] = self.deployment
        if self._directory is not None:
            options[self._directory] = place.files
        if self._audit:
            options["audit"] = place.audit
        try:
            made = self.kind(workspace_id=record.workspace_id, labels=labels, **options)
        except TypeError as error:
            raise InvalidArgumentError(f"options: {error}") from error
        made._activity.go_by(self._clock.monotonic)
        made._activity.ask(stays)
        return made

    def _options(self, tenant: Tenant | None) -> Mapping[str, Any]:
        if not callable(self.options):
            return self.options
        # One that was a spare before its tenant came was made of a mapping.
        return {} if tenant is None else self._checked(self.options(tenant))

    def _checked(self, given: object) -> Mapping[str, Any]:
        options = _keywords(given)
        own = ["workspace_id", *(["audit"] if self._audit else [])]
        own += [] if self._directory is None else [self._directory]
        if taken := sorted(set(own) & options.keys()):
            raise InvalidArgumentError(
                f"options: {', '.join(taken)}: the manager sets it for each "
                "workspace; leave it out"
                + ("" if taken != ["audit"] else ", or give audit=False")
            )
        self._keywords.check({*options, "labels"}, own)
        return options

    def _named(self, record: Record) -> Record:
        """Return what a sandbox is labelled with; a spare is nobody's then."""
        key, tenant = record.key, record.tenant
        # Its name does not tell: a user may be called "spare". The second is of who
        # knew no deployments.
        for name in (self.deployment, ""):
            if (
                key
                and tenant
                and record.workspace_id == keys.workspace_id(key, tenant, name)
            ):
                return record
        return replace(record, key=None, tenant=None)

    async def discard(self, record: Record) -> None:
        """End a sandbox that has outlived its process, of whatever backend.

        Raises:
            IsoboxError: It may still run.
        """
        if record.backend == "docker":
            await containers.remove(record, OWNER, self.deployment)

    async def on_engine(self) -> list[tuple[Record, str]]:
        """Return the workspaces that the engine knows, if there is one.

        Each with the deployment that it says it is of; others' are not among them.

        Raises:
            IsoboxError: It does not say.
        """
        if self.backend != "docker" or callable(self.options):
            return []
        found = await containers.owned(self.options.get("engine"), OWNER)
        return [each for each in found if each[1] in ("", self.deployment)]

    async def close(self, workspace: WorkspaceBase) -> Exception | None:
        """Close a workspace for good, its files kept; returns what went wrong."""
        workspace._retired = True
        return await _quietly(workspace, workspace.close)

    async def let_go(self, workspace: WorkspaceBase) -> Exception | None:
        """Close a workspace here for good, and leave it to others if there can be."""
        workspace._retired = True
        return await self._left(workspace)

    async def _left(self, workspace: WorkspaceBase) -> Exception | None:
        detach = getattr(workspace, "detach", None)
        if detach is None or not self.shared or workspace._sandbox is None:
            return await _quietly(workspace, workspace.close)
        return await _quietly(workspace, detach)

    async def recover(self, workspace: WorkspaceBase) -> None:
        """Give a workspace another sandbox, with the same files.

        Raises:
            IsoboxError: It cannot be made.
        """
        await self._left(workspace)
        await workspace.initialize()


def _keywords(given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"options: {given!r:.200} is no mapping of keywords")
    options = cast("Mapping[object, Any]", given)
    if strange := [name for name in options if not isinstance(name, str)]:
        raise InvalidArgumentError(f"options: {strange[0]!r:.200} is no keyword")
    return cast("Mapping[str, Any]", options)


def _labels(given: object) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"labels={given!r:.200} is no mapping")
    return dict(cast("Mapping[str, str]", given))


def _require_mapping(options: Options) -> None:
    if callable(options):
        raise InvalidArgumentError(
            "no workspace can be made ahead of its tenant if `options` depend on it: "
            "give a mapping, or prewarm=0"
        )


async def _quietly(
    workspace: WorkspaceBase, close: Callable[[], Any]
) -> Exception | None:
    try:
        with anyio.CancelScope(shield=True):
            await close()
    except (IsoboxError, OSError) as error:
        # Its files may have been another's to delete since.
        _log.warning("closing %s: %s", workspace.workspace_id, error)
        return error
    except Exception as error:  # noqa: BLE001 - it is closed as far as can be
        _log.exception("closing %s failed", workspace.workspace_id)
        return error
    return None
