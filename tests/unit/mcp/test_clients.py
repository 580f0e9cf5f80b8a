"""What programs are told of an MCP server."""

from __future__ import annotations

import json
import shlex
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox.errors import InvalidArgumentError
from isobox.mcp import clients

WORDS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)


def parsed(name, text):
    body = text.partition("\n")[2]
    if name == "claude-code":
        words = shlex.split(body)
        assert words[:5] == ["claude", "mcp", "add", "isobox", "--"]
        return words[5:]
    if name == "codex":
        entry = tomllib.loads(body)["mcp_servers"]["isobox"]
    else:
        (servers,) = json.loads(body).values()
        entry = servers["isobox"]
    if name == "opencode":
        return entry["command"]
    return [entry["command"], *entry["args"]]


@pytest.mark.parametrize("name", clients.CLIENTS)
@given(words=WORDS)
def test_a_snippet_is_what_it_is_made_from(name, words):
    command = ["isobox", "mcp", *words]
    assert parsed(name, clients.snippet(name, command)) == command


def test_an_unknown_client_is_told_which_there_are():
    with pytest.raises(InvalidArgumentError, match="cursor"):
        clients.snippet("emacs", ["isobox"])
