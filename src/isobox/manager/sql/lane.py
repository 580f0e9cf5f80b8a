"""Threads that run a store's transactions, in the order in which they come."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_C = TypeVar("_C")

_Job = tuple["Callable[[_C], Any]", asyncio.Future[Any]]


class Lane(Generic[_C]):
    """Runs functions of a resource, which each thread has for itself.

    A thread of its own takes a third of the time of one of a pool's: what is
    answered while the loop is busy is told to it all at once. It belongs to the
    loop that made it.

    Args:
        threads: How many run at once.
        acquire: Makes a thread's resource, when it is first needed.
        release: Ends it.
    """

    def __init__(
        self,
        threads: int,
        *,
        acquire: Callable[[], _C],
        release: Callable[[_C], None],
    ) -> None:
        self._acquire = acquire
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job[_C] | None] = SimpleQueue()
        self._answers: deque[Callable[[], None]] = deque()
        self._told = False
        self._threads = [
            threading.Thread(target=self._run, name="isobox-store", daemon=True)
            for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def do(self, work: Callable[[_C], _T]) -> _T:
        """Return what `work` returns; it is run even if nobody waits any more."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put((work, answer))
        return cast("_T", await answer)

    def end(self) -> None:
        """Run what waits still, and return when the threads have ended."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        with contextlib.ExitStack() as held:
            resource: _C | None = None
            while (job := self._jobs.get()) is not None:
                work, answer = job
                try:
                    if resource is None:
                        resource = self._acquire()
                        held.callback(self._release, resource)
                    self._answer(answer, work(resource), None)
                except BaseException as error:  # noqa: BLE001 - who asked is told
                    self._answer(answer, None, error)

    def _answer(
        self, answer: asyncio.Future[Any], result: object, error: BaseException | None
    ) -> None:
        self._answers.append(lambda: _settle(answer, result, error))
        if not self._told:
            self._told = True
            # A loop that is closed has nobody who waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        # First: what is answered from now on is told by another call.
        self._told = False
        while self._answers:
            self._answers.popleft()()


def _settle(
    answer: asyncio.Future[Any], result: object, error: BaseException | None
) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
