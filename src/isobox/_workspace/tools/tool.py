"""What every tool is: a name, a description, arguments, and a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from typing_extensions import override

from isobox._layers.caller import calling
from isobox._workspace.tools.schema import (
    BadArgumentsError,
    parsed,
    schema_of,
    strict_schema_of,
)
from isobox._workspace.tools.wording import failed
from isobox.errors import IsoboxError, SandboxLostError, WorkspaceClosedError

if TYPE_CHECKING:
    from isobox._workspace.tools.result import Json, ToolResult
    from isobox._workspace.tools.session import Session

A = TypeVar("A")


class Tool(ABC):
    """Something that a model can call; see `WorkspaceBase.list_tools`.

    Attributes:
        name: What the model calls it by.
        description: What the model reads about it.
        read_only: It changes nothing in the workspace.
    """

    name: str
    description: str
    read_only: ClassVar[bool]

    @property
    @abstractmethod
    def input_schema(self) -> Json:
        """JSON Schema of the arguments; nothing beyond it is taken."""

    @property
    @abstractmethod
    def strict_schema(self) -> Json:
        """The same, with every argument required and null for "left out"."""

    @abstractmethod
    async def __call__(self, **arguments: object) -> ToolResult:
        """Do it and return what the model is to see.

        What is wrong with the arguments, the files or the command is told in
        the result. An argument that is None counts as left out.

        Raises:
            SandboxLostError: The sandbox is gone; no tool will work again.
            WorkspaceClosedError: The workspace is not open.
        """

    def to_anthropic(self) -> Json:
        """Return its definition for Anthropic's Messages API."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
        }

    def to_openai(self, *, api: Literal["responses", "chat"] = "responses") -> Json:
        """Return its definition as a strict function for OpenAI's APIs.

        Args:
            api: The Responses API or Chat Completions.
        """
        function: Json = {
            "name": self.name,
            "description": self.description,
            "parameters": self.strict_schema,
            "strict": True,
        }
        if api == "chat":
            return {"type": "function", "function": function}
        return {"type": "function", **function}

    def to_mcp(self) -> Json:
        """Return its definition as MCP's `tools/list` has it."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": {
                "readOnlyHint": self.read_only,
                "destructiveHint": not self.read_only,
                "openWorldHint": False,
            },
        }


class SessionTool(Tool, Generic[A]):
    """A tool over a session of a workspace, its arguments one dataclass."""

    arguments: type[A]

    def __init__(self, session: Session) -> None:
        self.session = session
        self.workspace = session.workspace

    @property
    @override
    def input_schema(self) -> Json:
        """JSON Schema of the arguments; nothing beyond it is taken."""
        return schema_of(self.arguments)

    @property
    @override
    def strict_schema(self) -> Json:
        """The same, with every argument required and null for "left out"."""
        return strict_schema_of(self.arguments)

    @override
    async def __call__(self, **arguments: object) -> ToolResult:
        """See `Tool`."""
        try:
            given = parsed(self.arguments, arguments)
        except BadArgumentsError as error:
            problems = "\n".join(f"- {each}" for each in error.problems)
            return failed(f"{self.name} was not run:\n{problems}", error="arguments")
        try:
            with calling(self.name):
                result = await self._perform(given)
        except (SandboxLostError, WorkspaceClosedError):
            raise
        except IsoboxError as error:
            result = failed(error.message, error=type(error).__name__)
        redactor = await self.workspace._redactor()
        return result if redactor is None else result.redacted(redactor.redact_text)

    @abstractmethod
    async def _perform(self, given: A) -> ToolResult: ...
