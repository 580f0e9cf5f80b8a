"""A PostgreSQL server, for the processes of several hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from typing_extensions import override

from isobox.errors import StoreError
from isobox.manager.sql import schema
from isobox.manager.sql.database import CrossedError, Database, not_open
from isobox.manager.sql.through import Through

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

    from isobox.manager.sql.transaction import Transaction

_T = TypeVar("_T")

#: Seconds until a connection, a lock or a stopped process has cost enough.
_PATIENCE: Final = 15
_READERS: Final = 2
_WRITERS: Final = 5
#: Serialization failure, deadlock, and rows that somebody else made or removed in
#: the meantime.
_CROSSED: Final = frozenset(("40001", "40P01", "23505", "23503"))
#: Milliseconds after which the server ends what keeps others waiting, such as the
#: transaction of a process that was stopped.
_SESSION: Final = {
    "application_name": "isobox",
    "lock_timeout": str(_PATIENCE * 1000),
    "statement_timeout": str(2 * _PATIENCE * 1000),
    "idle_in_transaction_session_timeout": str(_PATIENCE * 1000),
}


class PostgresDatabase(Database):
    """A database of a server, which has a clock."""

    has_clock = True

    def __init__(self, shown: str, dsn: str) -> None:
        super().__init__(shown)
        self._reading = anyio.CapacityLimiter(_READERS)
        self._writing = anyio.CapacityLimiter(_WRITERS)
        self._hurrying = anyio.CapacityLimiter(1)
        self._dsn = dsn
        self._engine: AsyncEngine | None = None

    @override
    async def _open(self) -> None:
        if self._engine is not None:
            return
        engine = self._made()
        try:
            await _run(engine, schema.prepare)
        except BaseException:
            await engine.dispose()
            raise
        self._engine = engine

    @override
    async def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.dispose()

    @override
    async def _read(self, work: Callable[[Transaction], _T]) -> _T:
        return await self._once(work, self._reading)

    @override
    async def _write(self, work: Callable[[Transaction], _T]) -> _T:
        return await self._once(work, self._writing)

    @override
    async def _hurry(self, work: Callable[[Transaction], _T]) -> _T:
        return await self._once(work, self._hurrying)

    async def _once(
        self, work: Callable[[Transaction], _T], turn: anyio.CapacityLimiter
    ) -> _T:
        async with turn:
            if self._engine is None:
                raise not_open()
            return await _run(self._engine, lambda sync: work(Through(sync)))

    def _made(self) -> AsyncEngine:
        return create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            hide_parameters=True,
            pool_size=_READERS + _WRITERS + 1,
            max_overflow=0,
            pool_timeout=_PATIENCE,
            isolation_level="READ COMMITTED",
        )

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        try:
            return await asyncpg.connect(
                # What libpq's URLs can say is the driver's to read, not SQLAlchemy's.
                self._dsn,
                timeout=_PATIENCE,
                command_timeout=2 * _PATIENCE,
                server_settings=_SESSION,
            )
        except (asyncpg.ClientConfigurationError, ValueError, TypeError):
            # What it says may be a part of the password.
            raise StoreError(f"{self.shown}: its URL cannot be read") from None
        except asyncpg.PostgresError as error:
            raise StoreError(f"{self.shown}: {error}") from error


async def _run(engine: AsyncEngine, work: Callable[[Connection], _T]) -> _T:
    async with engine.begin() as connection:
        return await connection.run_sync(lambda sync: _uncrossed(work, sync))


def _uncrossed(work: Callable[[Connection], _T], connection: Connection) -> _T:
    """Return what `work` answers.

    Raises:
        CrossedError: The server refused it for now.
    """
    try:
        return work(connection)
    except DBAPIError as error:
        code = getattr(error.orig, "sqlstate", None)
        if error.connection_invalidated or code in _CROSSED:
            raise CrossedError from error
        raise
