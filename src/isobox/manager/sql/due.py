"""What is to be closed or deleted, and who does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Double, Integer, bindparam, false, select, update

from isobox.manager.records import Record, State
from isobox.manager.sql import holding, rows
from isobox.manager.sql.tables import workspaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column, ColumnElement, Select

    from isobox.manager.sql.transaction import Row, Transaction

#: Workspaces that one call takes at most.
_MOST: Final = 500


def _longest(since: Column[Any], *which: ColumnElement[bool]) -> Select[Any]:
    """Return what finds those that are longest so, and locks what others have not."""
    ordered = select(workspaces).where(*which).order_by(since)
    most = ordered.limit(bindparam("most", type_=Integer))
    return most.with_for_update(skip_locked=True)


def _unheld(state: State, *which: ColumnElement[bool]) -> Select[Any]:
    its = workspaces.c
    return _longest(its.used_at, its.held == false(), its.state == state.value, *which)


_BEFORE: Final = bindparam("before", type_=Double)
_IDLE: Final = _unheld(State.LIVE, workspaces.c.used_at < _BEFORE)
#: Each by itself, because an index has each in order but not all of them.
_UNFINISHED: Final = tuple(
    _unheld(one) for one in (State.MAKING, State.CLOSING, State.SPARE)
)
_HALF: Final = _unheld(State.DELETING)
_OLD: Final = _longest(
    workspaces.c.closed_at,
    workspaces.c.state == State.CLOSED.value,
    workspaces.c.closed_at < _BEFORE,
)
_TAKE: Final = (
    update(workspaces)
    .where(workspaces.c.workspace_id == bindparam("its"))
    .values(state=bindparam("new_state"), held=True)
)


def abandoned(
    transaction: Transaction, holder: str, now: float, idle_since: float, limit: int
) -> Sequence[Record]:
    """Take over what nobody has and is idle, or was not finished.

    Raises:
        HolderExpiredError: The holder is dead.
    """
    holding.require(transaction, holder, now)
    most = _bounded(limit)
    found = list(transaction.rows(_IDLE, {"before": idle_since, "most": most}))
    for one in _UNFINISHED:
        found += transaction.rows(one, {"most": most})
    found = sorted(found, key=lambda row: row["used_at"])[:most]
    # Those that were still being made are nobody's either.
    spares = [row for row in found if row["key"] is None]
    others = [row for row in found if row["key"] is not None]
    return [
        *_take(transaction, others, holder, State.CLOSING),
        *_take(transaction, spares, holder, State.DELETING),
    ]


def forgotten(
    transaction: Transaction,
    holder: str,
    now: float,
    closed_since: float | None,
    limit: int,
) -> Sequence[Record]:
    """Take over what is to be deleted.

    Raises:
        HolderExpiredError: The holder is dead.
    """
    holding.require(transaction, holder, now)
    found = list(transaction.rows(_HALF, {"most": _bounded(limit)}))
    if closed_since is not None:
        left = {"before": closed_since, "most": _bounded(limit - len(found))}
        found += transaction.rows(_OLD, left)
    return _take(transaction, found, holder, State.DELETING)


def _bounded(limit: int) -> int:
    return min(max(limit, 0), _MOST)


def _take(
    transaction: Transaction, found: Sequence[Row], holder: str, state: State
) -> list[Record]:
    ids = [row["workspace_id"] for row in found]
    taken = [{"its": one, "new_state": state.value} for one in ids]
    transaction.change_each(_TAKE, taken)
    holding.hold(transaction, ids, holder)
    return [rows.record({**row, "state": state.value}, [holder]) for row in found]
