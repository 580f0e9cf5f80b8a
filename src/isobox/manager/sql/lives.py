"""The life of a workspace after its claim: made, given up, closed, deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, insert, or_, select
from sqlalchemy import delete as delete_from

from isobox.manager.records import Held, Record, State
from isobox.manager.sql import holding, quotas, rows
from isobox.manager.sql.claims import enter, held, recorded
from isobox.manager.sql.tables import holds, members, workspaces
from isobox.manager.sql.text import digest

if TYPE_CHECKING:
    from isobox.manager.records import Tenant
    from isobox.manager.sql.transaction import Transaction

#: What is open, or was to be.
_OPEN: Final = frozenset((State.MAKING, State.LIVE, State.CLOSING))

#: What is known of a workspace.
_ALL: Final = tuple(
    delete_from(table).where(table.c.workspace_id == bindparam("its"))
    for table in (members, holds, workspaces)
)
_STEP: Final = (
    select(
        workspaces.c.key, workspaces.c.place, workspaces.c.state, workspaces.c.used_at
    )
    .where(workspaces.c.workspace_id == bindparam("its"))
    .with_for_update()
)
_JOIN: Final = insert(members)
_MEMBER: Final = select(members.c.member).where(
    members.c.workspace_id == bindparam("its"), members.c.member == bindparam("who")
)


@dataclass(frozen=True, slots=True)
class _Held:
    """What a step in a workspace's life has to know of it, and no more.

    Attributes:
        state: How far it is.
        spare: Whether it is nobody's.
        place: Its directory's name.
        used_at: When it was last used.
        shared: Whether others have it too.
    """

    state: str
    spare: bool
    place: str
    used_at: float
    shared: bool


def _held_by(transaction: Transaction, workspace_id: str, holder: str) -> _Held | None:
    """Return a workspace if this holder has it, its row locked."""
    row = transaction.row(_STEP, {"its": workspace_id})
    holders = holding.holders_of(transaction, workspace_id) if row else ()
    if row is None or holder not in holders:
        return None
    return _Held(
        state=row["state"],
        spare=row["key"] is None,
        place=row["place"],
        used_at=row["used_at"],
        shared=len(holders) > 1,
    )


def made(transaction: Transaction, workspace_id: str, holder: str, now: float) -> bool:
    """Make live what this holder was making; False if it has it no longer."""
    holding.bury(transaction, now)
    found = _held_by(transaction, workspace_id, holder)
    if found is not None and found.state == State.MAKING:
        holding.alter(transaction, workspace_id, state=State.LIVE.value)
        return True
    return found is not None and found.state == State.LIVE


def release(
    transaction: Transaction,
    workspace_id: str,
    holder: str,
    now: float,
    used_at: float,
) -> bool:
    """Give a workspace up; True if it is now this holder's to close for good."""
    holding.bury(transaction, now)
    found = _held_by(transaction, workspace_id, holder)
    if found is None:
        return False
    last = max(found.used_at, used_at)
    if found.shared:
        holding.let_go(transaction, workspace_id, holder)
        holding.alter(transaction, workspace_id, used_at=last)
        return False
    state = _ending(found, State.CLOSING)
    holding.alter(transaction, workspace_id, state=state.value, used_at=last)
    return True


def _ending(found: _Held, state: State) -> State:
    # A spare is of no use to anybody, nor is what was half deleted.
    return state if not found.spare and found.state in _OPEN else State.DELETING


def closed(
    transaction: Transaction, workspace_id: str, holder: str, now: float
) -> None:
    """Leave a workspace to nobody, or to the others that have it."""
    holding.bury(transaction, now)
    found = _held_by(transaction, workspace_id, holder)
    if found is None:
        return
    holding.let_go(transaction, workspace_id, holder)
    if found.shared:
        return
    state = _ending(found, State.CLOSED)
    holding.alter(
        transaction,
        workspace_id,
        state=state.value,
        held=False,
        closed_at=now if state is State.CLOSED else None,
    )


def begin(
    transaction: Transaction, record: Record, now: float, most: int | None
) -> bool:
    """Enter what becomes a spare, if there is room; again is nothing.

    Raises:
        HolderExpiredError: Its holder is dead.
        StoreError: Its id is another's.
    """
    quotas.count_all_alone(transaction, most)
    holding.require(transaction, record.holders[0], now)
    if _known(transaction, record):
        return True
    if most is not None and quotas.full(transaction, most):
        return False
    enter(transaction, record)
    return True


def _known(transaction: Transaction, record: Record) -> _Held | None:
    known = _held_by(transaction, record.workspace_id, record.holders[0])
    return known if known is not None and known.place == record.place else None


def spare(transaction: Transaction, record: Record, now: float) -> None:
    """Enter a spare; again is nothing.

    Raises:
        HolderExpiredError: Its holder is dead.
        StoreError: Its id is another's.
    """
    holding.require(transaction, record.holders[0], now)
    known = _known(transaction, record)
    if known is None:
        enter(transaction, record)
    elif known.spare and known.state == State.MAKING:
        state = State.SPARE.value
        holding.alter(transaction, record.workspace_id, state=state)


def delete(
    transaction: Transaction,
    workspace_id: str,
    holder: str,
    now: float,
    place: str | None,
) -> Record | Held | None:
    """Take a workspace to delete it, unless somebody else has it.

    If a place is named, a later workspace of the same id is left alone.

    Raises:
        HolderExpiredError: The holder is dead.
    """
    holding.require(transaction, holder, now)
    row = holding.locked(transaction, workspace_id)
    if row is None or place not in (None, row["place"]):
        return None
    found = recorded(transaction, row)
    if set(found.holders) - {holder}:
        return held(transaction, found)
    if not found.holders:
        holding.hold(transaction, [workspace_id], holder)
    changed = holding.change(
        transaction, workspace_id, state=State.DELETING.value, held=True
    )
    return rows.record(changed, [holder])


def deleted(transaction: Transaction, workspace_id: str, holder: str) -> None:
    """Forget a workspace that this holder was deleting."""
    found = _held_by(transaction, workspace_id, holder)
    if found is None or found.state != State.DELETING:
        return
    for its in _ALL:
        transaction.change(its, {"its": workspace_id})


def adopt(transaction: Transaction, record: Record) -> bool:
    """Enter a workspace that was found; False if its id or key is known."""
    same = or_(
        workspaces.c.workspace_id == record.workspace_id,
        workspaces.c.key == record.key,
    )
    if transaction.row(select(workspaces.c.workspace_id).where(same)) is not None:
        return False
    enter(transaction, record)
    return True


def joined(transaction: Transaction, workspace_id: str, tenant: Tenant) -> None:
    """Remember who used a workspace that there is."""
    known = holding.locked(transaction, workspace_id)
    if known is None or _is_member(transaction, workspace_id, tenant):
        return
    row = {
        "workspace_id": workspace_id,
        "member": _member(tenant),
        "user_id": tenant.user,
        "agent_id": tenant.agent,
        "session_id": tenant.session,
    }
    transaction.change(_JOIN, row)


def _is_member(transaction: Transaction, workspace_id: str, tenant: Tenant) -> bool:
    its = {"its": workspace_id, "who": _member(tenant)}
    return transaction.row(_MEMBER, its) is not None


def left(transaction: Transaction, workspace_id: str, tenant: Tenant) -> None:
    """Forget that somebody used a workspace."""
    its = delete_from(members).where(
        members.c.workspace_id == workspace_id, members.c.member == _member(tenant)
    )
    transaction.change(its)


def _member(tenant: Tenant) -> str:
    return digest(tenant.user, tenant.agent, tenant.session)
