"""The store in a database: a SQLite file of one host, or PostgreSQL of several."""

from __future__ import annotations

from isobox.errors import BackendMissingError

try:
    from isobox.manager.sql.store import SqlStore
except ImportError as error:
    raise BackendMissingError(
        "the manager's store needs an extra: pip install 'isobox[manager]'"
    ) from error

__all__ = ["SqlStore"]
