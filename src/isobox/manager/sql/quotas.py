"""How many workspaces there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, func, select

from isobox.manager.records import Full, State
from isobox.manager.sql.tables import workspaces
from isobox.manager.sql.text import digest

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from isobox.manager.records import Claim

_COUNTED: Final = (State.SPARE, State.MAKING, State.LIVE, State.CLOSING)
_OPEN: Final = (
    select(func.count())
    .select_from(workspaces)
    .where(
        workspaces.c.held,
        workspaces.c.state.in_([state.value for state in _COUNTED]),
    )
)
_OPEN_OF_USER: Final = _OPEN.where(workspaces.c.user_digest == bindparam("user"))


def count_alone(connection: Connection, asked: Claim) -> None:
    """Let nobody else count before this claim is done; SQLite does so anyway."""
    if connection.dialect.name != "postgresql":
        return
    if asked.most is not None:
        _lock(connection, "all")
    if asked.most_of_user is not None:
        _lock(connection, "user", asked.tenant.user)


def _lock(connection: Connection, *name: str) -> None:
    number = int(digest("isobox quota", *name)[:15], 16)
    connection.execute(select(func.pg_advisory_xact_lock(number)))


def reached(connection: Connection, asked: Claim, *, more: bool) -> Full | None:
    """Return the quota that leaves no room; `more` is whether all become more."""
    if asked.most_of_user is not None:
        its = {"user": digest(asked.tenant.user)}
        if (connection.scalar(_OPEN_OF_USER, its) or 0) >= asked.most_of_user:
            return Full(of_user=True, most=asked.most_of_user)
    if not more or asked.most is None:
        return None
    full = (connection.scalar(_OPEN) or 0) >= asked.most
    return Full(of_user=False, most=asked.most) if full else None
