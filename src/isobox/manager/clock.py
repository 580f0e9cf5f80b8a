"""The only place that tells a manager the time, and wakes it up."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable


#: The clock that goes on while the machine sleeps, as other machines do; the
#: monotonic one of Linux stands still then.
_GOES_ON: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Timer(Protocol):
    """What is due later."""

    def cancel(self) -> None:
        """Let it not happen."""


class Clock(ABC):
    """Tells the time; a test's moves when the test says so."""

    @abstractmethod
    def time(self) -> float:
        """Return the seconds since the epoch."""

    @abstractmethod
    def monotonic(self) -> float:
        """Return seconds that never go back."""

    @abstractmethod
    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in so many seconds, in the loop that runs now."""

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        await self.wait(asyncio.get_running_loop().create_future(), seconds)

    async def wait(
        self, future: asyncio.Future[None], seconds: float | None = None
    ) -> bool:
        """Wait for a future, for so long at most; it is never cancelled.

        Returns:
            Whether it is done.
        """
        if future.done() or (seconds is not None and seconds <= 0):
            return future.done()
        woken = asyncio.get_running_loop().create_future()
        wake = _waker(woken)
        future.add_done_callback(wake)
        timer = None if seconds is None else self.call_later(seconds, wake)
        try:
            await woken
        finally:
            woken.cancel()
            # Who looks at it again and again leaves nothing there.
            future.remove_done_callback(wake)
            if timer is not None:
                timer.cancel()
        return future.done()


class SystemClock(Clock):
    """This machine's."""

    @override
    def time(self) -> float:
        return time.time()

    @override
    def monotonic(self) -> float:
        return time.clock_gettime(_GOES_ON)

    @override
    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


def _waker(woken: asyncio.Future[None]) -> Callable[..., None]:
    return lambda *_: _wake(woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
