"""What is to be closed or deleted, and who does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import ColumnElement, and_, false, select, update

from isobox.manager.records import Record, State
from isobox.manager.sql import holding, rows
from isobox.manager.sql.tables import workspaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Column, Connection, RowMapping

#: Workspaces that one call takes at most.
_MOST: Final = 500


def abandoned(
    connection: Connection, holder: str, now: float, idle_since: float, limit: int
) -> Sequence[Record]:
    """Take over what nobody has and is idle, or was not finished.

    Raises:
        HolderExpiredError: The holder is dead.
    """
    holding.require(connection, holder, now)
    used_at = workspaces.c.used_at
    idle = and_(_unheld(State.LIVE), used_at < idle_since)
    unfinished = [_unheld(one) for one in (State.MAKING, State.CLOSING, State.SPARE)]
    found = _longest(connection, (idle, *unfinished), used_at, limit)
    spares = [row for row in found if row["state"] == State.SPARE.value]
    others = [row for row in found if row["state"] != State.SPARE.value]
    return [
        *_take(connection, others, holder, State.CLOSING),
        *_take(connection, spares, holder, State.DELETING),
    ]


def forgotten(
    connection: Connection,
    holder: str,
    now: float,
    closed_since: float | None,
    limit: int,
) -> Sequence[Record]:
    """Take over what is to be deleted.

    Raises:
        HolderExpiredError: The holder is dead.
    """
    holding.require(connection, holder, now)
    closed_at = workspaces.c.closed_at
    half = _longest(connection, [_unheld(State.DELETING)], workspaces.c.used_at, limit)
    old: list[RowMapping] = []
    if closed_since is not None:
        closed = and_(
            workspaces.c.state == State.CLOSED.value, closed_at < closed_since
        )
        old = _longest(connection, [closed], closed_at, limit - len(half))
    return _take(connection, [*half, *old], holder, State.DELETING)


def _unheld(state: State) -> ColumnElement[bool]:
    return and_(workspaces.c.held == false(), workspaces.c.state == state.value)


def _longest(
    connection: Connection,
    which: Iterable[ColumnElement[bool]],
    since: Column[float] | Column[float | None],
    limit: int,
) -> list[RowMapping]:
    """Return those that are longest so, their rows locked; others' are left out."""
    most = min(max(limit, 0), _MOST)
    found: list[RowMapping] = []
    # Each by itself, because an index has each in order but not all of them.
    for one in which:
        longest = select(workspaces).where(one).order_by(since).limit(most)
        locked = longest.with_for_update(skip_locked=True)
        found += connection.execute(locked).mappings().all()
    return sorted(found, key=lambda row: row[since.name])[:most]


def _take(
    connection: Connection,
    found: Sequence[RowMapping],
    holder: str,
    state: State,
) -> list[Record]:
    if not found:
        return []
    ids = [row["workspace_id"] for row in found]
    these = update(workspaces).where(workspaces.c.workspace_id.in_(ids))
    connection.execute(these.values(state=state.value, held=True))
    holding.hold(connection, ids, holder)
    taken = {"state": state.value}
    return [rows.record({**row, **taken}, [holder]) for row in found]
