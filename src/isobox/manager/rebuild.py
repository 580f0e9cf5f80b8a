"""How a store that knows nothing learns again what there is."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from isobox.errors import IsoboxError
from isobox.manager.records import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox.manager.records import Record
    from isobox.manager.site import Site

_log = logging.getLogger("isobox.manager")


class Rebuild:
    """Finds workspaces by what their directories and their engine say."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def at_start(self) -> None:
        """Enter what there is, if the store knows of nothing."""
        site = self._site
        counts = await site.store.counts(site.holder.now())
        if not sum(counts.values()):
            await self.run()

    async def run(self) -> int:
        """Enter what there is and is not known; returns how many that were."""
        site = self._site
        directories = [record for record, _ in site.places.owners()]
        found = await self._entered(directories)
        try:
            on_engine = await site.making.on_engine()
        except IsoboxError as error:
            _log.warning("the engine does not say which workspaces it has: %s", error)
            on_engine = []
        return found + await self._entered(on_engine)

    async def _entered(self, records: Iterable[Record]) -> int:
        now = self._site.holder.now()
        # Of two that claim one tenant, an aborted deletion left the older.
        newest = sorted(records, key=lambda one: one.created_at, reverse=True)
        adopted = [
            await self._site.store.adopt(replace(record, used_at=now), now)
            for record in newest
            if record.state is not State.SPARE
        ]
        return sum(adopted)

    async def remove_orphans(self) -> None:
        """Remove directories of spares whose maker died before it entered them."""
        try:
            await self._remove_orphans()
        except (IsoboxError, OSError) as error:
            _log.warning("what dead processes have begun stays: %s", error)

    async def _remove_orphans(self) -> None:
        site = self._site
        spares = [
            (record, holder)
            for record, holder in site.places.owners()
            if record.state is State.SPARE
        ]
        living = await site.store.holders(site.holder.now()) if spares else ()
        for record, holder in spares:
            known = await site.store.find(record.workspace_id, site.holder.now())
            if holder not in living and known is None:
                await site.places.remove(record)
