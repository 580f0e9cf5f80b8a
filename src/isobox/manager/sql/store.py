"""The store in a database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from isobox.errors import BackendMissingError, InvalidArgumentError
from isobox.manager.records import State
from isobox.manager.sql import claims, due, holding, listing, lives
from isobox.manager.sql.address import Address, address
from isobox.manager.sql.sqlite import SqliteDatabase
from isobox.manager.store import Store

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from isobox.manager.records import Answer, Claim, Record, Tenant
    from isobox.manager.sql.database import Database


def _database(where: Address) -> Database:
    if where.dsn is None:
        return SqliteDatabase(where.path or "")
    try:
        from isobox.manager.sql.postgres import PostgresDatabase  # noqa: PLC0415
    except ImportError as error:
        raise BackendMissingError(
            "a store in PostgreSQL needs an extra: pip install 'isobox[postgres]'"
        ) from error
    return PostgresDatabase(where.shown, where.dsn)


class SqlStore(Store):
    """A store in a SQLite file of this host, or in PostgreSQL for several.

    Args:
        where: A path, `sqlite:///path`, or `postgresql://user@host/database`. The
            file, and a directory for it, are made where there are none, for their
            owner alone.

    Raises:
        InvalidArgumentError: It is none of these.
        BackendMissingError: The driver for it is not installed.
    """

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self._database = _database(address(where))
        #: Those that have beaten: one that is not known to the database has died.
        self._begun: set[str] = set()

    @override
    def __repr__(self) -> str:
        return f"SqlStore({self._database.shown!r})"

    @override
    async def open(self) -> None:
        await self._database.open()

    @override
    async def aclose(self) -> None:
        await self._database.aclose()

    @override
    async def time(self) -> float | None:
        if not self._database.has_clock:
            return None
        return await self._database.read(listing.clock)

    # -- holders --------------------------------------------------------------

    @override
    async def beat(
        self, holder: str, now: float, until: float, used: Mapping[str, float]
    ) -> tuple[str, ...] | None:
        first = holder not in self._begun
        wanted = await self._database.hurry(
            lambda c: holding.beat(c, holder, now, until, used, first=first)
        )
        if wanted is None:
            self._begun.discard(holder)
        else:
            self._begun.add(holder)
        return wanted

    @override
    async def wanted(self, holder: str) -> tuple[str, ...]:
        return await self._database.read(lambda c: holding.wanted(c, holder))

    @override
    async def leave(self, holder: str, now: float) -> None:
        await self._database.write(lambda c: holding.leave(c, holder))
        self._begun.discard(holder)

    @override
    async def holders(self, now: float) -> Sequence[str]:
        return await self._database.read(lambda c: listing.living(c, now))

    # -- workspaces -----------------------------------------------------------

    @override
    async def claim(self, claim: Claim, now: float) -> Answer:
        return await self._database.write(lambda c: claims.claim(c, claim, now))

    @override
    async def made(self, workspace_id: str, holder: str, now: float) -> bool:
        return await self._database.write(
            lambda c: lives.made(c, workspace_id, holder, now)
        )

    @override
    async def release(
        self, workspace_id: str, holder: str, now: float, used_at: float
    ) -> bool:
        return await self._database.write(
            lambda c: lives.release(c, workspace_id, holder, now, used_at)
        )

    @override
    async def closed(self, workspace_id: str, holder: str, now: float) -> None:
        await self._database.write(lambda c: lives.closed(c, workspace_id, holder, now))

    @override
    async def spare(self, record: Record, now: float) -> None:
        if len(record.holders) != 1 or record.key or record.tenant:
            raise InvalidArgumentError("a spare has one holder, no key and no tenant")
        entered = replace(record, state=State.SPARE, closed_at=None)
        await self._database.write(lambda c: lives.spare(c, entered, now))

    # -- what is due ----------------------------------------------------------

    @override
    async def abandoned(
        self, holder: str, now: float, *, idle_since: float, limit: int
    ) -> Sequence[Record]:
        return await self._database.write(
            lambda c: due.abandoned(c, holder, now, idle_since, limit)
        )

    @override
    async def forgotten(
        self, holder: str, now: float, *, closed_since: float | None, limit: int
    ) -> Sequence[Record]:
        return await self._database.write(
            lambda c: due.forgotten(c, holder, now, closed_since, limit)
        )

    @override
    async def delete(
        self, workspace_id: str, holder: str, now: float
    ) -> Record | Answer | None:
        return await self._database.write(
            lambda c: lives.delete(c, workspace_id, holder, now)
        )

    @override
    async def deleted(self, workspace_id: str, holder: str) -> None:
        await self._database.write(lambda c: lives.deleted(c, workspace_id, holder))

    # -- what there is --------------------------------------------------------

    @override
    async def find(self, workspace_id: str, now: float) -> Record | None:
        return await self._database.read(lambda c: listing.find(c, workspace_id, now))

    @override
    async def records(
        self,
        now: float,
        *,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        states: Sequence[State] = (),
        after: str | None = None,
        limit: int = 1000,
    ) -> Sequence[Record]:
        def page(connection: Connection) -> Sequence[Record]:
            return listing.records(
                connection,
                now,
                user=user,
                agent=agent,
                session=session,
                states=states,
                after=after,
                limit=limit,
            )

        return await self._database.read(page)

    @override
    async def counts(self, now: float) -> Mapping[State, int]:
        return await self._database.read(listing.counts)

    @override
    async def joined(self, workspace_id: str, tenant: Tenant, now: float) -> None:
        await self._database.write(lambda c: lives.joined(c, workspace_id, tenant))

    @override
    async def members(self, workspace_id: str) -> Sequence[Tenant]:
        return await self._database.read(lambda c: listing.members_of(c, workspace_id))

    @override
    async def left(self, workspace_id: str, tenant: Tenant) -> None:
        await self._database.write(lambda c: lives.left(c, workspace_id, tenant))

    @override
    async def adopt(self, record: Record, now: float) -> bool:
        state = State.LIVE if record.key else State.SPARE
        found = replace(record, state=state, holders=(), closed_at=None)
        return await self._database.write(lambda c: lives.adopt(c, found))
