"""Who holds what. A holder that is dead is buried by whoever looks next.

Every change of a workspace's holders happens while its row is locked, and every
new hold while its holder's row is, so that none is left to a holder that is gone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
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

    from sqlalchemy import Update
    from sqlalchemy.sql.dml import ReturningUpdate

    from isobox.manager.sql.transaction import Row, Transaction

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

_BEGIN: Final = insert(holders)
_MINE: Final = workspaces.c.workspace_id.in_(
    select(holds.c.workspace_id).where(holds.c.holder == bindparam("whose"))
)
_LOCK_MINE: Final = (
    select(workspaces.c.workspace_id)
    .where(_MINE)
    .order_by(workspaces.c.workspace_id)
    .with_for_update()
)
_MINE_TO_OTHERS: Final = (
    update(workspaces)
    .where(_MINE)
    .values(
        held=exists().where(
            holds.c.workspace_id == workspaces.c.workspace_id,
            holds.c.holder != bindparam("whose"),
        )
    )
)
_NO_HOLDS: Final = delete(holds).where(holds.c.holder == bindparam("whose"))
_NO_HOLDER: Final = delete(holders).where(holders.c.holder == bindparam("whose"))
_USED: Final = (
    update(workspaces)
    .where(
        workspaces.c.workspace_id == bindparam("its"),
        workspaces.c.used_at < bindparam("when"),
        exists().where(
            holds.c.workspace_id == workspaces.c.workspace_id,
            holds.c.holder == bindparam("whose"),
        ),
    )
    .values(used_at=bindparam("when"))
)


@cache
def _changing(names: tuple[str, ...]) -> Update:
    new = {
        name: bindparam(f"new_{name}", type_=workspaces.c[name].type) for name in names
    }
    its = workspaces.c.workspace_id == bindparam("its")
    return update(workspaces).where(its).values(new)


@cache
def _changed(names: tuple[str, ...]) -> ReturningUpdate[Any]:
    return _changing(names).returning(*workspaces.c)


def bury(transaction: Transaction, now: float) -> None:
    """Forget the holders that have died; what they held is held by nobody."""
    for holder in transaction.column(_DEAD, {"now": now}):
        forget(transaction, holder)


def leave(transaction: Transaction, holder: str) -> None:
    """Forget a holder, once what it is being given right now is given."""
    transaction.rows(_LEAVING, {"its": holder})
    forget(transaction, holder)


def forget(transaction: Transaction, holder: str) -> None:
    """Forget a holder whose row is locked; what it held its others hold, or nobody."""
    whose = {"whose": holder}
    if transaction.dialect == "postgresql":
        transaction.rows(_LOCK_MINE, whose)
    for forgotten in (_MINE_TO_OTHERS, _NO_HOLDS, _NO_HOLDER):
        transaction.change(forgotten, whose)


def require(transaction: Transaction, holder: str, now: float) -> None:
    """Bury the dead, and make sure that this holder is none of them until the end.

    Raises:
        HolderExpiredError: It is, or never beat.
    """
    bury(transaction, now)
    if transaction.value(_STAYING, {"its": holder}) is None:
        raise HolderExpiredError(
            f"the store takes the holder {holder!a:.200} for dead: it has to beat first"
        )


def beat(
    transaction: Transaction,
    holder: str,
    now: float,
    until: float,
    used: Mapping[str, float],
    *,
    first: bool,
) -> tuple[str, ...] | None:
    """Keep a holder alive; None if it had died. Only the first beat makes one."""
    bury(transaction, now)
    if not transaction.change(_KEEP, {"whose": holder, "new_until": until}):
        if not first:
            return None
        transaction.change(_BEGIN, {"holder": holder, "until": until})
    _use(transaction, holder, used)
    return wanted(transaction, holder)


def _use(transaction: Transaction, holder: str, used: Mapping[str, float]) -> None:
    # In one order, so that two of them do not wait for each other.
    rows = [{"its": one, "when": used[one], "whose": holder} for one in sorted(used)]
    transaction.change_each(_USED, rows)


def wanted(transaction: Transaction, holder: str) -> tuple[str, ...]:
    """Return the workspaces of a holder that others wait for."""
    return tuple(transaction.column(_WANTED, {"whose": holder}))


def tell(transaction: Transaction, workspace_id: str) -> None:
    """Tell those that hold a workspace that somebody waits for it."""
    transaction.change(_TELL, {"its": workspace_id})


def holders_of(transaction: Transaction, workspace_id: str) -> tuple[str, ...]:
    """Return who holds a workspace whose row is locked."""
    return tuple(transaction.column(_HOLDERS, {"its": workspace_id}))


def hold(transaction: Transaction, workspace_ids: Iterable[str], holder: str) -> None:
    """Enter a holder of workspaces whose rows are locked and that it has not yet."""
    rows = [
        {"workspace_id": one, "holder": holder, "wanted": False}
        for one in workspace_ids
    ]
    transaction.change_each(_HOLD, rows)


def let_go(transaction: Transaction, workspace_id: str, holder: str) -> None:
    """Take a holder from a workspace whose row is locked."""
    transaction.change(_LET_GO, {"its": workspace_id, "whose": holder})


def locked(transaction: Transaction, workspace_id: str) -> Row | None:
    """Return a workspace's row, which nobody else changes until the end."""
    return transaction.row(_LOCKED, {"its": workspace_id})


def locked_of(transaction: Transaction, key: str) -> Row | None:
    """Return the row of a tenant's workspace, which nobody else changes then."""
    return transaction.row(_LOCKED_OF, {"its": key})


def change(transaction: Transaction, workspace_id: str, **columns: object) -> Row:
    """Change a workspace's row and return it as it is then."""
    (changed,) = transaction.rows(_changed(tuple(columns)), _new(workspace_id, columns))
    return changed


def alter(transaction: Transaction, workspace_id: str, **columns: object) -> None:
    """Change a workspace's row."""
    transaction.change(_changing(tuple(columns)), _new(workspace_id, columns))


def _new(workspace_id: str, columns: Mapping[str, object]) -> dict[str, object]:
    return {"its": workspace_id, **{f"new_{name}": columns[name] for name in columns}}
