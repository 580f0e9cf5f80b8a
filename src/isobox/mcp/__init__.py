"""A workspace as an MCP server, for harnesses that speak MCP.

`isobox mcp` is the command line of it; `server` makes one for your own program.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from isobox.errors import BackendMissingError

if TYPE_CHECKING:
    from isobox.mcp.questions import Questions
    from isobox.mcp.serving import server

__all__ = ["Questions", "server"]

_HOMES = {"Questions": "isobox.mcp.questions", "server": "isobox.mcp.serving"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ImportError as error:
        raise BackendMissingError(
            "serving MCP needs an extra: pip install 'isobox[mcp]'"
        ) from error
