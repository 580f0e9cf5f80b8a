"""What a declaration of an MCP server may hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox import McpServer
from isobox.errors import InvalidArgumentError

URL = "http://a.org"
GOOD = {
    "stdio": {"command": ["git-server", "--repository", "."]},
    "as others write it": {"command": "npx", "args": ["-y", "server"], "type": "stdio"},
    "a port inside": {"url": "http://localhost:8000/mcp"},
    "a port that it opens": {"command": ["x"], "url": "http://127.0.0.1:8000/mcp"},
    "elsewhere": {"serverUrl": "https://mcp.example.org/mcp", "headers": {"A": "b"}},
    "with what is nothing to us": {"command": ["x"], "autoApprove": ["*"]},
    "by events": {"url": "https://mcp.example.org/sse", "type": "sse"},
    "with its old name": {"url": "https://example.org/", "type": "streamable-http"},
}

BAD = {
    "nothing": ({}, "name a command"),
    "no mapping": ([], "no mapping"),
    "something unknown": ({"command": ["x"], "sandbox": False}, "sandbox"),
    "a key that is no text": ({1: 2, "command": ["x"]}, "1 is not one of"),
    "two names of one thing": ({"url": "http://a.org", "serverUrl": "x"}, "serverUrl"),
    "a number as a word": ({"command": ["x", 1]}, "command is no text"),
    "words that are none": ({"command": ["x"], "args": "y"}, "args"),
    "arguments alone": ({"args": ["x"]}, "args"),
    "a NUL": ({"command": ["x\0"]}, "NUL"),
    "an endless word": ({"command": ["x" * 40_000]}, "32768"),
    "many words": ({"command": ["x"] * 300}, "256"),
    "another scheme": ({"url": "file:///etc/passwd"}, "http://"),
    "no host": ({"url": "http:///mcp"}, "http://"),
    "a port that is none": ({"url": "http://a.org:99999/"}, "url"),
    "a password": ({"url": "http://u:p@a.org/"}, "secret"),
    "a host that is none": ({"url": "http://2130706433/"}, "disguise"),
    "a command elsewhere": ({"command": ["x"], "url": "http://a.org"}, "inside"),
    "headers without a url": ({"command": ["x"], "headers": {"A": "b"}}, "headers"),
    "a header of two lines": ({"url": URL, "headers": {"A": "b\r\nC: d"}}, "header"),
    "a header that is none": ({"url": URL, "headers": {"A b": "c"}}, "header"),
    "no transport": ({"command": ["x"], "transport": "carrier-pigeon"}, "stdio, http"),
    "a wrong transport": ({"command": ["x"], "transport": "http"}, "does not go"),
    "variables that are none": ({"command": ["x"], "env": ["A=b"]}, "no mapping"),
    "a variable that is none": ({"command": ["x"], "env": {"A=B": "c"}}, "no name"),
    "a value that is no text": ({"command": ["x"], "env": {"A": 1}}, "no text"),
    "no time": ({"command": ["x"], "timeout": 0}, "seconds"),
    "endless time": ({"command": ["x"], "timeout": float("inf")}, "seconds"),
    "a flag that is none": ({"command": ["x"], "shared": "no"}, "true or false"),
    "a directory that is none": ({"command": ["x"], "cwd": 1}, "cwd"),
}  # fmt: skip

NAMES = {
    "a": True,
    "git": True,
    "my-server_2": True,
    "x" * 32: True,
    "": False,
    "x" * 33: False,
    "a__b": False,
    "-a": False,
    "a-": False,
    "a b": False,
    "ä": False,
    "a/b": False,
    "a\n": False,
}


@pytest.mark.parametrize("given", GOOD.values(), ids=GOOD.keys())
def test_what_is_good_survives_being_kept(given):
    made = McpServer.of("one", given)
    assert McpServer.of("one", json.loads(json.dumps(made.as_dict()))) == made


@pytest.mark.parametrize(("given", "why"), BAD.values(), ids=BAD.keys())
def test_what_is_bad_is_refused(given, why):
    with pytest.raises(InvalidArgumentError, match=why):
        McpServer.of("one", given)


@pytest.mark.parametrize(("name", "good"), NAMES.items())
def test_names(name, good):
    if good:
        assert McpServer(name=name, command=("x",)).name == name
    else:
        with pytest.raises(InvalidArgumentError, match="a name has"):
            McpServer(name=name, command=("x",))


@pytest.mark.parametrize(
    ("url", "remote", "host", "port"),
    [
        ("http://localhost/mcp", False, "localhost", 80),
        ("http://[::1]:9/mcp", False, "::1", 9),
        ("https://MCP.example.org/x", True, "mcp.example.org", 443),
        ("http://127.0.0.2/", True, "127.0.0.2", 80),
    ],
)
def test_where_it_is(url, remote, host, port):
    made = McpServer(name="one", url=url)
    assert (made.remote, made.host, made.port) == (remote, host, port)


def test_nothing_secret_is_shown():
    made = McpServer(name="one", url="http://a.org", headers={"X-Key": "hidden"})
    assert "hidden" not in repr(made)
    assert "hidden" not in repr(
        McpServer(name="a", command=("b",), env={"K": "hidden"})
    )


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["command", "args", "url", "transport", "env", "cwd", "headers", "shared",
     "timeout", "start_timeout", "type", "serverUrl"]
)  # fmt: skip


@given(st.text(), st.dictionaries(FIELDS, ANYTHING) | ANYTHING)
def test_anything_is_a_server_or_a_typed_error(name, told):
    try:
        made = McpServer.of(name, told)
    except InvalidArgumentError:
        return
    assert McpServer.of(name, made.as_dict()) == made
