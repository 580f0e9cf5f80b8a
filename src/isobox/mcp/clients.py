"""How programs are told of an MCP server."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+,-]*")


@dataclass(frozen=True, slots=True)
class Client:
    """A program that speaks MCP.

    Attributes:
        title: What it is called.
        file: Where its configuration is.
        write: Returns what goes there, for a command.
        in_project: It starts the command in the project's directory.
    """

    title: str
    file: str
    write: Callable[[Sequence[str]], str]
    in_project: bool = True


def snippet(name: str, command: Sequence[str]) -> str:
    """Return what to write where, so that a program starts `command`.

    Raises:
        InvalidArgumentError: No such program is known.
    """
    client = CLIENTS.get(name)
    if client is None:
        raise InvalidArgumentError(
            f"no client is called {name!r}; there are {', '.join(CLIENTS)}"
        )
    return f"# {client.title}: {client.file}\n{client.write(command)}\n"


def _servers(key: str, **more: object) -> Callable[[Sequence[str]], str]:
    def write(command: Sequence[str]) -> str:
        program, *arguments = command
        entry = {**more, "command": program, "args": arguments}
        return json.dumps({key: {"isobox": entry}}, indent=2)

    return write


def _opencode(command: Sequence[str]) -> str:
    entry = {"type": "local", "command": list(command), "enabled": True}
    return json.dumps({"mcp": {"isobox": entry}}, indent=2)


def _codex(command: Sequence[str]) -> str:
    program, *arguments = command
    words = ", ".join(map(_toml, arguments))
    return f"[mcp_servers.isobox]\ncommand = {_toml(program)}\nargs = [{words}]"


def _toml(word: str) -> str:
    # A basic string of TOML takes the escapes of JSON, but no halves of a pair,
    # and no DEL as it is.
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")


def _claude(command: Sequence[str]) -> str:
    return f"claude mcp add isobox -- {' '.join(map(_word, command))}"


def _word(word: str) -> str:
    return word if word and _PLAIN.fullmatch(word) else shlex.quote(word)


CLIENTS: dict[str, Client] = {
    "claude-code": Client("Claude Code", "run in the project", _claude),
    "claude-desktop": Client(
        "Claude Desktop",
        "claude_desktop_config.json",
        _servers("mcpServers"),
        in_project=False,
    ),
    "codex": Client("Codex", "~/.codex/config.toml", _codex),
    "cursor": Client("Cursor", ".cursor/mcp.json", _servers("mcpServers")),
    "gemini": Client("Gemini CLI", ".gemini/settings.json", _servers("mcpServers")),
    "vscode": Client("VS Code", ".vscode/mcp.json", _servers("servers", type="stdio")),
    "windsurf": Client(
        "Windsurf", "mcp_config.json", _servers("mcpServers"), in_project=False
    ),
    "zed": Client("Zed", "settings.json", _servers("context_servers", source="custom")),
    "opencode": Client("OpenCode", "opencode.json", _opencode),
}
