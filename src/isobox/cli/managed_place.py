"""Where a manager's workspaces and its store are, as a command line says."""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import isobox
from isobox.errors import InvalidArgumentError, PathMissingError
from isobox.manager import deployment
from isobox.manager.places import Places

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from isobox._workspace.base import WorkspaceBase
    from isobox.manager import WorkspaceManager
    from isobox.manager.records import Record, Tenant
    from isobox.manager.store import Store

_FILE: Final = "manager.db"
#: Seconds that nobody lives to see.
NEVER: Final = 3_000_000_000.0
_KINDS: Final = {
    "local": "LocalWorkspace",
    "bubblewrap": "BubblewrapWorkspace",
    "docker": "DockerWorkspace",
    "gvisor": "GVisorWorkspace",
    "seatbelt": "SeatbeltWorkspace",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A manager's base directory, and its store if it is elsewhere."""

    basedir: str
    store: str | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Store]:
        """Open the store.

        Raises:
            InvalidArgumentError: There is none.
            StoreError: It cannot be asked.
        """
        from isobox.manager.sql import SqlStore  # noqa: PLC0415 - SQLAlchemy is large

        self.check()
        async with SqlStore(self.url) as store:
            yield store

    @property
    def url(self) -> str:
        """The store: what was named, or the file below the base directory."""
        return self.store or os.path.join(self.basedir, _FILE)

    def check(self) -> None:
        """Raise unless there is a store.

        Raises:
            InvalidArgumentError: There is no such file.
        """
        from isobox.manager.sql.address import address  # noqa: PLC0415

        path = address(self.url).path
        # A file that is not there would be made, and be a store of nothing.
        if path is not None and not os.path.isfile(path):
            raise InvalidArgumentError(
                f"there is no manager's store at {path}; name the manager's base "
                "directory by --basedir or ISOBOX_BASEDIR, or its store by --store or "
                "ISOBOX_STORE"
            )

    async def now(self, store: Store) -> float:
        """Return the time by the store's clock."""
        told = await store.time()
        return time.time() if told is None else told

    async def record(self, store: Store, workspace_id: str) -> Record:
        """Return a workspace's record.

        Raises:
            InvalidArgumentError: There is none of this id.
        """
        found = await store.find(workspace_id, await self.now(store))
        if found is None:
            raise InvalidArgumentError(
                f"no workspace is called {workspace_id:.100}; `isobox ls` shows their "
                "ids"
            )
        return found

    async def agrees(self, store: Store) -> None:
        """Raise unless the store's workspaces have their files here.

        Raises:
            PathError: They have not; the message says where.
            StoreError: The store cannot be asked.
        """
        await deployment.checked(store, Places(self.basedir), await self.now(store))

    def log(self, record: Record) -> str:
        """Return the path of a workspace's audit log.

        Raises:
            StoreError: Its row names no directory of a manager's.
            PathMissingError: There is none.
        """
        path = Places(self.basedir).of(record).audit
        if not os.path.isfile(path):
            raise PathMissingError(
                f"{record.workspace_id} has no audit log at {path}: its manager keeps "
                "none (audit=False), or has another base directory; see --basedir",
                path=path,
            )
        return path

    @asynccontextmanager
    async def manager(
        self, record: Record, options: Mapping[str, object], *, wait: float
    ) -> AsyncGenerator[WorkspaceManager]:
        """Be one more process of the store, for one workspace; it sweeps nothing.

        Raises:
            InvalidArgumentError: Its class is not known here.
            StoreError: The store cannot be asked.
        """
        from isobox.manager import WorkspaceManager  # noqa: PLC0415 - as it is large

        async with WorkspaceManager(
            kind_of(record.backend),
            basedir=self.basedir,
            store=self.url,
            # Looked at only if it is opened: what is deleted may be lacking some.
            options=lambda _: {**record.options, **options},
            ttl=NEVER,
            sweep_interval=NEVER,
            queue_timeout=wait,
            # As the service has it.
            audit=os.path.isfile(Places(self.basedir).of(record).audit),
        ) as manager:
            yield manager


def kind_of(backend: str) -> type[WorkspaceBase]:
    """Return the class of a backend's workspaces.

    Raises:
        InvalidArgumentError: It is none of isobox's own.
    """
    name = _KINDS.get(backend)
    if name is None:
        raise InvalidArgumentError(
            f"no class of workspaces is known here for backend {backend!a:.100}"
        )
    kind: type[WorkspaceBase] = getattr(isobox, name)
    return kind


def tenant_of(record: Record) -> Tenant:
    """Return whose a workspace is.

    Raises:
        InvalidArgumentError: Nobody's: it is a spare.
    """
    if record.tenant is None:
        raise InvalidArgumentError(
            f"{record.workspace_id} is a spare and nobody's yet: its process deletes "
            "it at its end, and `isobox gc` if that has died"
        )
    return record.tenant
