"""This manager as one of those that hold workspaces: it lives by its beats."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from typing import TYPE_CHECKING, Final

import anyio

from isobox.errors import StoreError, WorkspaceClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox.manager.clock import Clock
    from isobox.manager.store import Store

_log = logging.getLogger("isobox.manager")

#: How often the time is asked until an answer comes soon enough, and what part of
#: a holder's time that is.
_TIMES: Final = 3
_SOON: Final = 0.05


class Holder:
    """One manager of one process, to the store.

    Args:
        store: Where it beats.
        clock: What tells the time.
        timeout: Seconds after a beat for which it lives.
        used: Returns when the workspaces were used, since it was asked last.
        on_lost: Told the name that has died: all that it held is lost.

    Attributes:
        name: Its name: the host, the pid and a random part.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        timeout: float,
        used: Callable[[], dict[str, float]],
        on_lost: Callable[[str], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._timeout = timeout
        self._used = used
        self._on_lost = on_lost
        self._unsaid: dict[str, float] = {}
        #: The store's clock less the monotonic one, and how wrong that may be.
        self._ahead: float | None = None
        self._doubt = 0.0
        self._until = self._until_by_wall = float("-inf")
        self._lock = anyio.Lock()
        self._tries = 0
        self._failure: StoreError | None = None
        self.name = _name()

    def begin(self) -> None:
        """Be another holder than before, and than who was forked off since."""
        self.name = _name()
        self._die()

    def now(self) -> float:
        """Return the time by the store's clock."""
        if self._ahead is None:
            return self._clock.time()
        # SAFETY: not by the wall clock. When that is set between two beats, others
        # would be taken for dead by a time that is only this host's.
        return self._clock.monotonic() + self._ahead

    def at(self, moment: float) -> float:
        """Return a moment of the monotonic clock by the store's clock."""
        return self.now() - (self._clock.monotonic() - moment)

    @property
    def lives(self) -> bool:
        """Whether the store keeps for this process what it holds, for certain."""
        if self._clock.monotonic() >= self._until:
            return False
        # Others go by the wall clock where the store has none.
        return self._ahead is not None or self._clock.time() < self._until_by_wall

    async def ensure(self) -> None:
        """Live, as the store has it.

        Raises:
            StoreError: It cannot be asked.
        """
        if self.lives:
            return
        tries = self._tries
        async with self._lock:
            if self.lives:
                return
            if self._failure is not None and self._tries != tries:
                # Whoever waited for a try that failed does not wait for one more.
                raise self._failure.with_traceback(None)
            await self._beat()

    def stays(self, name: str) -> Awaitable[None] | None:
        """Be who `name` is, for certain; None if that is known at once.

        Raises:
            WorkspaceClosedError: When it is awaited: it has died.
            StoreError: When it is awaited: nobody knows.
        """
        return None if name == self.name and self.lives else self._stays(name)

    async def _stays(self, name: str) -> None:
        if name == self.name:
            await self.ensure()
        if name != self.name:
            raise WorkspaceClosedError(
                "the manager has closed, or this process stood still or could not "
                "reach its store for too long, and another may have the workspace now: "
                "ask the manager for it again"
            )

    async def beat(self) -> tuple[str, ...]:
        """Live on; returns the workspaces that others wait for.

        Raises:
            StoreError: The store cannot be asked.
        """
        async with self._lock:
            return await self._beat()

    async def leave(self) -> None:
        """Live no longer.

        Raises:
            StoreError: The store cannot be asked.
        """
        name = self.name
        self.begin()
        await self._store.leave(name, self.now())

    def died(self, name: str) -> None:
        """Take it that the store has given away what `name` held."""
        if name == self.name:
            self.begin()
            self._unsaid.clear()
            self._on_lost(name)

    def _die(self) -> None:
        self._until = self._until_by_wall = float("-inf")

    async def _beat(self) -> tuple[str, ...]:
        self._failure = None
        try:
            return await self._beaten()
        except StoreError as error:
            self._failure = error
            raise
        finally:
            self._tries += 1

    async def _beaten(self) -> tuple[str, ...]:
        await self._agree_on_time()
        self._unsaid |= self._used()
        name, said = self.name, dict(self._unsaid)
        wanted = await self._said(name, said)
        if wanted is None:
            _log.warning(
                "this process did not beat in time: %s is taken for dead", name
            )
            self.died(name)
            return await self._said(self.name, {}) or ()
        self._unsaid.clear()
        return wanted

    async def _said(self, name: str, used: dict[str, float]) -> tuple[str, ...] | None:
        # By the moment before: what the store does meanwhile is not lived longer.
        began, now = self._clock.monotonic(), self.now()
        until = now + self._timeout
        wanted = await self._store.beat(name, now, until, used)
        if wanted is not None and name == self.name:
            self._until = began + self._timeout - self._doubt
            self._until_by_wall = until
        return wanted

    async def _agree_on_time(self) -> None:
        """Know the store's time, and for how long it was on its way at most."""
        best = float("inf")
        for _ in range(_TIMES):
            before = self._clock.monotonic()
            theirs = await self._store.time()
            if theirs is None:
                return
            took = self._clock.monotonic() - before
            if took < best:
                best = took
                self._ahead, self._doubt = theirs - before - took / 2, took / 2
            if took <= _SOON * self._timeout:
                return


def _name() -> str:
    host = socket.gethostname().replace(":", "-")
    return f"{host}:{os.getpid()}:{secrets.token_hex(8)}"
