"""What an MCP server offers, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast

from isobox.errors import McpError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import mcp_types as types
    from mcp import Client

R = TypeVar("R")

Kind = Literal["tools", "resources", "templates", "prompts"]

#: Pages of a listing, and things in it, that are read.
_PAGES: Final = 100
_MOST: Final = 2000


class Listings:
    """Remembers listings until the server says that they changed."""

    def __init__(self) -> None:
        self._known: dict[Kind, list[object]] = {}
        self._changes: dict[Kind, int] = {}

    def changed(self, *kinds: Kind) -> None:
        """Forget listings, those that are on their way included."""
        for kind in kinds:
            self._known.pop(kind, None)
            self._changes[kind] = self._changes.get(kind, 0) + 1

    async def get(self, kind: Kind, fetch: Callable[[], Awaitable[list[R]]]) -> list[R]:
        """Return a listing, fetched unless it is known."""
        if kind not in self._known:
            before = self._changes.get(kind, 0)
            found = await fetch()
            if self._changes.get(kind, 0) != before:
                return found
            self._known[kind] = cast("list[object]", found)
        return cast("list[R]", self._known[kind])


async def tools(client: Client) -> list[types.Tool]:
    """Return every tool."""

    async def page(cursor: str | None) -> tuple[list[types.Tool], str | None]:
        found = await client.list_tools(cursor=cursor)
        return found.tools, found.next_cursor

    return await _paged(page)


async def resources(client: Client) -> list[types.Resource]:
    """Return every resource."""

    async def page(cursor: str | None) -> tuple[list[types.Resource], str | None]:
        found = await client.list_resources(cursor=cursor)
        return found.resources, found.next_cursor

    return await _paged(page)


async def templates(client: Client) -> list[types.ResourceTemplate]:
    """Return every template of resources."""

    async def page(
        cursor: str | None,
    ) -> tuple[list[types.ResourceTemplate], str | None]:
        found = await client.list_resource_templates(cursor=cursor)
        return found.resource_templates, found.next_cursor

    return await _paged(page)


async def prompts(client: Client) -> list[types.Prompt]:
    """Return every prompt."""

    async def page(cursor: str | None) -> tuple[list[types.Prompt], str | None]:
        found = await client.list_prompts(cursor=cursor)
        return found.prompts, found.next_cursor

    return await _paged(page)


async def _paged(
    page: Callable[[str | None], Awaitable[tuple[list[R], str | None]]],
) -> list[R]:
    found: list[R] = []
    cursor: str | None = None
    # SAFETY: a server may always name a further page.
    for _ in range(_PAGES):
        more, cursor = await page(cursor)
        found += more
        if cursor is None:
            return found
        if len(found) > _MOST:
            break
    raise McpError(f"it lists over {_MOST} things, or over {_PAGES} pages")
