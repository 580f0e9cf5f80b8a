"""What a manager does by itself: it beats, looks who waits, and sweeps."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox.manager.closing import Closing
    from isobox.manager.debts import Debts
    from isobox.manager.site import Site
    from isobox.manager.sweep import Sweep

_log = logging.getLogger("isobox.manager")

#: Seconds between two looks at what other processes wait for.
_LOOK: Final = 0.25


class Loops:
    """Runs until its manager closes; a failure is logged, and the next try comes."""

    def __init__(
        self, site: Site, closing: Closing, debts: Debts, sweep: Sweep
    ) -> None:
        self._site = site
        self._debts = debts
        self._closing = closing
        self._sweep = sweep

    async def beat(self) -> None:
        """Keep what this process holds, and tell what could not be told."""
        await self._each(self._site.settings.heartbeat, self._beat)

    async def look(self) -> None:
        """Hand over what other processes wait for."""
        await self._each(_LOOK, self._look)

    async def close(self) -> None:
        """Close what is due."""
        await self._each(self._site.settings.sweep_interval, self._sweep.close_due)

    async def delete(self) -> None:
        """Delete what is due."""
        await self._each(self._site.settings.sweep_interval, self._sweep.delete_due)

    async def _beat(self) -> None:
        self._closing.hand_over(await self._site.holder.beat())
        await self._debts.pay()

    async def _look(self) -> None:
        if len(self._site.entries):
            name = self._site.holder.name
            self._closing.hand_over(await self._site.store.wanted(name))

    async def _each(self, seconds: float, what: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._site.clock.sleep(seconds)
            try:
                await what()
            except IsoboxError as error:
                _log.warning("%s: %s", what.__name__, error)
            except Exception:  # noqa: BLE001 - the next try comes
                _log.exception("%s failed", what.__name__)
