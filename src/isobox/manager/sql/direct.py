"""Transactions of SQLite by its own driver.

To go through SQLAlchemy takes ten times as long as what SQLite does itself. So it
writes the statements, each once, and has no part in their running.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.selectable import ReturnsRows
from typing_extensions import override

from isobox.manager.sql import tables
from isobox.manager.sql.transaction import NOTHING, Transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import ClauseElement, Executable
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

    from isobox.manager.sql.transaction import Row, Values

_DIALECT: Final = sqlite.dialect(paramstyle="named")

_Change = Callable[[Any], Any] | None


class Direct(Transaction):
    """A transaction on a connection of SQLite's driver, which has begun it."""

    dialect: ClassVar[str] = _DIALECT.name

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()

    @override
    def rows(self, statement: Executable, values: Values = NOTHING) -> Sequence[Row]:
        its = _prepared(statement)
        found = self._cursor.execute(its.text, its.bound(values)).fetchall()
        return [its.read(row) for row in found]

    @override
    def change(self, statement: Executable, values: Values = NOTHING) -> int:
        its = _prepared(statement)
        return self._cursor.execute(its.text, its.bound(values)).rowcount

    @override
    def change_each(self, statement: Executable, each: Sequence[Values]) -> None:
        its = _prepared(statement)
        self._cursor.executemany(its.text, [its.bound(values) for values in each])


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A statement as text, and how its values go in and come out.

    Attributes:
        fixed: Values that stand in the statement itself.
        given: Those that have to be given, by their names.
        columns: Those that it finds.
    """

    text: str
    fixed: Mapping[str, object]
    given: Sequence[tuple[str, _Change]]
    columns: Sequence[tuple[str, _Change]]

    def bound(self, values: Values) -> dict[str, object]:
        """Return values as the driver takes them."""
        bound = dict(self.fixed)
        for name, change in self.given:
            value = values[name]
            bound[name] = value if change is None else change(value)
        return bound

    def read(self, found: Iterable[Any]) -> Row:
        """Return a row of the driver's as it was meant."""
        return {
            name: value if change is None else change(value)
            for (name, change), value in zip(self.columns, found, strict=True)
        }


@lru_cache(maxsize=256)
def _prepared(statement: Executable) -> _Prepared:
    written = cast("ClauseElement", statement).compile(dialect=_DIALECT)
    compiled = cast("SQLCompiler", written)
    fixed: dict[str, object] = {}
    given: list[tuple[str, _Change]] = []
    for name, value in compiled.params.items():
        bind = compiled.binds[name]
        change = _writing(bind.type)
        if bind.required:
            given.append((name, change))
        else:
            fixed[name] = value if change is None else change(value)
    return _Prepared(str(compiled), fixed, given, _columns(statement))


def _columns(statement: Executable) -> list[tuple[str, _Change]]:
    if not isinstance(statement, ReturnsRows):
        return []
    return [
        (name, _reading(column.type))
        for name, column in statement.exported_columns.items()
    ]


def _writing(its: TypeEngine[Any]) -> _Change:
    if isinstance(its, tables.AnyText):
        return tables.written
    return its.dialect_impl(_DIALECT).bind_processor(_DIALECT)


def _reading(its: TypeEngine[Any]) -> _Change:
    if isinstance(its, tables.AnyText):
        return tables.read
    return its.dialect_impl(_DIALECT).result_processor(_DIALECT, None)
