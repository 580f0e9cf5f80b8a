"""This manager as one of those that hold workspaces: it lives by its beats."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox.manager.clock import Clock
    from isobox.manager.store import Store

_log = logging.getLogger("isobox.manager")


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
        self._offset = 0.0
        self._until = float("-inf")
        self._lock = anyio.Lock()
        self.name = _name()

    def now(self) -> float:
        """Return the time by the store's clock."""
        return self._clock.time() + self._offset

    def at(self, moment: float) -> float:
        """Return a moment of the monotonic clock by the store's clock."""
        return self.now() - (self._clock.monotonic() - moment)

    @property
    def lives(self) -> bool:
        """Whether the store keeps for this process what it holds, for certain."""
        return self._clock.monotonic() < self._until

    async def ensure(self) -> None:
        """Live, as the store has it.

        Raises:
            StoreError: It cannot be asked.
        """
        if self.lives:
            return
        async with self._lock:
            if not self.lives:
                await self._beat()

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
        self._until = float("-inf")
        await self._store.leave(self.name, self.now())

    def died(self, name: str) -> None:
        """Take it that the store has given away what `name` held."""
        if name == self.name:
            self.name = _name()
            self._until = float("-inf")
            self._unsaid.clear()
            self._on_lost(name)

    async def _beat(self) -> tuple[str, ...]:
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
        wanted = await self._store.beat(name, now, now + self._timeout, used)
        if wanted is not None and name == self.name:
            self._until = began + self._timeout
        return wanted

    async def _agree_on_time(self) -> None:
        before = self._clock.time()
        theirs = await self._store.time()
        if theirs is not None:
            self._offset = theirs - (before + self._clock.time()) / 2


def _name() -> str:
    host = socket.gethostname().replace(":", "-")
    return f"{host}:{os.getpid()}:{secrets.token_hex(8)}"
