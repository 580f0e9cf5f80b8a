"""A workspace's MCP servers, without the SDK until one is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, cast

from isobox._core.given import whole
from isobox._workspace.mcp.kept import Kept
from isobox._workspace.mcp.server import McpServer
from isobox.errors import BackendMissingError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.mcp.server import McpStatus
    from isobox._workspace.mcp.servers import Servers, Whom
    from isobox._workspace.mcp.speech import Mcp
    from isobox._workspace.tools.session import Session
    from isobox._workspace.tools.tool import Tool

#: What the SDK awaits for a server's question: elicitation, or sampling.
Answering = Callable[..., "Awaitable[object]"]


class Mcps:
    """Declares servers at once, and makes what runs them when it is needed.

    Args:
        workspace: Whose they are.
        given: Those that it is made with, for every agent and session.
        most: Servers that run at once.
        elicit: Answers servers' questions to the user.
        sample: Asks a model on servers' behalf.

    Raises:
        InvalidArgumentError: A declaration is none.
    """

    def __init__(
        self,
        workspace: WorkspaceBase,
        given: Mapping[str, object] | Iterable[McpServer],
        *,
        most: int,
        elicit: Answering | None,
        sample: Answering | None,
    ) -> None:
        whole("max_mcps", most, 1)
        self._workspace = workspace
        self.given = declared(given)
        self.most = most
        self.elicit = elicit
        self.sample = sample
        self._made: Servers | None = None

    async def add(self, server: McpServer, whom: Whom) -> None:
        """Declare a server, and keep it if the workspace's directory stays."""
        declared((server,))
        servers = self._servers()
        servers.declare(server, whom)
        try:
            if kept := self._kept():
                kept.add(server, whom)
        except BaseException:
            await servers.withdraw(server.name, whom)
            raise

    async def remove(self, name: str, whom: Whom) -> None:
        """End a server and forget it."""
        await self._servers().withdraw(name, whom)
        if kept := self._kept():
            kept.remove(name, whom)

    def status(self, agent: str | None, session: str) -> list[McpStatus]:
        """Return how the servers do that an agent has in a session."""
        return self._servers().status(agent, session) if self else []

    def speech(self, name: str, agent: str | None, session: str) -> Mcp:
        """Return what speaks with a server.

        Raises:
            InvalidArgumentError: There is none of that name.
        """
        from isobox._workspace.mcp.speech import Mcp  # noqa: PLC0415

        servers = self._servers()
        if name not in servers.visible(agent, session):
            there = ", ".join(servers.visible(agent, session)) or "none"
            raise InvalidArgumentError(
                f"no MCP server is called {name!r}; there are: {there}"
            )
        return Mcp(name, self._workspace, servers, agent, session)

    async def tools(
        self, session: Session, agent: str | None, *, only: str | None = None
    ) -> list[Tool]:
        """Return the tools of every server that starts, or of one only."""
        if not self:
            return []
        from isobox._workspace.mcp.tool import tools_of  # noqa: PLC0415

        visible = self._servers().visible(agent, session.id)
        names = [name for name in visible if only in (None, name)]
        speeches = [self.speech(name, agent, session.id) for name in names]
        return await tools_of(speeches, session)

    async def end_session(self, session: str) -> None:
        """End the servers that one session had for itself."""
        if self._made is not None:
            await self._made.end_session(session)

    async def aclose(self) -> None:
        """End every server; those that were declared stay so."""
        if self._made is not None:
            await self._made.aclose()

    def __bool__(self) -> bool:
        if self._made is not None:
            return bool(self._made)
        kept = self._kept()
        return bool(self.given) or (kept is not None and any(True for _ in kept.read()))

    def _servers(self) -> Servers:
        if self._made is None:
            self._made = self._making()
        return self._made

    def _making(self) -> Servers:
        try:
            # The SDK is large, and most workspaces have no server.
            from isobox._workspace.mcp.live import Offers  # noqa: PLC0415
            from isobox._workspace.mcp.servers import Servers  # noqa: PLC0415
            from isobox._workspace.mcp.ways import Ways  # noqa: PLC0415
        except ImportError as error:
            raise BackendMissingError(
                "MCP servers need an extra: pip install 'isobox[mcp]'"
            ) from error
        offers = Offers(elicit=self.elicit, sample=self.sample)  # type: ignore[arg-type]
        made = Servers(Ways(self._workspace), offers=offers, most=self.most)
        for server in self.given:
            made.declare(server, (None, None))
        if kept := self._kept():
            for whom, server in kept.read():
                if server.name not in made.exactly(whom):
                    made.declare(server, whom)
        return made

    def _kept(self) -> Kept | None:
        workdir = self._workspace._workdir
        return None if workdir is None else Kept(workdir)


def declared(
    given: Mapping[str, object] | Iterable[McpServer],
) -> tuple[McpServer, ...]:
    """Return declarations that callers give, by name or one after another.

    Raises:
        InvalidArgumentError: One is none, or has the name of another.
    """
    if isinstance(given, Mapping):
        named = _inner(cast("Mapping[str, object]", given))
        servers = [McpServer.of(name, each) for name, each in named.items()]
    else:
        servers = list(given)
    for server in servers:
        if not isinstance(_unchecked(server), McpServer):
            kind = type(server).__name__
            raise InvalidArgumentError(
                f"an MCP server is a {kind}, and no McpServer; give "
                'McpServer(name="git", command=("mcp-server-git",)), or for all of '
                'them a mapping by name: {"git": {"command": "mcp-server-git"}}'
            )
    if len({server.name for server in servers}) != len(servers):
        raise InvalidArgumentError("two MCP servers have one name")
    return tuple(servers)


def _inner(given: Mapping[str, object]) -> Mapping[str, object]:
    """Return the servers of a whole file, and all but those that it disables."""
    inner = given.get("mcpServers")
    if isinstance(inner, Mapping) and len(given) == 1:
        given = cast("Mapping[str, object]", inner)
    return {name: each for name, each in given.items() if not _is_disabled(each)}


def _is_disabled(given: object) -> bool:
    fields = cast("Mapping[str, object]", given if isinstance(given, Mapping) else {})
    return fields.get("disabled") is True


def _unchecked(value: object) -> object:
    return value
