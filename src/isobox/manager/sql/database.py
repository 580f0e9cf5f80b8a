"""Transactions of one database, whichever it is."""

from __future__ import annotations

import random
import sqlite3
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from isobox.errors import IsoboxError, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from isobox.manager.sql.transaction import Transaction

_T = TypeVar("_T")

#: How often a transaction is tried that others got in the way of.
_ATTEMPTS: Final = 12
#: Seconds of the first pause between two, and of the longest.
_SHORTEST: Final = 0.005
_LONGEST: Final = 0.5


class CrossedError(Exception):
    """Another transaction got in the way, or the connection was an old one."""


class Database(ABC):
    """A database whose transactions are functions of what happens in them.

    Attributes:
        shown: What messages say of it; no secret is in it.
        has_clock: Whether it tells the time.
    """

    has_clock: bool = False

    def __init__(self, shown: str) -> None:
        self.shown = shown

    async def open(self) -> None:
        """Connect, and make the tables; nothing happens if that was done.

        Raises:
            StoreError: It cannot be reached, or has tables of another version.
        """
        await self._tried(self._open)

    async def aclose(self) -> None:
        """Disconnect; safe to call again."""
        with anyio.CancelScope(shield=True), self._told():
            await self._close()

    async def read(self, work: Callable[[Transaction], _T]) -> _T:
        """Return what `work` reads in one transaction.

        Raises:
            StoreError: It failed.
        """
        return await self._tried(partial(self._read, work))

    async def write(self, work: Callable[[Transaction], _T]) -> _T:
        """Return what `work` answers, once what it changed is kept.

        It is called again when another transaction got in its way, so all that it
        changes is in the database.

        Raises:
            StoreError: It failed; nothing is changed, unless the answer was lost.
        """
        return await self._tried(partial(self._write, work))

    async def hurry(self, work: Callable[[Transaction], _T]) -> _T:
        """Do as `write`, without waiting for what this process writes besides.

        Raises:
            StoreError: It failed; nothing is changed, unless the answer was lost.
        """
        return await self._tried(partial(self._hurry, work))

    async def _tried(self, once: Callable[[], Awaitable[_T]]) -> _T:
        cause: BaseException | None = None
        # Short, and whoever is cancelled has to know whether it was done.
        with anyio.CancelScope(shield=True), self._told():
            for attempt in range(_ATTEMPTS):
                try:
                    return await once()
                except CrossedError as crossed:
                    cause = crossed.__cause__
                await anyio.sleep(_pause(attempt))
        raise StoreError(
            f"{self.shown}: others were in the way {_ATTEMPTS} times; try again"
        ) from cause

    @contextmanager
    def _told(self) -> Generator[None]:
        # Without what was sent to it, which is a tenant's.
        try:
            yield
        except IsoboxError:
            raise
        except DBAPIError as error:
            raise StoreError(f"{self.shown}: {_first_line(error.orig)}") from error
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.shown}: {_first_line(error)}") from error

    @abstractmethod
    async def _open(self) -> None:
        """Connect and make the tables.

        Raises:
            CrossedError: Another process is at it.
        """

    @abstractmethod
    async def _close(self) -> None:
        """Disconnect."""

    @abstractmethod
    async def _read(self, work: Callable[[Transaction], _T]) -> _T:
        """Run one transaction that changes nothing.

        Raises:
            CrossedError: It may be tried again.
        """

    @abstractmethod
    async def _write(self, work: Callable[[Transaction], _T]) -> _T:
        """Run one transaction.

        Raises:
            CrossedError: Nothing was done, and it may be tried again.
        """

    @abstractmethod
    async def _hurry(self, work: Callable[[Transaction], _T]) -> _T:
        """Run one that waits for none of `_write`.

        Raises:
            CrossedError: Nothing was done, and it may be tried again.
        """


def not_open() -> StoreError:
    """Return the error of who did not open a store."""
    return StoreError("the store is not open; use `async with`, or call `open`")


def _pause(attempt: int) -> float:
    # Not twice at the same time as those that were in the way.
    longest: float = min(_SHORTEST * 2**attempt, _LONGEST)
    return random.uniform(0.5, 1.0) * longest  # noqa: S311


def _first_line(error: BaseException | None) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:300]
