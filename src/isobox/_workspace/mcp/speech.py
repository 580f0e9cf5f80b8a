"""What a workspace lets its user ask of an MCP server."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from isobox._core.given import is_number
from isobox._core.ops import CallTool
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import mcp_types as types
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

    from isobox._core.ops import Asked
    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.mcp.live import Live
    from isobox._workspace.mcp.servers import Servers

R = TypeVar("R")

#: What is told how far a call is: progress, total and a message.
Progress = Callable[[float, "float | None", "str | None"], object]


@dataclass(frozen=True, slots=True)
class Mcp:
    """An MCP server as an agent has it in a session; see `WorkspaceBase.mcp`.

    Whatever is asked is an operation `call_tool`: the policy decides on it, and it
    is recorded. What it offers is listed without the policy, and recorded as well.
    The server starts when it is first asked, and again after it died.
    Types are those of the official SDK.

    Attributes:
        name: The server's name.
    """

    name: str
    _workspace: WorkspaceBase
    _servers: Servers
    _agent: str | None
    _session: str

    async def tools(self) -> list[types.Tool]:
        """Return the tools that it has.

        Raises:
            McpError: It does not start, or does not say.
        """
        self._note("tools")
        return await (await self._live()).tools()

    async def resources(self) -> list[types.Resource]:
        """Return the resources that it has."""
        self._note("resources")
        return await (await self._live()).resources()

    async def templates(self) -> list[types.ResourceTemplate]:
        """Return the templates of resources that it has."""
        self._note("templates")
        return await (await self._live()).templates()

    async def prompts(self) -> list[types.Prompt]:
        """Return the prompts that it has."""
        self._note("prompts")
        return await (await self._live()).prompts()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> types.CallToolResult:
        """Call a tool and return what it answers; `is_error` is an answer too.

        A call that is cancelled, or late, is cancelled at the server as well.

        Args:
            tool: Its name, as the server has it.
            arguments: What it is given.
            timeout: Seconds; what the server was declared with if None.
            progress: Called with progress, total and a message, where the server
                tells them, and awaited if it is to be; the last two may be None.

        Raises:
            InvalidArgumentError: The arguments are no mapping, or the timeout is no
                time.
            McpError: The server died, or refused.
            McpTimedOutError: It did not answer in time.
            PolicyDeniedError: The policy, or a person, did not allow it.
        """
        given = _given(arguments)
        told = None if progress is None else _awaited(progress)

        async def call(client: Client) -> types.CallToolResult:
            return await client.call_tool(tool, given, progress_callback=told)

        return await self._asked("tool", tool, given, call, timeout)

    async def read(
        self, uri: str, *, timeout: float | None = None
    ) -> types.ReadResourceResult:
        """Read a resource.

        Raises:
            McpError: The server died, or refused.
            McpTimedOutError: It did not answer in time.
            PolicyDeniedError: The policy, or a person, did not allow it.
        """

        async def read(client: Client) -> types.ReadResourceResult:
            return await client.read_resource(uri)

        return await self._asked("resource", uri, {}, read, timeout)

    async def prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> types.GetPromptResult:
        """Fetch a prompt.

        Raises:
            McpError: The server died, or refused.
            McpTimedOutError: It did not answer in time.
            PolicyDeniedError: The policy, or a person, did not allow it.
        """
        given = _given(arguments)

        async def fetch(client: Client) -> types.GetPromptResult:
            return await client.get_prompt(name, given)

        return await self._asked("prompt", name, given, fetch, timeout)

    def _note(self, what: str) -> None:
        self._workspace._audit.lifecycle("mcp_list", server=self.name, what=what)

    async def _asked(
        self,
        kind: Asked,
        what: str,
        arguments: Mapping[str, object],
        question: Callable[[Client], Awaitable[R]],
        timeout: float | None,
    ) -> R:
        _check_timeout(timeout)
        server = self._servers.find(self.name, self._agent, self._session)

        async def reach(_: CallTool) -> object:
            live = await self._live()
            return await live.ask(question, timeout=timeout)

        op = CallTool(
            server=self.name,
            kind=kind,
            tool=what,
            arguments=arguments,
            remote=server.remote,
            call=reach,
        )
        return cast("R", await self._workspace._do(op))

    async def _live(self, *, patient: bool = True) -> Live:
        return await self._servers.live(
            self.name, self._agent, self._session, patient=patient
        )


def _given(arguments: Mapping[str, R] | None) -> dict[str, R]:
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(arguments).__name__
        raise InvalidArgumentError(f"arguments are a {kind}, and no mapping by name")
    return dict(arguments)


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and not (is_number(timeout) and timeout > 0):
        raise InvalidArgumentError(f"timeout={timeout!r} is no number of seconds")


def _awaited(called: Progress) -> ProgressFnT:
    async def told(progress: float, total: float | None, message: str | None) -> None:
        answer = called(progress, total, message)
        if inspect.isawaitable(answer):
            await answer

    return told
