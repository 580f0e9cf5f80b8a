"""Whose a workspace becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, exists, insert, select

from isobox.errors import InvalidArgumentError, StoreError
from isobox.manager.records import Granted, Held, Record, State
from isobox.manager.sql import holding, quotas, rows
from isobox.manager.sql.database import CrossedError
from isobox.manager.sql.tables import holds, workspaces

if TYPE_CHECKING:
    from isobox.manager.records import Answer, Claim
    from isobox.manager.sql.transaction import Row, Transaction

#: The states of what its holder has open.
_OPEN: Final = frozenset((State.MAKING, State.LIVE))

_ENTER: Final = insert(workspaces)
_SPARE: Final = (
    select(workspaces.c.workspace_id)
    .where(
        workspaces.c.held,
        workspaces.c.state == State.SPARE.value,
        workspaces.c.backend == bindparam("backend"),
        exists().where(
            holds.c.workspace_id == workspaces.c.workspace_id,
            holds.c.holder == bindparam("whose"),
        ),
    )
    .order_by(workspaces.c.used_at)
    .limit(1)
    .with_for_update(skip_locked=True)
)


def claim(transaction: Transaction, asked: Claim, now: float) -> Answer:
    """Give a tenant's workspace to a holder, if it can be given.

    Raises:
        HolderExpiredError: The holder is dead.
        InvalidArgumentError: The workspace is of another backend.
        StoreError: Its row is not one that this version writes.
    """
    quotas.count_alone(transaction, asked)
    holding.require(transaction, asked.holder, now)
    row = holding.locked_of(transaction, asked.key)
    if row is None:
        return _first(transaction, asked, now)
    return _again(transaction, asked, now, recorded(transaction, row))


def recorded(transaction: Transaction, row: Row) -> Record:
    """Return the record of a row that is locked.

    Raises:
        StoreError: It is none that this version writes.
    """
    its = holding.holders_of(transaction, row["workspace_id"])
    return rows.record(row, its)


def _again(transaction: Transaction, asked: Claim, now: float, found: Record) -> Answer:
    if found.backend != asked.backend:
        raise InvalidArgumentError(
            f"workspace {found.workspace_id} is of the backend {found.backend!a:.40}, "
            f"not {asked.backend!a:.40}: delete it, or use another store"
        )
    if asked.holder in found.holders and found.state in _OPEN:
        return Granted(record=found, new=False)
    if found.holders and asked.shared and found.state is State.LIVE:
        return Granted(record=_joined(transaction, asked, found), new=False)
    if found.holders or found.state is State.DELETING:
        return held(transaction, found)
    if full := quotas.reached(transaction, asked, more=True):
        return full
    return Granted(
        record=_making(transaction, asked, found.workspace_id, now), new=False
    )


def held(transaction: Transaction, found: Record) -> Held:
    """Tell a workspace's holders that somebody waits, and say who they are."""
    holding.tell(transaction, found.workspace_id)
    return Held(holder=next(iter(found.holders), ""), state=found.state)


def _joined(transaction: Transaction, asked: Claim, found: Record) -> Record:
    holding.hold(transaction, [found.workspace_id], asked.holder)
    everyone = sorted({*found.holders, asked.holder})
    return replace(found, holders=tuple(everyone))


def _first(transaction: Transaction, asked: Claim, now: float) -> Answer:
    spare = _spare(transaction, asked) if asked.spare else None
    if full := quotas.reached(transaction, asked, more=spare is None):
        return full
    if spare is None:
        return Granted(record=_new(transaction, asked, now), new=True)
    tenant = {"key": asked.key, **rows.of_tenant(asked.tenant)}
    made = _making(transaction, asked, spare, now, **tenant)
    return Granted(record=made, new=False, spare=True)


def _spare(transaction: Transaction, asked: Claim) -> str | None:
    """Return this holder's oldest spare, its row locked."""
    its = {"whose": asked.holder, "backend": asked.backend}
    found: str | None = transaction.value(_SPARE, its)
    return found


def _making(
    transaction: Transaction,
    asked: Claim,
    workspace_id: str,
    now: float,
    **columns: object,
) -> Record:
    row = holding.change(
        transaction,
        workspace_id,
        state=State.MAKING.value,
        held=True,
        used_at=now,
        closed_at=None,
        **columns,
    )
    holding.let_go(transaction, workspace_id, asked.holder)
    holding.hold(transaction, [workspace_id], asked.holder)
    return rows.record(row, [asked.holder])


def _new(transaction: Transaction, asked: Claim, now: float) -> Record:
    made = Record(
        workspace_id=asked.workspace_id,
        key=asked.key,
        tenant=asked.tenant,
        backend=asked.backend,
        place=asked.place,
        state=State.MAKING,
        holders=(asked.holder,),
        created_at=now,
        used_at=now,
        options=asked.options,
    )
    enter(transaction, made)
    return made


def enter(transaction: Transaction, record: Record) -> None:
    """Enter a workspace that is not known, with its holders.

    Raises:
        StoreError: Its id is another's.
        CrossedError: Somebody else entered it just now.
    """
    row = rows.of_record(record)
    known = holding.locked(transaction, record.workspace_id)
    if known is not None and record.key and known["key"] == record.key:
        # It was entered after this transaction had found none of that key.
        raise CrossedError
    if known is not None:
        raise StoreError(f"workspace {record.workspace_id} is somebody else's already")
    transaction.change(_ENTER, {**row, "held": bool(record.holders)})
    for holder in record.holders:
        holding.hold(transaction, [record.workspace_id], holder)
