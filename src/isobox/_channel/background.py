"""A task group that may be opened in one task and closed in another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from anyio.abc import TaskGroup

    Job = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """Runs tasks in a group of their own, until `aclose`.

    A task group belongs to the task that entered it; what a workspace starts in
    one call and ends in another needs a task between them.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._group: TaskGroup | None = None
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()

    async def open(self) -> None:
        """Be ready to start tasks."""
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready))
        await ready

    def start(self, job: Job) -> None:
        """Start a task; also from a callback of the loop, which is none itself."""
        assert self._group is not None  # noqa: S101 - opened first
        # Not by the group: outside of tasks, anyio does not know its loop where
        # sniffio is installed.
        self._jobs.put_nowait(job)

    async def aclose(self) -> None:
        """Cancel every task and wait until all are gone; safe to call again."""
        task, self._task = self._task, None
        if task is not None and self._group is not None:
            self._group.cancel_scope.cancel()
            await asyncio.wait([task])
            task.result()

    async def _run(self, ready: asyncio.Future[None]) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            ready.set_result(None)
            while True:
                group.start_soon(await self._jobs.get())


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
