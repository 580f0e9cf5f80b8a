"""Tasks that may be started by one task and ended by another."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    Job = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """Runs tasks of its own, until `aclose`, or until one of them fails.

    A task group belongs to the task that entered it; what a workspace starts in
    one call and ends in another is none of its tasks.
    """

    def __init__(self) -> None:
        self._context: contextvars.Context | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._scopes: set[anyio.CancelScope] = set()
        self._failures: list[Exception] = []
        self._ended = False

    async def open(self) -> None:
        """Be ready to start tasks."""
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._ended = False

    def start(self, job: Job) -> None:
        """Start a task; also from a callback of the loop, which is none itself."""
        assert self._context is not None  # noqa: S101 - opened first
        if self._ended:
            return
        # Whoever happens to start it lends it nothing.
        task = self._loop.create_task(self._run(job), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Cancel every task and wait until all are gone; safe to call again.

        Raises:
            ExceptionGroup: What tasks failed with.
        """
        self._end()
        if self._tasks:
            await asyncio.wait(self._tasks)
        failures, self._failures = self._failures, []
        if failures:
            raise ExceptionGroup("tasks in the background failed", failures)

    async def _run(self, job: Job) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._ended:
                scope.cancel()
            try:
                await job()
            except Exception as error:  # noqa: BLE001 - `aclose` raises it
                self._failures.append(error)
                self._end()
            finally:
                self._scopes.discard(scope)

    def _end(self) -> None:
        self._ended = True
        for scope in self._scopes:
            scope.cancel()


class collapsed:  # noqa: N801 - used like contextlib.suppress
    """Raise what a task group failed with, not the group around it."""

    def __enter__(self) -> None:
        """Watch over what follows."""

    def __exit__(self, _kind: object, error: BaseException | None, _: object) -> None:
        """Raise the first error of a group of them."""
        first = _first(error)
        if first is not error and first is not None:
            raise first from None


def _first(error: BaseException | None) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _first(group.exceptions[0])
    return error
