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

_log = logging.getLogger("isobox.manager")

#: The states that count for the quota of all.
_COUNTED = (State.SPARE, State.MAKING, State.LIVE, State.CLOSING)


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

    def take(self, record: Record) -> WorkspaceBase | None:
        """Return the spare that a claim got, which is none any more."""
        found = self._open.pop(record.workspace_id, None)
        return None if found is None else found[1]

    def replenish(self) -> None:
        """Begin to make as many as are missing."""
        if self._closed:
            return
        while len(self) + self._making < self._site.settings.prewarm:
            self._making += 1
            self._site.start(self._make_one)

    def drop(self) -> bool:
        """Begin to give one up, to make room; returns whether one goes."""
        if self._dropping:
            return True
        if not self._open or self._offers:
            return False
        _, (record, workspace) = self._open.popitem()
        self._dropping += 1
        self._site.start(partial(self._drop, record, workspace))
        return True

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

    async def _remove(self, record: Record, workspace: WorkspaceBase) -> None:
        site, holder = self._site, record.holders[0]
        try:
            await site.making.close(workspace)
            # Left to itself, it is deleted as what dead holders leave.
            taken = await site.store.delete(
                record.workspace_id, holder, site.holder.now()
            )
            if isinstance(taken, Record):
                await site.places.remove(record)
                await site.store.deleted(record.workspace_id, holder)
        except (StoreError, OSError) as error:
            _log.warning("the spare %s stays: %s", record.workspace_id, error)

    async def _make_one(self) -> None:
        turns = self._site.turns
        try:
            with turns.ticket(None) as ticket:
                async with turns.turn(ticket):
                    await self._make()
        except (IsoboxError, OSError) as error:
            _log.warning("no spare can be made, for now: %s", error)
        except Exception:  # noqa: BLE001 - requests do without
            _log.exception("making a spare failed")
        finally:
            self._making -= 1

    async def _make(self) -> None:
        site = self._site
        await site.holder.ensure()
        if self._closed or not await self._has_room():
            return
        record = self._record()
        place = site.places.make(record, record.holders[0])
        workspace = None
        try:
            workspace = site.making.workspace(record, place)
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

    async def _undo(self, record: Record, workspace: WorkspaceBase | None) -> None:
        """Remove what was begun, its row included, which there may be."""
        if workspace is not None:
            await self._remove(record, workspace)
        await self._site.places.remove(record)

    async def _has_room(self) -> bool:
        most = self._site.settings.max_live
        if most is None:
            return True
        counts = await self._site.store.counts(self._site.holder.now())
        return sum(counts.get(state, 0) for state in _COUNTED) < most

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
