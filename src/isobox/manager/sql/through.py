"""Transactions by SQLAlchemy, on whatever it connects to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from isobox.manager.sql.transaction import NOTHING, Transaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Executable

    from isobox.manager.sql.transaction import Row, Values


class Through(Transaction):
    """A transaction on a connection of SQLAlchemy's, which has begun it."""

    dialect: ClassVar[str] = "postgresql"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def rows(self, statement: Executable, values: Values = NOTHING) -> Sequence[Row]:
        found = self._connection.execute(statement, values).mappings()
        return [dict(row) for row in found]

    @override
    def change(self, statement: Executable, values: Values = NOTHING) -> int:
        return self._connection.execute(statement, values).rowcount

    @override
    def change_each(self, statement: Executable, each: Sequence[Values]) -> None:
        if each:
            self._connection.execute(statement, each)
