"""How a request gets its workspace: at once if it is open, else once it is."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from isobox.errors import (
    QueueTimedOutError,
    SandboxLostError,
    StoreError,
    WorkspaceClosedError,
    WorkspaceHeldError,
)
from isobox.manager.entry import WAITING, Entry, Phase
from isobox.manager.events import Kind

if TYPE_CHECKING:
    from isobox._workspace.base import WorkspaceBase
    from isobox.manager.entry import Member
    from isobox.manager.opening import Opening
    from isobox.manager.records import Tenant
    from isobox.manager.site import Site

_log = logging.getLogger("isobox.manager")

#: Seconds after which a sandbox that was not heard of is asked whether it lives,
#: and within which it answers; one in use has longer, as the channel gives it.
_QUIET, _PATIENCE, _PATIENCE_IN_USE = 1.0, 10.0, 30.0
#: Seconds between two looks at a build after its time is over: it is finished if
#: it has begun.
_LOOK: Final = 0.25
#: How often one request has a sandbox made again that died.
_DEATHS: Final = 3


class Reach:
    """Gives requests their workspaces."""

    def __init__(self, site: Site, opening: Opening) -> None:
        self._site = site
        self._opening = opening

    async def reach(
        self, key: str, tenant: Tenant, workspace_id: str, member: Tenant | None
    ) -> tuple[Entry, WorkspaceBase]:
        """Return the open workspace of a key; nothing waits after that.

        Args:
            key: Which tenant's.
            tenant: Whose.
            workspace_id: Its name, if it is to be made.
            member: The agent and session that use it, to be remembered.

        Raises:
            IsoboxError: It cannot be made; the message says why.
            QueueTimedOutError: No place became free in time.
            QuotaError: Too many wait.
            WorkspaceHeldError: Another process has it and keeps it.
        """
        site = self._site
        deadline = site.clock.monotonic() + site.settings.queue_timeout
        deaths = 0
        while not site.ending:
            if not site.holder.lives:
                await site.holder.ensure()
            entry = site.entries.get(key)
            if entry is None:
                entry = await self._begun(key, tenant, workspace_id, deadline)
            if entry is None:
                continue
            if entry.phase is not Phase.OPEN:
                await self._settled(entry, deadline)
            elif (found := await self._found(entry, member)) is not None:
                return entry, found
            elif entry.recovering:
                deaths += 1
                self._in_lives(entry, deaths)
        raise WorkspaceClosedError("the manager closes; it makes no workspaces")

    def _in_lives(self, entry: Entry, deaths: int) -> None:
        """Go on, unless its sandbox has died too often.

        Raises:
            SandboxLostError: It has.
        """
        if deaths > _DEATHS:
            raise SandboxLostError(
                f"the sandbox of {entry.workspace_id} ends as soon as it is made: look "
                "at its limits and its audit log, and ask again",
                backend=self._site.making.backend,
            )

    async def _begun(
        self, key: str, tenant: Tenant, workspace_id: str, deadline: float
    ) -> Entry | None:
        """Begin to open one, unless somebody deletes it: then wait for that."""
        self._in_time(None, deadline)
        over = self._site.entries.reservation(key)
        if over is None:
            return self._opening.begin(key, tenant, workspace_id)
        await self._site.clock.wait(over, deadline - self._site.clock.monotonic())
        return None

    async def _found(self, entry: Entry, member: Tenant | None) -> WorkspaceBase | None:
        """Return an entry's workspace, if it is still open and lives."""
        workspace = entry.workspace
        assert workspace is not None  # noqa: S101 - it is open
        if workspace._is_lost():
            self._opening.recover(entry)
            return None
        site = self._site
        quiet = site.clock.monotonic() - entry.heard > _QUIET
        if quiet and not await self._answers(entry, workspace):
            return None
        if member is not None:
            self.join(entry, member)
        site.entries.touch(entry)
        return workspace

    async def _answers(self, entry: Entry, workspace: WorkspaceBase) -> bool:
        patience = _PATIENCE_IN_USE if entry.busy else _PATIENCE
        entry.leases += 1
        try:
            answered = await workspace._answers(patience)
        finally:
            entry.leases -= 1
        if entry.phase is not Phase.OPEN:
            return False
        if answered:
            entry.heard = self._site.clock.monotonic()
        else:
            self._opening.recover(entry)
        return answered

    def join(self, entry: Entry, member: Tenant) -> None:
        """Let the store remember who uses it; nobody waits for that."""
        who = (member.user, member.agent, member.session)
        if who not in entry.members:
            entry.remember(who)
            self._site.start(partial(self._joined, entry, member, who))

    async def _joined(self, entry: Entry, member: Tenant, who: Member) -> None:
        site = self._site
        try:
            await site.store.joined(entry.workspace_id, member, site.holder.now())
        except StoreError as error:
            entry.members.discard(who)
            _log.warning("who uses %s is not known: %s", entry.workspace_id, error)

    async def _settled(self, entry: Entry, deadline: float) -> None:
        """Wait until an entry is open or gone.

        Raises:
            QueueTimedOutError: It waited for too long.
            WorkspaceHeldError: It waited for another process for too long.
        """
        entry.waiting += 1
        try:
            while not entry.settled.done():
                left = deadline - self._site.clock.monotonic()
                if left <= 0:
                    self._in_time(entry, deadline)
                await self._site.clock.wait(entry.settled, left if left > 0 else _LOOK)
        finally:
            entry.waiting -= 1
            if not entry.waiting:
                self._opening.withdraw(entry)
        if entry.phase is Phase.GONE and entry.error is not None:
            raise entry.error.with_traceback(None)

    def _in_time(self, entry: Entry | None, deadline: float) -> None:
        """Go on, unless time is over and nothing is being made.

        Raises:
            QueueTimedOutError: It is over.
            WorkspaceHeldError: It is, and another process has the workspace.
        """
        if self._site.clock.monotonic() < deadline:
            return
        if entry is not None and entry.phase not in WAITING:
            return
        error = self._late(entry)
        self._site.events.emit(
            Kind.DENIED,
            None if entry is None else entry.workspace_id,
            None if entry is None else entry.tenant,
            reason=error.message,
        )
        raise error

    def _late(self, entry: Entry | None) -> QueueTimedOutError | WorkspaceHeldError:
        seconds = self._site.settings.queue_timeout
        if entry is not None and entry.phase is Phase.HELD:
            return WorkspaceHeldError(
                f"workspace {entry.workspace_id} is open in "
                f"{entry.held_by or 'another process'}, which did not hand it over "
                f"within {seconds:g} s: ask there, or again later",
                holder=entry.held_by,
            )
        return QueueTimedOutError(
            f"no place for the workspace became free within {seconds:g} s: close some, "
            "raise max_live, max_live_per_user or max_creating, or wait longer "
            "(queue_timeout)"
        )
