"""Where a store is: a file, or a server by its URL."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final

from isobox.errors import InvalidArgumentError

_USAGE: Final = (
    "give the path of a SQLite file, sqlite:///path, or postgresql://user@host/name"
)
_SQLITE: Final = frozenset(("sqlite", "sqlite+aiosqlite"))
_POSTGRES: Final = frozenset(("postgresql", "postgres", "postgresql+asyncpg"))
#: A URL of which the parts that are no secret can be told.
_PLAIN: Final = re.compile(
    r"postgresql://(?:[^@/?#]*@)?(?P<host>[\w.:,\[\]-]*/?[\w.-]*)(?:\?[^@]*)?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is; one of `path` and `dsn` is set.

    Attributes:
        shown: What messages may say of it: no password is in it.
        path: The file.
        dsn: The server and its database, as libpq writes them.
    """

    shown: str
    path: str | None = None
    dsn: str | None = field(default=None, repr=False)


def address(given: str | os.PathLike[str]) -> Address:
    """Return where a store is.

    Raises:
        InvalidArgumentError: It is no path, and no URL of SQLite or PostgreSQL.
    """
    text = os.fspath(given)
    scheme, mark, rest = text.partition("://")
    if not mark or not isinstance(given, str):
        return _file(text)
    if scheme in _SQLITE:
        return _file(_of_url(rest))
    if scheme in _POSTGRES:
        return _server(f"postgresql://{rest}")
    raise InvalidArgumentError(f"store: no store is known for {scheme!a:.40}; {_USAGE}")


def _of_url(rest: str) -> str:
    if not rest.startswith("/") or "?" in rest:
        raise InvalidArgumentError(f"store: no host and no options; {_USAGE}")
    return rest[1:]


def _file(path: str) -> Address:
    if not path or "\0" in path or path.startswith(":memory:"):
        raise InvalidArgumentError(f"store: {path!a} is no file's path; {_USAGE}")
    return Address(path, path=os.path.abspath(path))


def _server(dsn: str) -> Address:
    if "\0" in dsn:
        raise InvalidArgumentError(f"store: a NUL is in the URL; {_USAGE}")
    told = _PLAIN.fullmatch(dsn)
    shown = f"postgresql://{told['host']}" if told else "the PostgreSQL database"
    return Address(shown, dsn=dsn)
