"""The tools of a workspace, served over MCP."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from isobox.errors import IsoboxError
from isobox.mcp.questions import Call, Questions

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.context import ServerRequestContext

    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.tools.tool import Tool

    Context = ServerRequestContext[Any, Any]

#: Where a connection's session is noted, so that it is ended once.
_SESSION: Final = "isobox_session"


def server(
    workspace: WorkspaceBase,
    *,
    questions: Questions | None = None,
    instructions: str | None = None,
    version: str = "",
    report: Callable[[str], None] | None = None,
) -> Server[Any]:
    """Return an MCP server with the tools of a workspace that is open.

    The tools of the MCP servers inside are among them. Each of its clients has a
    session of its own: a shell, and what was read. It ends with the client's
    connection. It is run by the official SDK:
    `run` over a pair of streams, or `streamable_http_app`.

    Args:
        workspace: The workspace; it has to stay open.
        questions: Asks the clients' users; its `approve` is the workspace's.
        instructions: For the model; `WorkspaceBase.get_instructions`.
        version: Of whatever serves it.
        report: Told why a server inside has failed, each reason once.
    """
    front = _Front(workspace, questions or Questions(), report or _unheard)
    return Server(
        "isobox",
        version=version,
        instructions=instructions,
        on_list_tools=front.list_tools,
        on_call_tool=front.call_tool,
    )


class _Front:
    def __init__(
        self,
        workspace: WorkspaceBase,
        questions: Questions,
        report: Callable[[str], None],
    ) -> None:
        self._workspace = workspace
        self._questions = questions
        self._report = report
        self._reported: set[str] = set()

    async def list_tools(
        self, context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        session = self._session(context)
        tools = await self._workspace.list_tools(session_id=session)
        await self._report_failures(session)
        return types.ListToolsResult(
            tools=[types.Tool.model_validate(tool.to_mcp()) for tool in tools]
        )

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        given = params.arguments or {}
        name = json.dumps([params.name, given], sort_keys=True)
        if params.request_state is not None:
            call = self._questions.resumed(
                params.request_state, name, params.input_responses
            )
            if call is None:
                raise MCPError(
                    types.INVALID_PARAMS, "no call waits for this answer; call again"
                )
            return await self._questions.answered(call)
        tool = await self._tool(context, params.name)
        call = Call(
            context.session,
            context.request_id,
            name,
            allowed=self._questions.allowed(context.session),
        )
        call.start(_called(tool, given))
        return await self._questions.answered(call)

    def _session(self, context: Context) -> str:
        """Return the name of a client's session; those without one share theirs."""
        connection = getattr(context.session, "_connection")  # noqa: B009
        if not connection.session_id:
            return "default"
        session = f"mcp-{connection.session_id}"
        if session != connection.state.get(_SESSION):
            connection.state[_SESSION] = session
            connection.exit_stack.push_async_callback(self._end, session)
        return session

    async def _end(self, session: str) -> None:
        """End a client's session once its connection is over."""
        with contextlib.suppress(IsoboxError):
            await self._workspace._end_session(session)

    async def _report_failures(self, session: str) -> None:
        for each in await self._workspace.list_mcps(session_id=session):
            if each.problem is not None and each.problem not in self._reported:
                self._reported.add(each.problem)
                self._report(each.problem)

    async def _tool(self, context: Context, name: str) -> Tool:
        # A server that hangs must not delay the calls of all other tools.
        tool = await self._workspace._tool(name, self._session(context))
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool is called {name[:200]!r}")
        return tool


def _unheard(_problem: str) -> None:
    """Nobody is told."""


async def _called(tool: Tool, given: dict[str, Any]) -> types.CallToolResult:
    try:
        result = await tool(**given)
    except IsoboxError as error:
        raise MCPError(types.INTERNAL_ERROR, error.message) from error
    return types.CallToolResult.model_validate(result.to_mcp())
