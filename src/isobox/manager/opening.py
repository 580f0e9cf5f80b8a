"""How what is not open here is opened: its turn, the store's word, the making."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from isobox.errors import HolderExpiredError, IsoboxError, QuotaError, StoreError
from isobox.manager import keys
from isobox.manager.entry import WAITING, Entry, Phase
from isobox.manager.events import Kind
from isobox.manager.records import Claim, Full, Granted, Held, Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox._workspace.base import WorkspaceBase
    from isobox.manager.closing import Closing
    from isobox.manager.debts import Debts
    from isobox.manager.records import Answer, Tenant
    from isobox.manager.site import Site
    from isobox.manager.spares import Spares
    from isobox.manager.turns import Ticket

_log = logging.getLogger("isobox.manager")

#: Seconds after which another process is asked again: so many more each time.
_ASK_AGAIN, _ASK_AT_LEAST = 0.05, 0.5
#: Seconds within which a spare answers, or is none.
_PATIENCE: Final = 10.0
#: How often a claim begins anew as another holder.
_LIVES: Final = 5


class Opening:
    """Opens workspaces: one build for a key, whoever and how many ask for it.

    A build is the manager's own: who waits for it and is cancelled ends it for
    nobody. One that nobody waits for any more ends while it waits itself.
    """

    def __init__(
        self, site: Site, closing: Closing, debts: Debts, spares: Spares
    ) -> None:
        self._site = site
        self._closing = closing
        self._debts = debts
        self._spares = spares

    def begin(self, key: str, tenant: Tenant, workspace_id: str) -> Entry:
        """Begin to open the workspace of a key that has no entry."""
        now = self._site.clock.monotonic()
        entry = Entry(key, tenant, workspace_id, now)
        self._site.entries.add(entry)
        self._site.start(partial(self._run, entry, self._open))
        return entry

    def recover(self, entry: Entry) -> None:
        """Begin to give an open entry another sandbox: its own is gone."""
        entry.begin(Phase.MAKING)
        self._site.start(partial(self._run, entry, self._recover))

    def withdraw(self, entry: Entry) -> None:
        """End a build that nobody waits for, if it waits itself."""
        if entry.phase in WAITING and not entry.settled.done():
            self.refuse(entry, None)

    def give_way(self, entry: Entry) -> None:
        """End a build that waits itself, or will: who waits for it asks anew."""
        entry.gives_way = True
        if entry.phase in WAITING and not entry.settled.done():
            self.refuse(entry, None)

    def refuse(self, entry: Entry, error: IsoboxError | None) -> None:
        """End a build that waits itself."""
        self._closing.gone(entry, error)
        if entry.scope is not None:
            entry.scope.cancel()

    async def _run(
        self, entry: Entry, job: Callable[[Entry, float], Awaitable[None]]
    ) -> None:
        began = self._site.clock.monotonic()
        try:
            with anyio.CancelScope() as entry.scope:
                await job(entry, began)
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            self._failed(entry, error)
            self._closing.gone(entry, error)
        finally:
            entry.scope = None
            if entry.phase not in (Phase.OPEN, Phase.GONE, Phase.CLOSING):
                self._closing.gone(entry)

    def _failed(self, entry: Entry, error: Exception) -> None:
        if not isinstance(error, IsoboxError | OSError):
            _log.error("opening %s failed", entry.workspace_id, exc_info=error)
        kind = Kind.DENIED if isinstance(error, QuotaError) else Kind.FAILED
        self._site.events.emit(
            kind, entry.workspace_id, entry.tenant, reason=str(error)
        )

    # Its turn, and the store's word.

    async def _open(self, entry: Entry, began: float) -> None:
        with self._site.turns.ticket(entry.tenant.user) as ticket:
            while not entry.settled.done():
                answer = await self._tried(entry, ticket, began)
                if answer is None or self._is_over(entry):
                    return
                if isinstance(answer, Held):
                    await self._wait(entry)

    def _is_over(self, entry: Entry) -> bool:
        return not entry.waiting or entry.gives_way or self._site.ending

    async def _tried(self, entry: Entry, ticket: Ticket, began: float) -> Answer | None:
        """Have a turn; returns why nothing came of it, None if it was made."""
        async with self._site.turns.turn(ticket):
            waited = self._site.clock.monotonic() - began
            entry.phase = Phase.CLAIMING
            answer = await self._claimed(entry)
            if isinstance(answer, Granted):
                self._site.turns.granted(ticket)
                self._waited(entry, waited)
                await self._make(entry, answer)
                return None
            if isinstance(answer, Full):
                entry.phase = Phase.QUEUED
                self._site.turns.full(ticket, of_user=answer.of_user)
                self._make_room(entry, answer)
            else:
                await self._debts.settle(entry, answer)
                entry.phase, entry.held_by = Phase.HELD, answer.holder
                self._site.turns.unused(ticket)
            return answer

    def _waited(self, entry: Entry, seconds: float) -> None:
        self._site.events.emit(
            Kind.WAITED, entry.workspace_id, entry.tenant, seconds=seconds
        )

    async def _claimed(self, entry: Entry) -> Answer:
        holder, expired = self._site.holder, None
        for _ in range(_LIVES):
            await holder.ensure()
            entry.holder = holder.name
            try:
                with self._spares.offered() as spare:
                    claim = self._claim(entry, spare=spare)
                    return await self._site.store.claim(claim, holder.now())
            except HolderExpiredError as error:
                holder.died(entry.holder)
                expired = error
            except BaseException:
                # It may be claimed all the same.
                self._debts.owe(entry)
                raise
        raise StoreError(
            "the store takes this process for dead as soon as it lives: compare the "
            "clocks of its hosts, or give a longer holder_timeout"
        ) from expired

    def _claim(self, entry: Entry, *, spare: bool) -> Claim:
        site = self._site
        return Claim(
            holder=entry.holder,
            key=entry.key,
            workspace_id=entry.workspace_id,
            tenant=entry.tenant,
            backend=site.making.backend,
            place=keys.place(entry.workspace_id),
            shared=site.making.shared,
            spare=spare,
            options=site.making.remembered(entry.tenant),
            most=site.settings.max_live,
            most_of_user=site.settings.max_live_per_user,
        )

    async def _wait(self, entry: Entry) -> None:
        """Wait before another process is asked again."""
        entry.tries += 1
        await self._site.clock.sleep(min(_ASK_AGAIN * entry.tries, _ASK_AT_LEAST))
        entry.phase = Phase.QUEUED

    def _make_room(self, entry: Entry, answer: Full) -> None:
        if not answer.of_user and self._spares.drop():
            return
        if entry.victim is None or entry.victim.phase is Phase.GONE:
            user = entry.tenant.user if answer.of_user else None
            entry.victim = self._closing.make_room(user)

    # The making.

    async def _make(self, entry: Entry, granted: Granted) -> None:
        site, record = self._site, granted.record
        entry.phase = Phase.MAKING
        began = site.clock.monotonic()
        site.entries.name(entry, record)
        self._debts.forget(entry.key)
        try:
            workspace = await self._made(entry, granted)
            kept = await self._kept(entry, workspace)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._give_up(entry, granted)
            raise
        if not kept:
            await site.making.let_go(workspace)
            self._closing.gone(entry)
            return
        self._opened(entry, workspace)
        self._spares.replenish()
        new = granted.new or granted.spare
        site.events.emit(
            Kind.CREATED if new else Kind.ATTACHED,
            record.workspace_id,
            entry.tenant,
            seconds=site.clock.monotonic() - began,
            reason="spare" if granted.spare else "",
        )

    def _opened(self, entry: Entry, workspace: WorkspaceBase) -> None:
        entry.workspace = workspace
        entry.used = entry.heard = self._site.clock.monotonic()
        entry.settle(Phase.OPEN)
        self._site.entries.watch(entry)

    async def _made(self, entry: Entry, granted: Granted) -> WorkspaceBase:
        site, record = self._site, granted.record
        # Also one that an earlier claim got whose answer was lost.
        spare = await self._spares.take(record)
        place = site.places.make(record, entry.holder)
        if spare is not None:
            if await spare._answers(_PATIENCE):
                return spare
            await site.making.close(spare)
        stays = partial(site.holder.stays, entry.holder)
        workspace = site.making.workspace(record, place, stays)
        try:
            await workspace.initialize()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await site.making.let_go(workspace)
            raise
        return workspace

    async def _kept(self, entry: Entry, workspace: WorkspaceBase) -> bool:
        """Say that it is open; False if it was lost meanwhile."""
        site = self._site
        try:
            made = await site.store.made(
                entry.workspace_id, entry.holder, site.holder.now()
            )
        except BaseException:
            with anyio.CancelScope(shield=True):
                await site.making.let_go(workspace)
            raise
        return made and entry.holder == site.holder.name

    async def _give_up(self, entry: Entry, granted: Granted) -> None:
        """Leave a claim as if it had not been made, as far as the store can be told."""
        site, record = self._site, granted.record
        now = site.holder.now()
        try:
            if not granted.new:
                await site.store.closed(record.workspace_id, entry.holder, now)
                return
            taken = await site.store.delete(
                record.workspace_id, entry.holder, now, place=record.place
            )
            if isinstance(taken, Record):
                await site.places.remove(record)
                await site.store.deleted(record.workspace_id, entry.holder)
        except (StoreError, OSError) as error:
            _log.warning("giving %s up: %s", record.workspace_id, error)
            self._debts.owe(entry, record.workspace_id)

    async def _recover(self, entry: Entry, began: float) -> None:
        site, workspace = self._site, entry.workspace
        assert workspace is not None  # noqa: S101 - it was open
        try:
            async with site.turns.recovering:
                await site.making.recover(workspace)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._closing.closed(entry)
            raise
        if entry.holder != site.holder.name:
            await site.making.let_go(workspace)
            self._closing.gone(entry)
            return
        self._opened(entry, workspace)
        seconds = site.clock.monotonic() - began
        site.events.emit(
            Kind.RECOVERED, entry.workspace_id, entry.tenant, seconds=seconds
        )
