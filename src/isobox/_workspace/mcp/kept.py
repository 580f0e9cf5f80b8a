"""Declarations of MCP servers that outlive a workspace."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final, cast

from isobox._workdir.state import State
from isobox._workspace.mcp.server import McpServer
from isobox.errors import InvalidArgumentError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._workspace.mcp.servers import Whom

_VERSION: Final = 1


class McpWarning(UserWarning):
    """A kept declaration of an MCP server cannot be used; the others are."""


class Kept:
    """The servers that were added to a directory's workspaces.

    Args:
        directory: The directory's path on the host.
    """

    def __init__(self, directory: str) -> None:
        self._state = State("mcp", directory)

    def read(self) -> Iterator[tuple[Whom, McpServer]]:
        """Yield what is kept; a bad entry is left out with a warning."""
        try:
            rows = _rows(self._state.read())
        except (OSError, ValueError) as error:
            self._warn(str(error))
            return
        for row in rows:
            try:
                yield _declaration(row)
            except (InvalidArgumentError, ValueError) as error:
                self._warn(str(error))

    def add(self, server: McpServer, whom: Whom) -> None:
        """Keep a server, in place of one of its name for the same.

        Raises:
            StorageError: It cannot be kept.
        """
        agent, session = whom
        names = {"agent": agent, "session": session, "name": server.name}
        self._replace({**names, "server": server.as_dict()}, server.name, whom)

    def remove(self, name: str, whom: Whom) -> None:
        """Keep a server no longer.

        Raises:
            StorageError: It cannot be removed.
        """
        self._replace(None, name, whom)

    def _replace(self, row: dict[str, object] | None, name: str, whom: Whom) -> None:
        def changed(before: object) -> object:
            same = (*whom, name)
            rows = [each for each in _rows(before) if _identity(each) != same]
            return {"version": _VERSION, "servers": [*rows, *([row] if row else [])]}

        try:
            self._state.change(changed)
        except (OSError, ValueError) as error:
            raise StorageError(f"{self._state.path}: {error}") from error

    def _warn(self, why: str) -> None:
        warnings.warn(f"{self._state.path}: {why}", McpWarning, stacklevel=3)


def _rows(found: object) -> list[object]:
    if found is None:
        return []
    fields = cast("dict[str, object]", found if isinstance(found, dict) else {})
    rows = fields.get("servers")
    if fields.get("version") != _VERSION or not isinstance(rows, list):
        raise ValueError("it is of another version")
    return cast("list[object]", rows)


def _identity(row: object) -> tuple[object, ...]:
    fields = cast("dict[str, object]", row if isinstance(row, dict) else {})
    return tuple(fields.get(key) for key in ("agent", "session", "name"))


def _declaration(row: object) -> tuple[Whom, McpServer]:
    agent, session, name = _identity(row)
    texts = all(each is None or isinstance(each, str) for each in (agent, session))
    if not texts or not isinstance(name, str) or not isinstance(row, dict):
        raise ValueError("an entry is no declaration")
    given = cast("dict[str, object]", row).get("server")
    whom = cast("Whom", (agent, session))
    return whom, McpServer.of(name, given)
