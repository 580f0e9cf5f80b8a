"""The store in a database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from isobox.errors import BackendMissingError, InvalidArgumentError
from isobox.manager.records import State
from isobox.manager.sql import claims, deployments, due, holding, listing, lives
from isobox.manager.sql.address import Address, address
from isobox.manager.sql.sqlite import SqliteDatabase
from isobox.manager.store import Store

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from isobox.manager.records import Answer, Claim, Deployment, Record, Tenant
    from isobox.manager.sql.database import Database
    from isobox.manager.sql.transaction import Transaction


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

    # -- where it belongs ------------------------------------------------------

    @override
    async def deployment(self) -> Deployment | None:
        return await self._database.read(deployments.found)

    @override
    async def deploy(self, deployment: Deployment) -> Deployment:
        return await self._database.write(lambda t: deployments.entered(t, deployment))

    # -- holders --------------------------------------------------------------

    @override
    async def beat(
        self, holder: str, now: float, until: float, used: Mapping[str, float]
    ) -> tuple[str, ...] | None:
        first = holder not in self._begun
        wanted = await self._database.hurry(
            lambda t: holding.beat(t, holder, now, until, used, first=first)
        )
        if wanted is None:
            self._begun.discard(holder)
        else:
            self._begun.add(holder)
        return wanted

    @override
    async def wanted(self, holder: str) -> tuple[str, ...]:
        return await self._database.read(lambda t: holding.wanted(t, holder))

    @override
    async def leave(self, holder: str, now: float) -> None:
        await self._database.write(lambda t: holding.leave(t, holder))
        self._begun.discard(holder)

    @override
    async def holders(self, now: float) -> Sequence[str]:
        return await self._database.read(lambda t: listing.living(t, now))

    # -- workspaces -----------------------------------------------------------

    @override
    async def claim(self, claim: Claim, now: float) -> Answer:
        return await self._database.write(lambda t: claims.claim(t, claim, now))

    @override
    async def made(self, workspace_id: str, holder: str, now: float) -> bool:
        return await self._database.write(
            lambda t: lives.made(t, workspace_id, holder, now)
        )

    @override
    async def release(
        self, workspace_id: str, holder: str, now: float, used_at: float
    ) -> bool:
        return await self._database.write(
            lambda t: lives.release(t, workspace_id, holder, now, used_at)
        )

    @override
    async def closed(self, workspace_id: str, holder: str, now: float) -> None:
        await self._database.write(lambda t: lives.closed(t, workspace_id, holder, now))

    @override
    async def begin(self, record: Record, now: float, most: int | None) -> bool:
        entered = _nobodys(record, State.MAKING)
        return await self._database.write(lambda t: lives.begin(t, entered, now, most))

    @override
    async def spare(self, record: Record, now: float) -> None:
        entered = _nobodys(record, State.SPARE)
        await self._database.write(lambda t: lives.spare(t, entered, now))

    # -- what is due ----------------------------------------------------------

    @override
    async def abandoned(
        self, holder: str, now: float, *, idle_since: float, limit: int
    ) -> Sequence[Record]:
        return await self._database.write(
            lambda t: due.abandoned(t, holder, now, idle_since, limit)
        )

    @override
    async def forgotten(
        self, holder: str, now: float, *, closed_since: float | None, limit: int
    ) -> Sequence[Record]:
        return await self._database.write(
            lambda t: due.forgotten(t, holder, now, closed_since, limit)
        )

    @override
    async def delete(
        self, workspace_id: str, holder: str, now: float, *, place: str | None = None
    ) -> Record | Answer | None:
        return await self._database.write(
            lambda t: lives.delete(t, workspace_id, holder, now, place)
        )

    @override
    async def deleted(self, workspace_id: str, holder: str) -> None:
        await self._database.write(lambda t: lives.deleted(t, workspace_id, holder))

    # -- what there is --------------------------------------------------------

    @override
    async def find(self, workspace_id: str, now: float) -> Record | None:
        return await self._database.read(lambda t: listing.find(t, workspace_id, now))

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
        def page(transaction: Transaction) -> Sequence[Record]:
            return listing.records(
                transaction,
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
        await self._database.write(lambda t: lives.joined(t, workspace_id, tenant))

    @override
    async def members(self, workspace_id: str) -> Sequence[Tenant]:
        return await self._database.read(lambda t: listing.members_of(t, workspace_id))

    @override
    async def joined_by(self, whose: Tenant) -> Sequence[str]:
        return await self._database.read(lambda t: listing.joined_by(t, whose))

    @override
    async def left(self, workspace_id: str, tenant: Tenant) -> None:
        await self._database.write(lambda t: lives.left(t, workspace_id, tenant))

    @override
    async def adopt(self, record: Record, now: float) -> bool:
        state = State.LIVE if record.key else State.SPARE
        found = replace(record, state=state, holders=(), closed_at=None)
        return await self._database.write(lambda t: lives.adopt(t, found))


def _nobodys(record: Record, state: State) -> Record:
    if len(record.holders) != 1 or record.key or record.tenant:
        raise InvalidArgumentError("a spare has one holder, no key and no tenant")
    return replace(record, state=state, closed_at=None)
