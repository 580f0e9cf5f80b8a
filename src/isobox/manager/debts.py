"""What the store could not be told, to be told later."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isobox.errors import StoreError
from isobox.manager.entry import Entry, Phase

if TYPE_CHECKING:
    from isobox.manager.records import Held, Record, Tenant
    from isobox.manager.site import Site
    from isobox.manager.spares import Spares

_log = logging.getLogger("isobox.manager")


class Debts:
    """Workspaces that are not open here, and that the store counts as ours.

    Nobody else can have them until the store knows: it is told by and by.
    """

    def __init__(self, site: Site, spares: Spares) -> None:
        self._site = site
        self._spares = spares
        self._owed: dict[str, _Debt] = {}

    def owe(self, entry: Entry, workspace_id: str | None = None) -> None:
        """Tell the store later that an entry's workspace is closed.

        Args:
            entry: What was closed, or may have been claimed.
            workspace_id: Its name, if the store has said that it is claimed.
        """
        self._owed[entry.key] = _Debt(entry.tenant, workspace_id, entry.holder)

    def forget(self, key: str) -> None:
        """Tell nothing: the workspace is being opened again."""
        self._owed.pop(key, None)

    def owe_of(self, record: Record, holder: str) -> None:
        """Tell the store later that a workspace which was taken over is closed."""
        if record.key is not None and record.tenant is not None:
            self._owed[record.key] = _Debt(record.tenant, record.workspace_id, holder)

    async def settle(self, entry: Entry, held: Held) -> None:
        """Tell the store now, if it is us whom an entry that is opened waits for.

        Raises:
            StoreError: It cannot be told.
        """
        debt = self._owed.get(entry.key)
        if debt is not None and held.holder == debt.holder:
            await self._pay(entry.key, debt)
            self.forget(entry.key)

    async def pay(self) -> None:
        """Tell the store; who asks for such a workspace meanwhile waits."""
        for key, debt in list(self._owed.items()):
            if self._site.entries.get(key) is None:
                await self._alone(key, debt)

    async def _alone(self, key: str, debt: _Debt) -> None:
        entries, now = self._site.entries, self._site.clock.monotonic()
        entry = Entry(key, debt.tenant, debt.workspace_id or "", now)
        entry.begin(Phase.CLOSING)
        entries.add(entry)
        try:
            await self._pay(key, debt)
            self.forget(key)
        except StoreError as error:
            _log.warning("the store still does not know of %s: %s", key, error)
        finally:
            entries.remove(entry)
            entry.settle(Phase.GONE)

    async def _pay(self, key: str, debt: _Debt) -> None:
        site = self._site
        for workspace_id in await self._claimed(key, debt):
            # It may have been a spare, whose sandbox is open here.
            await self._spares.forget(workspace_id)
            await site.store.closed(workspace_id, debt.holder, site.holder.now())

    async def _claimed(self, key: str, debt: _Debt) -> list[str]:
        if debt.workspace_id is not None:
            return [debt.workspace_id]
        found = self._site.store.every(
            self._site.holder.now(),
            user=debt.tenant.user,
            agent=debt.tenant.agent,
            session=debt.tenant.session,
        )
        mine = [one async for one in found if one.key == key]
        for record in mine:
            self._site.places.complete(record, debt.holder)
        return [one.workspace_id for one in mine]


@dataclass(frozen=True, slots=True)
class _Debt:
    tenant: Tenant
    workspace_id: str | None
    holder: str
