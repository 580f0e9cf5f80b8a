"""A SQLite file. A transaction is short, and runs whole in one thread's turn."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from anyio import to_thread
from sqlalchemy import URL, create_engine, event
from sqlalchemy.exc import OperationalError
from typing_extensions import override

from isobox.manager.sql import files, schema
from isobox.manager.sql.database import CrossedError, Database, not_open, uncrossed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection

_T = TypeVar("_T")

#: Seconds that a writer waits for those of other processes.
_PATIENCE: Final = 15
_READERS: Final = 3
_WRITING: Final = "isobox_writing"


class SqliteDatabase(Database):
    """A file that the processes of one host share."""

    def __init__(self, path: str) -> None:
        # A file has one writer at a time; those of one process need not poll for it.
        super().__init__(path, readers=_READERS, writers=1)
        self._path = path
        self._engine: Engine | None = None

    @override
    async def _open(self) -> None:
        if self._engine is None:
            self._engine = await to_thread.run_sync(_ready, self._path)

    @override
    async def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await to_thread.run_sync(engine.dispose)

    @override
    async def _once(
        self, work: Callable[[Connection], _T], turn: anyio.CapacityLimiter
    ) -> _T:
        if self._engine is None:
            raise not_open()
        engine = self._engine.execution_options(**{_WRITING: turn is not self.reading})
        return await to_thread.run_sync(_run, engine, work, limiter=turn)


def _run(engine: Engine, work: Callable[[Connection], _T]) -> _T:
    with engine.begin() as connection:
        return uncrossed(work, connection)


def _ready(path: str) -> Engine:
    files.prepare(path)
    engine = create_engine(
        URL.create("sqlite", database=path),
        # Transactions begin as we say, not as the driver guesses.
        connect_args={"timeout": _PATIENCE, "isolation_level": None},
        hide_parameters=True,
        pool_size=_READERS + 2,
    )
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    try:
        _run(engine.execution_options(**{_WRITING: True}), schema.prepare)
    except BaseException as error:
        engine.dispose()
        if _is_busy(error):
            # Of several that turn to a new file, it lets only one pass at once.
            raise CrossedError from error
        raise
    return engine


def _is_busy(error: BaseException) -> bool:
    cause = error.orig if isinstance(error, OperationalError) else None
    return getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


def _set_up(connection: DBAPIConnection, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    # A crash of the machine may cost the last moments, never the file.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get(_WRITING)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
