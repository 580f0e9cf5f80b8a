"""A manager's parts, from its opening to its end."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import anyio

from isobox._channel.background import Background
from isobox.errors import (
    ConflictError,
    InvalidArgumentError,
    StoreError,
    WorkspaceClosedError,
)
from isobox.manager import deployment
from isobox.manager.closing import Closing
from isobox.manager.debts import Debts
from isobox.manager.deleting import Deleting
from isobox.manager.entry import WAITING, Entries, Entry, Phase
from isobox.manager.events import Events, Stats
from isobox.manager.holder import Holder
from isobox.manager.loops import Loops
from isobox.manager.making import Making
from isobox.manager.opening import Opening
from isobox.manager.places import Places
from isobox.manager.purge import Purge
from isobox.manager.reach import Reach
from isobox.manager.rebuild import Rebuild
from isobox.manager.settings import count, rate
from isobox.manager.site import Settings, Site
from isobox.manager.spares import Spares
from isobox.manager.store import Store
from isobox.manager.sweep import Sweep
from isobox.manager.turns import Turns

if TYPE_CHECKING:
    from isobox._workspace.base import WorkspaceBase
    from isobox.manager.clock import Clock
    from isobox.manager.events import OnEvent
    from isobox.manager.making import Options
    from isobox.manager.records import Record

_DATABASE = "manager.db"


class Running:
    """Makes a manager's parts, opens them, and closes them in their order."""

    def __init__(
        self,
        kind: type[WorkspaceBase],
        *,
        basedir: str | os.PathLike[str],
        store: Store | str | os.PathLike[str] | None,
        options: Options,
        settings: Settings,
        max_creating: int,
        creation_rate: float | None,
        queue_limit: int,
        audit: bool,
        on_event: OnEvent | None,
        clock: Clock,
    ) -> None:
        places = Places(basedir)
        self._owns_store = not isinstance(store, Store)
        store = _store(store, places)
        self.site = Site(
            settings=settings,
            clock=clock,
            store=store,
            places=places,
            making=Making(
                kind, options, clock, audit=audit, prewarm=settings.prewarm > 0
            ),
            events=Events(clock, on_event),
            entries=Entries(clock, settings.ttl),
            turns=Turns(
                clock,
                most=count("max_creating", max_creating),
                rate=None
                if creation_rate is None
                else rate("creation_rate", creation_rate),
                limit=count("queue_limit", queue_limit),
            ),
            holder=Holder(
                store,
                clock,
                timeout=settings.holder_timeout,
                used=self._used,
                on_lost=self._lost,
            ),
        )
        self._spares = Spares(self.site)
        self._debts = Debts(self.site, self._spares)
        self._closing = Closing(self.site, self._debts)
        self._opening = Opening(self.site, self._closing, self._debts, self._spares)
        self.reach = Reach(self.site, self._opening)
        self.rebuild = Rebuild(self.site)
        self.sweep = Sweep(
            self.site, self._closing, self._debts, self._spares, self.rebuild
        )
        self.deleting = Deleting(self.site, self._opening, self._closing, self.sweep)
        self.purge = Purge(self.site, self.reach, self.deleting)
        self._loops = Loops(self.site, self._closing, self._debts, self.sweep)
        self._open = self._opens = False

    async def open(self) -> None:
        """Be ready; see the manager's `open`."""
        if self._open or self._opens:
            raise ConflictError(
                "the manager is open already, and who opened it closes it for all: "
                "use it as it is"
            )
        self._opens = True
        try:
            await self._opened()
        finally:
            self._opens = False

    async def _opened(self) -> None:
        self.site.places.open()
        await self.site.store.open()
        # What is opened here may have been made before a fork.
        self.site.holder.begin()
        try:
            self.site.making.deployment = await deployment.agreed(
                self.site.store, self.site.places, self.site.holder.now()
            )
            await self.site.holder.ensure()
            await self.rebuild.at_start()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._leave()
            raise
        self.site.jobs, self.site.ending = Background(), False
        self._spares.open()
        await self.site.jobs.open()
        loops = self._loops
        for loop in (loops.beat, loops.look, loops.close, loops.delete):
            self.site.start(loop)
        self.site.start(self.rebuild.remove_orphans)
        self._spares.replenish()
        self._open = True

    async def aclose(self) -> None:
        """Close all; see the manager's `aclose`."""
        if not self._open:
            return
        self._open, self.site.ending = False, True
        with anyio.CancelScope(shield=True):
            self._refuse_the_waiting()
            while entries := list(self.site.entries):
                self._close(entries)
                await asyncio.wait([entry.settled for entry in entries])
            await self._spares.aclose()
            await self.site.jobs.aclose()
            await self._spares.aclose()
            await self._leave()

    def check(self) -> None:
        """Be open.

        Raises:
            WorkspaceClosedError: It is not.
        """
        if not self._open:
            raise WorkspaceClosedError(
                "the manager is not open: call open() first, or use it in a `with` "
                "block"
            )

    async def find(self, workspace_id: str) -> Record | None:
        """Return a workspace by its name, from here if it is open here."""
        entry = self.site.entries.named(workspace_id)
        if entry is not None and entry.record is not None:
            return entry.record
        return await self.site.store.find(workspace_id, self.site.holder.now())

    def used(self, entry: Entry) -> None:
        """Note that an entry was used."""
        if entry.phase is not Phase.GONE:
            self.site.entries.touch(entry)

    def stats(self) -> Stats:
        """Return what this process has."""
        entries = list(self.site.entries)
        return Stats(
            live=sum(one.phase is Phase.OPEN for one in entries),
            leased=sum(one.leases > 0 for one in entries),
            spares=len(self._spares),
            waiting=sum(one.phase in WAITING for one in entries),
            making=sum(one.phase is Phase.MAKING for one in entries),
            counters=dict(self.site.events.counters),
        )

    def _refuse_the_waiting(self) -> None:
        for entry in self.site.entries:
            if entry.phase in WAITING:
                self._opening.refuse(entry, WorkspaceClosedError("the manager closes"))

    def _close(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.phase is Phase.OPEN:
                self._closing.part(entry)

    async def _leave(self) -> None:
        try:
            await self._debts.pay()
            await self.site.holder.leave()
        except StoreError:
            # It is taken for dead when its time is over.
            pass
        finally:
            if self._owns_store:
                await self.site.store.aclose()

    def _used(self) -> dict[str, float]:
        """Return when what was used was, and begin anew; what is in use is used now."""
        entries, holder = self.site.entries, self.site.holder
        for entry in entries:
            if entry.busy:
                entries.touch(entry)
        touched, entries.touched = entries.touched, set()
        return {
            entry.workspace_id: holder.at(entry.last_used)
            for entry in touched
            if entry.phase is Phase.OPEN
        }

    def _lost(self, holder: str) -> None:
        self._closing.lose(holder)
        self._spares.lose(holder)


def _store(given: Store | str | os.PathLike[str] | None, places: Places) -> Store:
    if isinstance(given, Store):
        return given
    if given is not None and not isinstance(given, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(
            f"store={given!r:.200}: give a path, a URL such as postgresql://..., or a "
            "Store"
        )
    # SQLAlchemy is large, and a store of one's own needs none.
    from isobox.manager.sql import SqlStore  # noqa: PLC0415

    return SqlStore(os.path.join(places.path, _DATABASE) if given is None else given)
