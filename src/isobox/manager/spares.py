"""Workspaces that are made ahead, for whoever comes first."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

import anyio

from isobox.errors import IsoboxError, StoreError
from isobox.manager import keys
from isobox.manager.records import Record, State

if TYPE_CHECKING:
    from collections.abc import Generator

    from isobox._workspace.base import WorkspaceBase
    from isobox.manager.site import Site
    from isobox.manager.turns import Ticket

_log = logging.getLogger("isobox.manager")


class Spares:
    """Keeps so many workspaces open that are nobody's yet.

    Which one a claim gets, the store says: while one is being dropped none is
    offered, and while one is offered none is dropped.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open: dict[str, tuple[Record, WorkspaceBase]] = {}
        self._making = 0
        self._dropping = 0
        #: Those that are being closed, until they are.
        self._going: dict[str, anyio.Event] = {}
        self._offers = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def offered(self) -> Generator[bool]:
        """Say whether a claim may have a spare, and keep all until it is answered."""
        self._offers += 1
        try:
            yield bool(self._open) and not self._dropping
        finally:
            self._offers -= 1

    async def take(self, record: Record) -> WorkspaceBase | None:
        """Return the spare that a claim got, which is none any more."""
        if (going := self._going.get(record.workspace_id)) is not None:
            # What is being closed and removed of it is not the claim's.
            await going.wait()
        found = self._open.pop(record.workspace_id, None)
        return None if found is None else found[1]

    def open(self) -> None:
        """Make some from now on."""
        self._closed = False

    def replenish(self) -> None:
        """Begin to make as many as are missing."""
        if self._closed:
            return
        self._drop_the_lost()
        while len(self) + self._making < self._site.settings.prewarm:
            self._making += 1
            self._site.start(self._make_one)

    def drop(self) -> bool:
        """Begin to give one up, to make room; returns whether one goes."""
        if self._dropping:
            return True
        if not self._open or self._offers:
            return False
        self._begin_to_drop(next(reversed(self._open)))
        return True

    def _drop_the_lost(self) -> None:
        """Begin to give up those whose sandbox has died; nobody is to wait for them."""
        for workspace_id, (_, workspace) in list(self._open.items()):
            if workspace._is_lost() and not self._offers:
                self._begin_to_drop(workspace_id)

    def _begin_to_drop(self, workspace_id: str) -> None:
        record, workspace = self._open.pop(workspace_id)
        self._going[workspace_id] = anyio.Event()
        self._dropping += 1
        self._site.start(partial(self._drop, record, workspace))

    def lose(self, holder: str) -> None:
        """Begin to close those of a holder that has died, and nothing else."""
        for workspace_id, (record, workspace) in list(self._open.items()):
            if record.holders == (holder,):
                del self._open[workspace_id]
                self._site.start(partial(self._let_go, workspace))

    async def forget(self, workspace_id: str) -> None:
        """Close one that has become somebody's, if it is open here."""
        found = self._open.pop(workspace_id, None)
        if found is not None:
            await self._site.making.close(found[1])

    async def aclose(self) -> None:
        """Give all up, and make none any more."""
        self._closed = True
        while self._open:
            _, (record, workspace) = self._open.popitem()
            await self._remove(record, workspace)

    async def _let_go(self, workspace: WorkspaceBase) -> None:
        await self._site.making.close(workspace)

    async def _drop(self, record: Record, workspace: WorkspaceBase) -> None:
        try:
            await self._remove(record, workspace)
        finally:
            self._dropping -= 1
            self._site.turns.room()

    async def _remove(self, record: Record, workspace: WorkspaceBase | None) -> bool:
        """Close one and forget it; False if it stays, because it is somebody's."""
        going = self._going.setdefault(record.workspace_id, anyio.Event())
        try:
            await self._end(record, workspace)
            return await self._forgotten(record)
        except (StoreError, OSError) as error:
            # Left to itself, it is deleted as what dead holders leave.
            _log.warning("the spare %s stays: %s", record.workspace_id, error)
            return self._site.entries.named(record.workspace_id) is None
        finally:
            del self._going[record.workspace_id]
            going.set()

    async def _end(self, record: Record, workspace: WorkspaceBase | None) -> None:
        """End its sandbox, also one that it does not know to have."""
        if workspace is None:
            return
        unknown = workspace._sandbox is None
        failure = await self._site.making.close(workspace)
        if not unknown and failure is None:
            return
        try:
            await self._site.making.discard(record)
        except IsoboxError as error:
            _log.warning("the spare %s may still run: %s", record.workspace_id, error)

    async def _forgotten(self, record: Record) -> bool:
        store, holder = self._site.store, record.holders[0]
        found = await store.find(record.workspace_id, self._site.holder.now())
        if found is not None and found.tenant is not None:
            # A claim got it, whose answer was lost.
            return False
        now = self._site.holder.now()
        taken = await store.delete(record.workspace_id, holder, now, place=record.place)
        if isinstance(taken, Record):
            await self._site.places.remove(record)
            await store.deleted(record.workspace_id, holder)
        return True

    async def _make_one(self) -> None:
        turns = self._site.turns
        try:
            with turns.ticket(None) as ticket:
                async with turns.turn(ticket):
                    await self._make(ticket)
        except (IsoboxError, OSError) as error:
            _log.warning("no spare can be made, for now: %s", error)
        except Exception:  # noqa: BLE001 - requests do without
            _log.exception("making a spare failed")
        finally:
            self._making -= 1

    async def _make(self, ticket: Ticket) -> None:
        site = self._site
        await site.holder.ensure()
        if self._closed:
            return
        record, workspace = self._record(), None
        try:
            if not await self._begun(record):
                return
            site.turns.granted(ticket)
            workspace = self._workspace(record)
            # What an engine was told to make it makes, whoever waits for it.
            with anyio.CancelScope(shield=True):
                await workspace.initialize()
            await site.store.spare(record, site.holder.now())
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._undo(record, workspace)
            raise
        if record.holders != (site.holder.name,):
            await self._let_go(workspace)
            return
        self._open[record.workspace_id] = (record, workspace)

    async def _begun(self, record: Record) -> bool:
        """Count for the quota from now on; False if there is no room."""
        site = self._site
        return await site.store.begin(record, site.holder.now(), site.settings.max_live)

    def _workspace(self, record: Record) -> WorkspaceBase:
        site, (holder,) = self._site, record.holders
        place = site.places.make(record, holder)
        stays = partial(site.holder.stays, holder)
        return site.making.workspace(record, place, stays)

    async def _undo(self, record: Record, workspace: WorkspaceBase | None) -> None:
        """Remove what was begun, its row included, which there may be."""
        self._dropping += 1
        try:
            if await self._remove(record, workspace):
                await self._site.places.remove(record)
        finally:
            self._dropping -= 1
            self._site.turns.room()

    def _record(self) -> Record:
        site, workspace_id = self._site, keys.spare_id()
        now = site.holder.now()
        return Record(
            workspace_id=workspace_id,
            key=None,
            tenant=None,
            backend=site.making.backend,
            place=keys.place(workspace_id),
            state=State.SPARE,
            holders=(site.holder.name,),
            created_at=now,
            used_at=now,
            options=site.making.remembered(None),
        )
