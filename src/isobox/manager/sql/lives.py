"""The life of a workspace after its claim: made, given up, closed, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import delete as delete_from
from sqlalchemy import insert, or_, select

from isobox.manager.records import Held, Record, State
from isobox.manager.sql import holding, rows
from isobox.manager.sql.claims import enter, held, recorded
from isobox.manager.sql.tables import holds, members, workspaces
from isobox.manager.sql.text import digest

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from isobox.manager.records import Tenant

#: What is open, or was to be.
_OPEN: Final = frozenset((State.MAKING, State.LIVE, State.CLOSING))


def _held_by(connection: Connection, workspace_id: str, holder: str) -> Record | None:
    """Return a workspace if this holder has it, its row locked."""
    row = holding.locked(connection, workspace_id)
    if row is None:
        return None
    found = recorded(connection, row)
    return found if holder in found.holders else None


def made(connection: Connection, workspace_id: str, holder: str, now: float) -> bool:
    """Make live what this holder was making; False if it has it no longer."""
    holding.bury(connection, now)
    found = _held_by(connection, workspace_id, holder)
    if found is not None and found.state is State.MAKING:
        holding.change(connection, workspace_id, state=State.LIVE.value)
        return True
    return found is not None and found.state is State.LIVE


def release(
    connection: Connection,
    workspace_id: str,
    holder: str,
    now: float,
    used_at: float,
) -> bool:
    """Give a workspace up; True if it is now this holder's to close for good."""
    holding.bury(connection, now)
    found = _held_by(connection, workspace_id, holder)
    if found is None:
        return False
    last = max(found.used_at, used_at)
    if len(found.holders) > 1:
        holding.let_go(connection, workspace_id, holder)
        holding.change(connection, workspace_id, used_at=last)
        return False
    state = _ending(found, State.CLOSING)
    holding.change(connection, workspace_id, state=state.value, used_at=last)
    return True


def _ending(found: Record, state: State) -> State:
    # A spare is of no use to anybody, nor is what was half deleted.
    return state if found.key and found.state in _OPEN else State.DELETING


def closed(connection: Connection, workspace_id: str, holder: str, now: float) -> None:
    """Leave a workspace to nobody, or to the others that have it."""
    holding.bury(connection, now)
    found = _held_by(connection, workspace_id, holder)
    if found is None:
        return
    holding.let_go(connection, workspace_id, holder)
    if len(found.holders) > 1:
        return
    state = _ending(found, State.CLOSED)
    holding.change(
        connection,
        workspace_id,
        state=state.value,
        held=False,
        closed_at=now if state is State.CLOSED else None,
    )


def spare(connection: Connection, record: Record, now: float) -> None:
    """Enter a spare; again is nothing.

    Raises:
        HolderExpiredError: Its holder is dead.
        StoreError: Its id is another's.
    """
    (holder,) = record.holders
    holding.require(connection, holder, now)
    known = _held_by(connection, record.workspace_id, holder)
    if known is None or known.place != record.place:
        enter(connection, record)


def delete(
    connection: Connection, workspace_id: str, holder: str, now: float
) -> Record | Held | None:
    """Take a workspace to delete it, unless somebody else has it.

    Raises:
        HolderExpiredError: The holder is dead.
    """
    holding.require(connection, holder, now)
    row = holding.locked(connection, workspace_id)
    if row is None:
        return None
    found = recorded(connection, row)
    if set(found.holders) - {holder}:
        return held(connection, found)
    if not found.holders:
        holding.hold(connection, [workspace_id], holder)
    changed = holding.change(
        connection, workspace_id, state=State.DELETING.value, held=True
    )
    return rows.record(changed, [holder])


def deleted(connection: Connection, workspace_id: str, holder: str) -> None:
    """Forget a workspace that this holder was deleting."""
    found = _held_by(connection, workspace_id, holder)
    if found is None or found.state is not State.DELETING:
        return
    for table in (members, holds, workspaces):
        its = table.c.workspace_id == workspace_id
        connection.execute(delete_from(table).where(its))


def adopt(connection: Connection, record: Record) -> bool:
    """Enter a workspace that was found; False if its id or key is known."""
    same = or_(
        workspaces.c.workspace_id == record.workspace_id,
        workspaces.c.key == record.key,
    )
    known = connection.execute(select(workspaces.c.workspace_id).where(same))
    if known.first() is not None:
        return False
    enter(connection, record)
    return True


def joined(connection: Connection, workspace_id: str, tenant: Tenant) -> None:
    """Remember who used a workspace that there is."""
    row = holding.locked(connection, workspace_id)
    if row is None or _is_member(connection, workspace_id, tenant):
        return
    connection.execute(
        insert(members).values(
            workspace_id=workspace_id,
            member=_member(tenant),
            user_id=tenant.user,
            agent_id=tenant.agent,
            session_id=tenant.session,
        )
    )


def _is_member(connection: Connection, workspace_id: str, tenant: Tenant) -> bool:
    its = select(members.c.member).where(
        members.c.workspace_id == workspace_id, members.c.member == _member(tenant)
    )
    return connection.execute(its).first() is not None


def left(connection: Connection, workspace_id: str, tenant: Tenant) -> None:
    """Forget that somebody used a workspace."""
    its = delete_from(members).where(
        members.c.workspace_id == workspace_id, members.c.member == _member(tenant)
    )
    connection.execute(its)


def _member(tenant: Tenant) -> str:
    return digest(tenant.user, tenant.agent, tenant.session)
