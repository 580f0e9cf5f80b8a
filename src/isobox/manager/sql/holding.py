"""Who holds what. A holder that is dead is buried by whoever looks next.

Every change of a workspace's holders happens while its row is locked, and every
new hold while its holder's row is, so that none is left to a holder that is gone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ColumnElement,
    Double,
    bindparam,
    delete,
    exists,
    insert,
    select,
    update,
)

from isobox.errors import HolderExpiredError
from isobox.manager.sql.tables import holders, holds, workspaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection, RowMapping
    from sqlalchemy.sql.dml import ReturningUpdate

#: Statements of every call, made once: to make one takes as long as to run it.
_DEAD: Final = (
    select(holders.c.holder)
    .where(holders.c.until <= bindparam("now", type_=Double))
    .order_by(holders.c.holder)
    .with_for_update()
)
_ONE: Final = select(holders.c.holder).where(holders.c.holder == bindparam("its"))
_STAYING: Final = _ONE.with_for_update(read=True, key_share=True)
_LEAVING: Final = _ONE.with_for_update()
_HOLDERS: Final = (
    select(holds.c.holder)
    .where(holds.c.workspace_id == bindparam("its"))
    .order_by(holds.c.holder)
)
_LOCKED: Final = (
    select(workspaces)
    .where(workspaces.c.workspace_id == bindparam("its"))
    .with_for_update()
)
_LOCKED_OF: Final = (
    select(workspaces).where(workspaces.c.key == bindparam("its")).with_for_update()
)
_HOLD: Final = insert(holds)
_LET_GO: Final = delete(holds).where(
    holds.c.workspace_id == bindparam("its"), holds.c.holder == bindparam("whose")
)
_TELL: Final = (
    update(holds)
    .where(holds.c.workspace_id == bindparam("its"), ~holds.c.wanted)
    .values(wanted=True)
)
_WANTED: Final = select(holds.c.workspace_id).where(
    holds.c.holder == bindparam("whose"), holds.c.wanted
)
_KEEP: Final = (
    update(holders)
    .where(holders.c.holder == bindparam("whose"))
    .values(until=bindparam("new_until"))
)


@cache
def _changing(names: tuple[str, ...]) -> ReturningUpdate[Any]:
    new = {
        name: bindparam(f"new_{name}", type_=workspaces.c[name].type) for name in names
    }
    its = workspaces.c.workspace_id == bindparam("its")
    return update(workspaces).where(its).values(new).returning(*workspaces.c)


def bury(connection: Connection, now: float) -> None:
    """Forget the holders that have died; what they held is held by nobody."""
    for holder in connection.scalars(_DEAD, {"now": now}).all():
        forget(connection, holder)


def leave(connection: Connection, holder: str) -> None:
    """Forget a holder, once what it is being given right now is given."""
    connection.execute(_LEAVING, {"its": holder})
    forget(connection, holder)


def forget(connection: Connection, holder: str) -> None:
    """Forget a holder whose row is locked; what it held its others hold, or nobody."""
    its = select(holds.c.workspace_id).where(holds.c.holder == holder)
    mine = workspaces.c.workspace_id.in_(its)
    _lock(connection, mine)
    others = exists().where(
        holds.c.workspace_id == workspaces.c.workspace_id, holds.c.holder != holder
    )
    connection.execute(update(workspaces).where(mine).values(held=others))
    connection.execute(delete(holds).where(holds.c.holder == holder))
    connection.execute(delete(holders).where(holders.c.holder == holder))


def _lock(connection: Connection, which: ColumnElement[bool]) -> None:
    if connection.dialect.name == "postgresql":
        ids = select(workspaces.c.workspace_id).where(which)
        ordered = ids.order_by(workspaces.c.workspace_id).with_for_update()
        connection.execute(ordered)


def require(connection: Connection, holder: str, now: float) -> None:
    """Bury the dead, and make sure that this holder is none of them until the end.

    Raises:
        HolderExpiredError: It is, or never beat.
    """
    bury(connection, now)
    if connection.scalar(_STAYING, {"its": holder}) is None:
        raise HolderExpiredError(
            f"the store takes the holder {holder!a:.200} for dead: it has to beat first"
        )


def beat(
    connection: Connection,
    holder: str,
    now: float,
    until: float,
    used: Mapping[str, float],
    *,
    first: bool,
) -> tuple[str, ...] | None:
    """Keep a holder alive; None if it had died. Only the first beat makes one."""
    bury(connection, now)
    kept = connection.execute(_KEEP, {"whose": holder, "new_until": until})
    if not kept.rowcount:
        if not first:
            return None
        connection.execute(insert(holders).values(holder=holder, until=until))
    _use(connection, holder, used)
    return wanted(connection, holder)


def _use(connection: Connection, holder: str, used: Mapping[str, float]) -> None:
    if not used:
        return
    its = exists().where(
        holds.c.workspace_id == workspaces.c.workspace_id, holds.c.holder == holder
    )
    later = update(workspaces).where(
        workspaces.c.workspace_id == bindparam("which"),
        workspaces.c.used_at < bindparam("when"),
        its,
    )
    # In one order, so that two of them do not wait for each other.
    rows = [{"which": one, "when": used[one]} for one in sorted(used)]
    connection.execute(later.values(used_at=bindparam("when")), rows)


def wanted(connection: Connection, holder: str) -> tuple[str, ...]:
    """Return the workspaces of a holder that others wait for."""
    return tuple(connection.scalars(_WANTED, {"whose": holder}))


def tell(connection: Connection, workspace_id: str) -> None:
    """Tell those that hold a workspace that somebody waits for it."""
    connection.execute(_TELL, {"its": workspace_id})


def holders_of(connection: Connection, workspace_id: str) -> tuple[str, ...]:
    """Return who holds a workspace whose row is locked."""
    return tuple(connection.scalars(_HOLDERS, {"its": workspace_id}))


def hold(connection: Connection, workspace_ids: Iterable[str], holder: str) -> None:
    """Enter a holder of workspaces whose rows are locked and that it has not yet."""
    rows = [
        {"workspace_id": one, "holder": holder, "wanted": False}
        for one in workspace_ids
    ]
    if rows:
        connection.execute(_HOLD, rows)


def let_go(connection: Connection, workspace_id: str, holder: str) -> None:
    """Take a holder from a workspace whose row is locked."""
    connection.execute(_LET_GO, {"its": workspace_id, "whose": holder})


def locked(connection: Connection, workspace_id: str) -> RowMapping | None:
    """Return a workspace's row, which nobody else changes until the end."""
    found = connection.execute(_LOCKED, {"its": workspace_id})
    return found.mappings().one_or_none()


def locked_of(connection: Connection, key: str) -> RowMapping | None:
    """Return the row of a tenant's workspace, which nobody else changes then."""
    found = connection.execute(_LOCKED_OF, {"its": key})
    return found.mappings().one_or_none()


def change(connection: Connection, workspace_id: str, **columns: object) -> RowMapping:
    """Change a workspace's row and return it as it is then."""
    new = {f"new_{name}": value for name, value in columns.items()}
    changed = connection.execute(
        _changing(tuple(columns)), {"its": workspace_id, **new}
    )
    return changed.mappings().one()
