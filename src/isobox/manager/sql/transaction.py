"""What happens in a transaction, the same on every database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from sqlalchemy import Executable

Row = Mapping[str, Any]
Values = Mapping[str, Any]

NOTHING: Final[Values] = {}


class Transaction(ABC):
    """A transaction that goes on: what is asked and changed in it is one.

    Attributes:
        dialect: The database's name, as SQLAlchemy has it.
    """

    dialect: ClassVar[str]

    @abstractmethod
    def rows(self, statement: Executable, values: Values = NOTHING) -> Sequence[Row]:
        """Return the rows that a statement finds, or those that it has changed."""

    @abstractmethod
    def change(self, statement: Executable, values: Values = NOTHING) -> int:
        """Return how many rows a statement has changed."""

    @abstractmethod
    def change_each(self, statement: Executable, each: Sequence[Values]) -> None:
        """Change something with each of some values; with none, nothing."""

    def row(self, statement: Executable, values: Values = NOTHING) -> Row | None:
        """Return the first row that a statement finds."""
        return next(iter(self.rows(statement, values)), None)

    def column(self, statement: Executable, values: Values = NOTHING) -> list[Any]:
        """Return the first value of each row that a statement finds."""
        return [next(iter(row.values())) for row in self.rows(statement, values)]

    def value(self, statement: Executable, values: Values = NOTHING) -> Any:  # noqa: ANN401 - as the database has it
        """Return the first value of the first row; None if there is none."""
        return next(iter(self.column(statement, values)), None)
