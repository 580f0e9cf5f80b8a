"""The tables and their indexes.

Whether a workspace is held stands in it too, because what nobody holds could not
be found by an index otherwise. The rows of a workspace's holders change only
while its own row is locked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)
from typing_extensions import override

from isobox.manager.sql.text import escaped, plain

if TYPE_CHECKING:
    from sqlalchemy import Dialect
    from sqlalchemy.types import TypeEngine

VERSION: Final = 1


class AnyText(TypeDecorator[str]):
    """Text with any characters at all, in the order of its bytes."""

    impl = Text
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        collation = "C" if dialect.name == "postgresql" else None
        return dialect.type_descriptor(Text(collation=collation))

    @override
    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return written(value)

    @override
    def process_result_value(self, value: object, dialect: Dialect) -> str | None:
        return read(value)


def written(value: str | None) -> str | None:
    """Return what a column of any text is given."""
    return None if value is None else escaped(value)


def read(value: object) -> str | None:
    """Return what a column of any text holds.

    Raises:
        StoreError: It was not written by `written`.
    """
    return None if value is None else plain(value)


metadata = MetaData()

schema = Table("isobox_schema", metadata, Column("version", Integer, nullable=False))

#: One row at most.
deployments = Table(
    "isobox_deployment",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("identity", Text, nullable=False),
    Column("basedir", AnyText, nullable=False),
)

holders = Table(
    "isobox_holders",
    metadata,
    Column("holder", AnyText, primary_key=True),
    Column("until", Double, nullable=False),
    Index("isobox_holders_until", "until"),
)

workspaces = Table(
    "isobox_workspaces",
    metadata,
    Column("workspace_id", AnyText, primary_key=True),
    Column("key", AnyText, unique=True),
    # A user's name is longer than an index of PostgreSQL takes.
    Column("user_digest", Text),
    Column("user_id", AnyText),
    Column("agent_id", AnyText),
    Column("session_id", AnyText),
    Column("backend", AnyText, nullable=False),
    Column("place", AnyText, nullable=False),
    Column("state", Text, nullable=False),
    Column("held", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),
    Column("closed_at", Double),
    Column("options", Text, nullable=False),
    Index("isobox_workspaces_used", "held", "state", "used_at"),
    Index("isobox_workspaces_closed", "state", "closed_at"),
    Index("isobox_workspaces_open", "user_digest", "held", "state"),
    Index("isobox_workspaces_user", "user_digest", "workspace_id"),
)

holds = Table(
    "isobox_holds",
    metadata,
    Column("workspace_id", AnyText, primary_key=True),
    Column("holder", AnyText, primary_key=True),
    Column("wanted", Boolean, nullable=False),
    Index("isobox_holds_holder", "holder", "wanted"),
    sqlite_with_rowid=False,
)

members = Table(
    "isobox_members",
    metadata,
    Column("workspace_id", AnyText, primary_key=True),
    Column("member", Text, primary_key=True),
    Column("user_id", AnyText, nullable=False),
    Column("agent_id", AnyText),
    Column("session_id", AnyText),
)
