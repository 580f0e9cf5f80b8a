"""A PostgreSQL server, for the processes of several hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import asyncpg
from sqlalchemy.ext.asyncio import create_async_engine
from typing_extensions import override

from isobox.errors import StoreError
from isobox.manager.sql import schema
from isobox.manager.sql.database import Database, not_open, uncrossed

if TYPE_CHECKING:
    from collections.abc import Callable

    import anyio
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

_T = TypeVar("_T")

#: Seconds until a connection, a lock or a stopped process has cost enough.
_PATIENCE: Final = 15
_READERS: Final = 2
_WRITERS: Final = 5
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
        super().__init__(shown, readers=_READERS, writers=_WRITERS)
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
    async def _once(
        self, work: Callable[[Connection], _T], turn: anyio.CapacityLimiter
    ) -> _T:
        async with turn:
            if self._engine is None:
                raise not_open()
            return await _run(self._engine, work)

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
        return await connection.run_sync(lambda sync: uncrossed(work, sync))
