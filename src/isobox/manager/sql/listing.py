"""What there is. Nothing changes; the dead are left out, not buried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Double, and_, cast, func, literal, select

from isobox.manager.records import Record, State, Tenant
from isobox.manager.sql import rows
from isobox.manager.sql.tables import holders, holds, members, workspaces
from isobox.manager.sql.text import digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Select

    from isobox.manager.sql.transaction import Row, Transaction

#: The most that a database counts to.
_MOST: Final = (1 << 63) - 1

_COUNTS: Final = select(workspaces.c.state, func.count().label("number")).group_by(
    workspaces.c.state
)


def clock(transaction: Transaction) -> float:
    """Return the time of a server's clock."""
    now = cast(func.extract("epoch", func.clock_timestamp()), Double)
    found: float = transaction.value(select(now))
    return found


def living(transaction: Transaction, now: float) -> Sequence[str]:
    """Return the holders that live."""
    alive = select(holders.c.holder).where(holders.c.until > now)
    return transaction.column(alive.order_by(holders.c.holder))


def find(transaction: Transaction, workspace_id: str, now: float) -> Record | None:
    """Return one workspace."""
    one = select(workspaces).where(workspaces.c.workspace_id == workspace_id)
    return next(iter(_recorded(transaction, one, now)), None)


def records(
    transaction: Transaction,
    now: float,
    *,
    user: str | None,
    agent: str | None,
    session: str | None,
    states: Sequence[State],
    after: str | None,
    limit: int,
) -> Sequence[Record]:
    """Return workspaces by their id."""
    found = select(workspaces)
    if user is not None:
        found = found.where(workspaces.c.user_digest == digest(user))
    if agent is not None:
        found = found.where(workspaces.c.agent_id == agent)
    if session is not None:
        found = found.where(workspaces.c.session_id == session)
    if states:
        found = found.where(
            workspaces.c.state.in_([literal(one.value) for one in states])
        )
    if after is not None:
        found = found.where(workspaces.c.workspace_id > after)
    page = found.order_by(workspaces.c.workspace_id).limit(min(max(limit, 0), _MOST))
    return _recorded(transaction, page, now)


def _recorded(transaction: Transaction, found: Select[Any], now: float) -> list[Record]:
    each = found.subquery()
    its = holds.c.workspace_id == each.c.workspace_id
    alive = and_(holders.c.holder == holds.c.holder, holders.c.until > now)
    ordered = (
        select(each, holders.c.holder)
        .select_from(each.outerjoin(holds, its).outerjoin(holders, alive))
        .order_by(each.c.workspace_id, holders.c.holder)
    )
    rows_by_id: dict[str, list[Row]] = {}
    for row in transaction.rows(ordered):
        rows_by_id.setdefault(row["workspace_id"], []).append(row)
    return [_together(several) for several in rows_by_id.values()]


def _together(several: Sequence[Row]) -> Record:
    its = [row["holder"] for row in several if row["holder"] is not None]
    return rows.record(several[0], its)


def counts(transaction: Transaction) -> Mapping[State, int]:
    """Return how many workspaces are in each state."""
    found = {row["state"]: row["number"] for row in transaction.rows(_COUNTS)}
    return {state: found.get(state.value, 0) for state in State}


def members_of(transaction: Transaction, workspace_id: str) -> Sequence[Tenant]:
    """Return who used a workspace."""
    its = select(members).where(members.c.workspace_id == workspace_id)
    found = transaction.rows(its.order_by(members.c.member))
    return [rows.tenant(row) for row in found]


def joined_by(transaction: Transaction, whose: Tenant) -> Sequence[str]:
    """Return what an agent, or one session of it, used."""
    its = members.c
    found = select(its.workspace_id).where(
        its.user_id == whose.user, its.agent_id == whose.agent
    )
    if whose.session is not None:
        found = found.where(its.session_id == whose.session)
    return transaction.column(found.distinct().order_by(its.workspace_id))
