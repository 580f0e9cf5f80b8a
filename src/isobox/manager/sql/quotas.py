"""How many workspaces there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, func, literal, select

from isobox.manager.records import Full, State
from isobox.manager.sql.tables import workspaces
from isobox.manager.sql.text import digest

if TYPE_CHECKING:
    from isobox.manager.records import Claim
    from isobox.manager.sql.transaction import Transaction

_COUNTED: Final = (State.SPARE, State.MAKING, State.LIVE, State.CLOSING)
_OPEN: Final = (
    select(func.count())
    .select_from(workspaces)
    .where(
        workspaces.c.held,
        workspaces.c.state.in_([literal(state.value) for state in _COUNTED]),
    )
)
_OPEN_OF_USER: Final = _OPEN.where(workspaces.c.user_digest == bindparam("user"))


def count_alone(transaction: Transaction, asked: Claim) -> None:
    """Let nobody else count before this claim is done; SQLite does so anyway."""
    count_all_alone(transaction, asked.most)
    if asked.most_of_user is not None:
        _lock(transaction, "user", asked.tenant.user)


def count_all_alone(transaction: Transaction, most: int | None) -> None:
    """Let nobody else count all before this is done, if they are counted."""
    if most is not None:
        _lock(transaction, "all")


def _lock(transaction: Transaction, *name: str) -> None:
    if transaction.dialect != "postgresql":
        return
    number = int(digest("isobox quota", *name)[:15], 16)
    transaction.rows(select(func.pg_advisory_xact_lock(number)))


def reached(transaction: Transaction, asked: Claim, *, more: bool) -> Full | None:
    """Return the quota that leaves no room; `more` is whether all become more."""
    if asked.most_of_user is not None:
        its = {"user": digest(asked.tenant.user)}
        if (transaction.value(_OPEN_OF_USER, its) or 0) >= asked.most_of_user:
            return Full(of_user=True, most=asked.most_of_user)
    if not more or asked.most is None or not full(transaction, asked.most):
        return None
    return Full(of_user=False, most=asked.most)


def full(transaction: Transaction, most: int) -> bool:
    """Whether so many are open, in all."""
    return (transaction.value(_OPEN) or 0) >= most
