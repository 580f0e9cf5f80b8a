"""A SQLite file, for the processes of one host."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from anyio import to_thread
from sqlalchemy import URL, NullPool, create_engine
from sqlalchemy.exc import OperationalError
from typing_extensions import override

from isobox.errors import StoreError
from isobox.manager.sql import files, schema
from isobox.manager.sql.database import CrossedError, Database, not_open
from isobox.manager.sql.direct import Direct
from isobox.manager.sql.lane import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox.manager.sql.transaction import Transaction

_T = TypeVar("_T")

#: Seconds that a writer waits for those of other processes.
_PATIENCE: Final = 15
_READERS: Final = 3


class SqliteDatabase(Database):
    """A file that the processes of one host share."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = path
        self._lanes: _Lanes | None = None

    @override
    async def _open(self) -> None:
        if self._lanes is None:
            await to_thread.run_sync(_prepare, self._path)
            self._about = os.stat(self._path)
            self._lanes = _Lanes.of(self._path)

    @override
    async def _close(self) -> None:
        lanes, self._lanes = self._lanes, None
        if lanes is not None:
            await to_thread.run_sync(lanes.end)

    @override
    async def _read(self, work: Callable[[Transaction], _T]) -> _T:
        return await self._opened().reading.do(partial(_run, "BEGIN", work))

    @override
    async def _write(self, work: Callable[[Transaction], _T]) -> _T:
        return await self._opened().writing.do(partial(_run, "BEGIN IMMEDIATE", work))

    @override
    async def _hurry(self, work: Callable[[Transaction], _T]) -> _T:
        return await self._opened().hurrying.do(partial(_run, "BEGIN IMMEDIATE", work))

    def _opened(self) -> _Lanes:
        if self._lanes is None:
            raise not_open()
        # Others would make a new one, and know nothing of what is said in this.
        if not os.path.samestat(os.stat(self._path), self._about):
            raise StoreError(f"{self._path} was replaced: start its processes again")
        return self._lanes


@dataclass(frozen=True, slots=True)
class _Lanes:
    reading: Lane[sqlite3.Connection]
    #: A file has one writer at a time; those of one process need not poll for it.
    writing: Lane[sqlite3.Connection]
    hurrying: Lane[sqlite3.Connection]

    @classmethod
    def of(cls, path: str) -> _Lanes:
        def lane(threads: int) -> Lane[sqlite3.Connection]:
            return Lane(
                threads,
                acquire=partial(_connect, path),
                release=sqlite3.Connection.close,
            )

        return cls(reading=lane(_READERS), writing=lane(1), hurrying=lane(1))

    def end(self) -> None:
        for lane in (self.reading, self.writing, self.hurrying):
            lane.end()


def _run(
    begin: str, work: Callable[[Transaction], _T], connection: sqlite3.Connection
) -> _T:
    connection.execute(begin)
    try:
        answer = work(Direct(connection))
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    return answer


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=_PATIENCE,
        # Transactions begin as we say, not as the driver guesses.
        isolation_level=None,
        # One at a time has it, whichever that is.
        check_same_thread=False,
    )
    connection.execute("PRAGMA journal_mode = WAL")
    # A crash of the machine may cost the last moments, never the file.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _prepare(path: str) -> None:
    """Have the file and its tables.

    Raises:
        CrossedError: Others are at it.
        StoreError: It cannot be used.
    """
    files.prepare(path)
    engine = create_engine(
        URL.create("sqlite", database=path),
        creator=partial(_connect, path),
        hide_parameters=True,
        poolclass=NullPool,
    )
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            schema.prepare(connection)
            connection.commit()
    except OperationalError as error:
        if _is_busy(error.orig):
            # Of several that turn to a new file, it lets only one pass at once.
            raise CrossedError from error
        raise
    finally:
        engine.dispose()


def _is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
