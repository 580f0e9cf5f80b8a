"""A time limit that holds in a task that is being cancelled, too."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


def deadline(seconds: float) -> AbstractAsyncContextManager[object]:
    """Return what raises TimeoutError where its block takes longer.

    Before Python 3.11.3, `asyncio.timeout` does not in a task that somebody has
    cancelled (https://github.com/python/cpython/issues/102780), and Debian 12 has
    3.11.2: what is to be cleaned up in time would take as long as it likes.
    """
    if sys.version_info >= (3, 11, 3):
        return asyncio.timeout(seconds)
    return Deadline(seconds)


class Deadline:
    """Does what `asyncio.timeout` does since then."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine is run by one
        self._task, self._before = task, task.cancelling()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if not self._expired:
            return
        ours = self._task.uncancel() <= self._before
        if ours and kind is asyncio.CancelledError:
            raise TimeoutError
