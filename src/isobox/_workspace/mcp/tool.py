"""A tool of an MCP server among a workspace's own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from typing_extensions import override

from isobox._workspace.mcp.answers import shown
from isobox._workspace.tools.tool import Tool
from isobox._workspace.tools.wording import clean, failed
from isobox.errors import IsoboxError, SandboxLostError, WorkspaceClosedError

if TYPE_CHECKING:
    import mcp_types as types

    from isobox._workspace.mcp.speech import Mcp
    from isobox._workspace.tools.result import Json, ToolResult
    from isobox._workspace.tools.session import Session

#: What models' interfaces take as a name.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME: Final = 64
#: Characters of a description, and of a schema, that a model is shown.
_LONGEST: Final = 8_000
_LARGEST: Final = 64_000


class McpTool(Tool):
    """Calls a tool of an MCP server.

    It counts as one that changes things, whatever the server says of it.
    """

    read_only: ClassVar[bool] = False

    def __init__(self, mcp: Mcp, tool: types.Tool, session: Session) -> None:
        self.name = model_name(mcp.name, tool.name)
        self.description = clean(tool.description or "")[:_LONGEST]
        self._mcp = mcp
        self._tool = tool
        self._session = session

    @property
    @override
    def input_schema(self) -> Json:
        """The server's schema."""
        return self._tool.input_schema

    @property
    @override
    def strict_schema(self) -> Json:
        """The server's schema, which may be of any kind."""
        return self._tool.input_schema

    @override
    def to_openai(self, *, api: Literal["responses", "chat"] = "responses") -> Json:
        """Return its definition; not as a strict function, which few schemas allow."""
        told = super().to_openai(api=api)
        inner = told["function"] if api == "chat" else told
        assert isinstance(inner, dict)  # noqa: S101 - made by it
        inner["strict"] = False
        return told

    @override
    async def __call__(self, /, **arguments: object) -> ToolResult:
        """See `Tool`."""
        try:
            answer = await self._mcp.call(self._tool.name, arguments)
            result = await shown(answer, self._session)
        except (SandboxLostError, WorkspaceClosedError):
            raise
        except IsoboxError as error:
            result = failed(error.message, error=type(error).__name__)
        redactor = await self._session.workspace._redactor()
        return result if redactor is None else result.redacted(redactor.redact_text)


#: Seconds that a listing waits for servers that start.
_PATIENCE: Final = 15.0


async def tools_of(servers: list[Mcp], session: Session) -> list[Tool]:
    """Return the tools of servers; one that fails has none, and hides no other.

    One that takes long to start goes on starting, and has none yet.
    """
    found: dict[str, list[Tool]] = {}

    async def ask(mcp: Mcp) -> None:
        try:
            mcp._note("tools")
            live = await mcp._live(patient=False)
            known = await live.tools()
        except (SandboxLostError, WorkspaceClosedError):
            raise
        except IsoboxError:
            return
        fit = [tool for tool in known if _fits(tool)]
        found[mcp.name] = [McpTool(mcp, tool, session) for tool in fit]

    waiting = [asyncio.create_task(ask(mcp)) for mcp in servers]
    try:
        ended, _ = await asyncio.wait(waiting, timeout=_PATIENCE)
    except BaseException:
        for task in waiting:
            task.cancel()
        raise
    for task in ended:
        task.result()
    every = (tool for mcp in servers for tool in found.get(mcp.name, ()))
    # SAFETY: a second tool of a name would be called in the first one's place.
    return list({tool.name: tool for tool in every}.values())


def model_name(server: str, tool: str) -> str:
    """Return a name that every model's interface takes, the same each time."""
    name = _UNUSUAL.sub("_", f"mcp__{server}__{tool}")
    if name == f"mcp__{server}__{tool}" and len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{digest}"


def _fits(tool: types.Tool) -> bool:
    # SAFETY: a schema goes into every request to a model.
    try:
        return len(json.dumps(tool.input_schema)) <= _LARGEST
    except (ValueError, RecursionError):
        return False
