"""How what is open here is closed, and why."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from isobox.errors import StoreError
from isobox.manager.entry import Phase
from isobox.manager.events import Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox.manager.debts import Debts
    from isobox.manager.entry import Entry
    from isobox.manager.site import Site

_log = logging.getLogger("isobox.manager")


class Closing:
    """Closes workspaces that this process has open.

    An entry that is being closed stays, so that who asks for its workspace waits
    until it is gone.
    """

    def __init__(self, site: Site, debts: Debts) -> None:
        self._site = site
        self._debts = debts

    def begin(self, entry: Entry, why: Kind, reason: str = "") -> None:
        """Begin to close an entry that is open."""
        entry.begin(Phase.CLOSING)
        self._start(self._close, entry, why, reason)

    def lose(self, holder: str) -> None:
        """Begin to drop all that was open as a holder that has died.

        Their files and rows may be another's already, and are left alone.
        """
        for entry in self._site.entries:
            if entry.phase is Phase.OPEN and entry.holder == holder:
                entry.begin(Phase.CLOSING)
                self._start(self._let_go, entry, Kind.LOST, "it was not kept")

    def part(self, entry: Entry) -> None:
        """Begin to close an entry for this process's end.

        What others can attach to is left as it is; all else is closed, even if the
        store cannot be told: it learns it when this process is taken for dead.
        """
        if self._site.making.shared:
            entry.begin(Phase.CLOSING)
            self._start(self._let_go, entry, Kind.CLOSED, "left to others")
        else:
            self.begin(entry, Kind.CLOSED, "the manager closes")

    def reap(self) -> int:
        """Begin to close all that nobody has used for the time to live."""
        count = 0
        for entry in self._site.entries.due():
            self.begin(entry, Kind.REAPED)
            count += 1
        return count

    def hand_over(self, wanted: tuple[str, ...]) -> None:
        """Begin to close what other processes wait for and nobody uses here."""
        for workspace_id in wanted:
            entry = self._site.entries.named(workspace_id)
            after = self._site.settings.handover_after
            if entry is not None and self._is_idle(entry, after):
                self.begin(entry, Kind.HANDED_OVER)

    def make_room(self, user: str | None) -> Entry | None:
        """Begin to close what was used least recently, of a user's or of all."""
        after = self._site.settings.evict_after
        idle = [
            entry
            for entry in self._site.entries
            if (user is None or entry.tenant.user == user)
            and self._is_idle(entry, after)
        ]
        if not idle:
            return None
        victim = min(idle, key=_last_used)
        self.begin(victim, Kind.EVICTED)
        return victim

    def _is_idle(self, entry: Entry, seconds: float) -> bool:
        # Who waited for it to open has to get it first, however soon that is.
        if entry.phase is not Phase.OPEN or entry.busy or entry.waiting:
            return False
        return self._site.clock.monotonic() - entry.last_used >= seconds

    def _start(
        self,
        how: Callable[[Entry, Kind, str], Awaitable[None]],
        entry: Entry,
        why: Kind,
        reason: str,
    ) -> None:
        async def run() -> None:
            try:
                await how(entry, why, reason)
            except Exception as error:  # noqa: BLE001 - who waits goes on
                _log.exception("closing %s failed", entry.workspace_id)
                self.gone(entry, error)

        self._site.start(run)

    async def _close(self, entry: Entry, why: Kind, reason: str) -> None:
        site, workspace = self._site, entry.workspace
        assert workspace is not None  # noqa: S101 - it was open
        began = site.clock.monotonic()
        used_at = site.holder.at(entry.last_used)
        try:
            last = await site.store.release(
                entry.workspace_id, entry.holder, site.holder.now(), used_at
            )
        except StoreError as error:
            self._reopen(entry, error)
            return
        end = site.making.close if last else site.making.let_go
        failure = await end(workspace)
        if last:
            await self.closed(entry)
        self._tell(entry, why, failure, reason=reason, began=began)
        self.gone(entry)

    def _reopen(self, entry: Entry, error: StoreError) -> None:
        """Have it open as before: its row could not be given up."""
        if entry.holder != self._site.holder.name:
            self._start(self._let_go, entry, Kind.LOST, "it was not kept")
            return
        if self._site.ending:
            self._start(self._let_go, entry, Kind.CLOSED, str(error))
            return
        entry.settle(Phase.OPEN, error)
        self._site.entries.watch(entry)

    async def closed(self, entry: Entry) -> None:
        """Tell the store, now or later, that an entry's workspace is closed."""
        site = self._site
        try:
            await site.store.closed(entry.workspace_id, entry.holder, site.holder.now())
        except StoreError as error:
            _log.warning(
                "the store does not know that %s is closed: %s",
                entry.workspace_id,
                error,
            )
            self._debts.owe(entry, entry.workspace_id)

    async def _let_go(self, entry: Entry, why: Kind, reason: str) -> None:
        """Close an entry's workspace here; its row and files are left alone."""
        assert entry.workspace is not None  # noqa: S101 - it was open
        error = await self._site.making.let_go(entry.workspace)
        self._tell(entry, why, error, reason=reason)
        self.gone(entry)

    def gone(self, entry: Entry, error: BaseException | None = None) -> None:
        """Forget an entry; who waits for it goes on."""
        self._site.entries.remove(entry)
        if entry.workspace is not None:
            # Whoever keeps it opens nothing that is not counted.
            entry.workspace._retired = True
        entry.workspace = entry.victim = None
        entry.settle(Phase.GONE, error)
        self._site.turns.room()

    def _tell(
        self,
        entry: Entry,
        why: Kind,
        error: Exception | None,
        *,
        reason: str = "",
        began: float | None = None,
    ) -> None:
        emit = partial(self._site.events.emit, tenant=entry.tenant)
        seconds = None if began is None else self._site.clock.monotonic() - began
        if error is not None:
            emit(Kind.FAILED, entry.workspace_id, reason=f"closing: {error}")
        emit(why, entry.workspace_id, seconds=seconds, reason=reason)


def _last_used(entry: Entry) -> float:
    return entry.last_used
