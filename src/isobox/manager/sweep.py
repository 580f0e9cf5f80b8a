"""What is due: idle workspaces, and what dead processes have left."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from isobox.errors import IsoboxError, StoreError
from isobox.manager.events import Kind
from isobox.manager.records import State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from isobox.manager.closing import Closing
    from isobox.manager.debts import Debts
    from isobox.manager.rebuild import Rebuild
    from isobox.manager.records import Record
    from isobox.manager.site import Site
    from isobox.manager.spares import Spares

_log = logging.getLogger("isobox.manager")

#: Workspaces that are taken over at once.
_BATCH: Final = 50


class Sweep:
    """Closes and deletes what is due; the cost is by what is due."""

    def __init__(
        self,
        site: Site,
        closing: Closing,
        debts: Debts,
        spares: Spares,
        rebuild: Rebuild,
    ) -> None:
        self._site = site
        self._closing = closing
        self._debts = debts
        self._spares = spares
        self._rebuild = rebuild
        #: What this process was to delete, when it was last heard of.
        self._doubtful: dict[str, Record] = {}
        # Each its own: a tenant's tree that takes hours to remove keeps nothing open.
        self._close_lock, self._delete_lock = anyio.Lock(), anyio.Lock()

    async def run(self) -> None:
        """Do it once; what is idle here is being closed when this returns.

        Raises:
            StoreError: The store cannot be asked.
        """
        await self.close_due()
        await self.delete_due()

    async def close_due(self) -> None:
        """Close what is idle; what is so here is being closed when this returns.

        Raises:
            StoreError: The store cannot be asked.
        """
        async with self._close_lock:
            await self._site.holder.ensure()
            self._closing.reap()
            await self._debts.pay()
            await self._close_abandoned()
        self._spares.replenish()

    async def delete_due(self) -> None:
        """Delete what was closed for long enough, however long its files take.

        Raises:
            StoreError: The store cannot be asked.
        """
        async with self._delete_lock:
            await self._site.holder.ensure()
            await self._delete_forgotten()
            await self._rebuild.remove_orphans()
            await self._retry()
            await self._site.places.empty_trash()

    async def _close_abandoned(self) -> None:
        site, full = self._site, True
        while full:
            now = site.holder.now()
            found = await site.store.abandoned(
                site.holder.name,
                now,
                idle_since=now - site.settings.ttl,
                limit=_BATCH,
            )
            await self._all(found, self._close)
            full = len(found) >= _BATCH

    async def _delete_forgotten(self) -> None:
        site, full = self._site, True
        while full:
            now, retention = site.holder.now(), site.settings.retention
            found = await site.store.forgotten(
                site.holder.name,
                now,
                closed_since=None if retention is None else now - retention,
                limit=_BATCH,
            )
            await self._all(found, self.delete)
            full = len(found) >= _BATCH

    async def _all(
        self, records: Sequence[Record], act: Callable[[Record], Awaitable[object]]
    ) -> None:
        """Do something with each, also after a failure: all of them are ours now.

        Raises:
            StoreError: The store could not be asked for one.
        """
        failure: StoreError | None = None
        for record in records:
            try:
                await act(record)
            except StoreError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _close(self, record: Record) -> None:
        """Close what was taken over: its sandbox, if that is still there."""
        if record.state is State.DELETING:
            await self.delete(record)
            return
        site, holder = self._site, record.holders[0]
        try:
            await self._discard(record)
            site.places.complete(record, holder)
            await site.store.closed(record.workspace_id, holder, site.holder.now())
        except StoreError:
            self._debts.owe_of(record, holder)
            raise
        site.events.emit(
            Kind.REAPED, record.workspace_id, record.tenant, reason="abandoned"
        )
        site.turns.room()

    async def delete(self, record: Record) -> OSError | None:
        """Remove what was taken over, its files included, and forget it.

        Returns:
            Why its files could not be removed: it is tried again with each sweep.

        Raises:
            StoreError: The store cannot be asked; it is tried again as well.
        """
        # Not while it is done: what is in doubt is deleted by whoever sweeps.
        self._doubtful.pop(record.workspace_id, None)
        try:
            return await self._deleted(record)
        except BaseException:
            self.doubt(record)
            raise

    async def _deleted(self, record: Record) -> OSError | None:
        site = self._site
        await self._discard(record)
        try:
            left = await site.places.remove(record)
        except OSError as error:
            self.doubt(record)
            return self._failed(record, error)
        # What waits in the trash keeps nobody from having a new one.
        await site.store.deleted(record.workspace_id, record.holders[0])
        site.turns.room()
        if left is not None:
            return self._failed(record, left)
        site.events.emit(Kind.DELETED, record.workspace_id, record.tenant)
        return None

    def _failed(self, record: Record, error: OSError) -> OSError:
        _log.warning("%s cannot be deleted: %s", record.workspace_id, error)
        self._site.events.emit(
            Kind.FAILED, record.workspace_id, record.tenant, reason=f"deleting: {error}"
        )
        return error

    def doubt(self, record: Record) -> None:
        """Look with the next sweep whether this process is still to delete it."""
        self._doubtful[record.workspace_id] = record

    async def _retry(self) -> None:
        site = self._site
        for record in list(self._doubtful.values()):
            found = await site.store.find(record.workspace_id, site.holder.now())
            if self._doubtful.get(record.workspace_id) is not record:
                # It is being deleted, or was, since the store was asked.
                continue
            ours = found is not None and found.holders == (site.holder.name,)
            if found is None or not ours or found.state is not State.DELETING:
                self._doubtful.pop(record.workspace_id, None)
            else:
                await self.delete(found)

    async def _discard(self, record: Record) -> None:
        try:
            await self._site.making.discard(record)
        except StoreError:
            raise
        except IsoboxError as error:
            _log.warning("%s may still run: %s", record.workspace_id, error)
