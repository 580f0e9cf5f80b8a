"""How a store that knows nothing learns again what there is."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio.to_thread

from isobox.errors import IsoboxError
from isobox.manager import keys
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
        #: The holders that lived when orphans were last looked for.
        self._living: frozenset[str] | None = None
        #: What was entered and nobody was told of.
        self._untold = 0

    async def at_start(self) -> None:
        """Enter what there is, if the store knows of nothing."""
        site = self._site
        counts = await site.store.counts(site.holder.now())
        self._untold = 0 if sum(counts.values()) else await self._run()

    async def run(self) -> int:
        """Enter what there is and is not known; returns how many that were.

        Those that were entered at the start are among them, the first time. Unlike
        then, containers count which do not say of which deployment they are, if their
        directory is here.
        """
        untold, self._untold = self._untold, 0
        return untold + await self._run(asked=True)

    async def _run(self, *, asked: bool = False) -> int:
        site = self._site
        # There may be very many, and the beats do not wait for them.
        owners = await anyio.to_thread.run_sync(list, site.places.owners())
        found = await self._entered([record for record, _ in owners])
        on_engine = await self._on_engine(asked=asked)
        found += await self._entered(on_engine)
        if asked:
            await self._discard_strays(on_engine)
        return found

    async def _discard_strays(self, on_engine: Iterable[Record]) -> None:
        """End spares that were begun on the engine when their maker was gone."""
        site = self._site
        for record in on_engine:
            # SAFETY: only those that are nobody's, by all that there is to ask.
            if record.state is not State.SPARE or site.places.exists(record):
                continue
            if await site.store.find(record.workspace_id, site.holder.now()):
                continue
            try:
                await site.making.discard(record)
            except IsoboxError as error:
                _log.warning("%s may still run: %s", record.workspace_id, error)

    async def _on_engine(self, *, asked: bool) -> list[Record]:
        making, places = self._site.making, self._site.places
        try:
            found = await making.on_engine()
        except IsoboxError as error:
            _log.warning("the engine does not say which workspaces it has: %s", error)
            return []
        return [
            record
            for record, whose in found
            if whose == making.deployment or (asked and places.exists(record))
        ]

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
        """Remove directories of spares whose maker died before it entered them.

        They are looked for once, and then whenever somebody has died since.
        """
        site = self._site
        try:
            living = frozenset(await site.store.holders(site.holder.now()))
            if self._living is None or self._living - living:
                await self._remove_orphans(living)
            self._living = living
        except (IsoboxError, OSError) as error:
            _log.warning("what dead processes have begun stays: %s", error)

    async def _remove_orphans(self, living: frozenset[str]) -> None:
        site = self._site
        named = site.places.owners(keys.SPARE)
        owners = await anyio.to_thread.run_sync(list, named)
        for record, holder in owners:
            if record.state is not State.SPARE or holder in living:
                continue
            known = await site.store.find(record.workspace_id, site.holder.now())
            if known is None:
                await site.places.remove(record)
