"""A workspace as an MCP server, for harnesses that speak MCP.

`isobox mcp` is the command line of it; `server` makes one for your own program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isobox.errors import BackendMissingError

if TYPE_CHECKING:
    from isobox.mcp.questions import Questions
    from isobox.mcp.server import server

__all__ = ["Questions", "server"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from isobox.mcp import questions, server  # noqa: PLC0415 - the SDK is large
    except ImportError as error:
        raise BackendMissingError(
            "serving MCP needs an extra: pip install 'isobox[mcp]'"
        ) from error
    return questions.Questions if name == "Questions" else server.server
