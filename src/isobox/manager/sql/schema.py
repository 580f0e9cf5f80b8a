"""Making the tables, and knowing whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import func, insert, inspect, select

from isobox.errors import StoreError
from isobox.manager.sql import tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: The number of the lock under which tables are made: "isobox" in ASCII.
_LOCK: Final = 0x69736F626F78


def prepare(connection: Connection) -> None:
    """Make the tables where there are none, once.

    Raises:
        StoreError: There are some of another version.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    if not inspect(connection).has_table(tables.schema.name):
        tables.metadata.create_all(connection)
        connection.execute(insert(tables.schema).values(version=tables.VERSION))
    versions = connection.scalars(select(tables.schema.c.version)).all()
    if versions != [tables.VERSION]:
        raise StoreError(
            f"the store has tables of version {versions!r:.40}, this isobox knows "
            f"{tables.VERSION}: use the isobox that made them, or another store"
        )
    # Stores of the first days have none, and are else the same.
    tables.deployments.create(connection, checkfirst=True)
