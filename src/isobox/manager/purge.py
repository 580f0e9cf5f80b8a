"""How what a session or an agent has left is removed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from isobox._workspace.offload.names import folder_of
from isobox.errors import InvalidArgumentError, PathMissingError
from isobox.manager import keys
from isobox.manager.keys import PER_SESSION, PER_USER, Sharing
from isobox.manager.records import State, Tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isobox._workspace.base import WorkspaceBase
    from isobox.manager.deleting import Deleting
    from isobox.manager.reach import Reach
    from isobox.manager.records import Record
    from isobox.manager.site import Site


class Purge:
    """Removes workspaces that were one's own, and traces in those that are shared."""

    def __init__(self, site: Site, reach: Reach, deleting: Deleting) -> None:
        self._site = site
        self._reach = reach
        self._deleting = deleting

    async def session(self, sharing: Sharing, whose: Tenant) -> None:
        """Remove what a session has left."""
        agent, session = whose.agent or "", whose.session or ""
        tenant = keys.tenant(sharing, whose.user, agent, session)
        record = await self._of(sharing, tenant)
        if record is not None and sharing is PER_SESSION:
            await self._deleting.delete(record)
        elif record is not None:
            await self._traces(record, [whose])
        await self._elsewhere(whose)

    async def agent(self, sharing: Sharing, user: str, agent: str) -> None:
        """Remove what an agent has left for a user."""
        if sharing is PER_USER:
            record = await self._of(sharing, Tenant(user=user))
            if record is not None:
                await self._traces_of(record, Tenant(user=user, agent=agent))
        else:
            for record in [each async for each in self._all(user, agent)]:
                await self._deleting.delete(record)
        await self._elsewhere(Tenant(user=user, agent=agent))

    async def _of(self, sharing: Sharing, tenant: Tenant) -> Record | None:
        """Return a tenant's workspace, if there is one."""
        key = keys.key(sharing, self._site.making.backend, tenant)
        async for record in self._all(tenant.user, tenant.agent, tenant.session):
            if record.key == key:
                return record
        return None

    def _all(
        self, user: str, agent: str | None = None, session: str | None = None
    ) -> AsyncIterator[Record]:
        site = self._site
        return site.store.every(
            site.holder.now(), user=user, agent=agent, session=session
        )

    async def _elsewhere(self, whose: Tenant) -> None:
        """Remove what somebody left in the workspaces that he joined by their ids."""
        site = self._site
        for workspace_id in await site.store.joined_by(whose):
            record = await site.store.find(workspace_id, site.holder.now())
            if record is not None and self._is_there(record):
                await self._traces_of(record, whose)

    def _is_there(self, record: Record) -> bool:
        ours = record.backend == self._site.making.backend
        return ours and record.state is not State.DELETING

    async def _traces_of(self, record: Record, whose: Tenant) -> None:
        """Remove an agent's sessions, or one, from a workspace that others share."""
        members = await self._site.store.members(record.workspace_id)
        theirs = [
            one
            for one in members
            if (one.user, one.agent) == (whose.user, whose.agent)
            and whose.session in (None, one.session)
        ]
        await self._traces(record, theirs)

    async def _traces(self, record: Record, members: list[Tenant]) -> None:
        """Remove sessions' files and shells from a workspace that others share."""
        if not members or record.key is None or record.tenant is None:
            return
        entry, workspace = await self._reach.reach(
            record.key, record.tenant, record.workspace_id, None
        )
        entry.leases += 1
        try:
            for member in members:
                await self._trace(record, workspace, member)
                entry.members.discard((member.user, member.agent, member.session))
        finally:
            entry.leases -= 1
            self._site.entries.touch(entry)

    async def _trace(
        self, record: Record, workspace: WorkspaceBase, member: Tenant
    ) -> None:
        store = self._site.store
        await store.left(record.workspace_id, member)
        others = [*await store.members(record.workspace_id)]
        if record.tenant is not None and record.tenant != member:
            # Who has one of its session's own is no member of it.
            others.append(record.tenant)
        session = member.session
        if session is None or any(_share(record, member, one) for one in others):
            return
        await workspace._end_session(session)
        # An id that names no directory has left none.
        with contextlib.suppress(PathMissingError, InvalidArgumentError):
            await workspace.remove(folder_of(session), recursive=True)


def _share(record: Record, member: Tenant, other: Tenant) -> bool:
    """Whether another's session of the same name keeps the files of a member's.

    What is in a user's own workspace nobody else keeps there.
    """
    if member.session != other.session:
        return False
    own = record.tenant is not None and record.tenant.user == member.user
    return not own or other.user == member.user
