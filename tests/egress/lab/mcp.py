"""An MCP server over HTTP."""

from __future__ import annotations

import json

from tests.egress.lab.web import Answer, Request

from isobox.testing import mcp_server

JSON = [("content-type", "application/json")]


async def answer(request: Request) -> Answer:
    """Answer one message; there is no stream of events."""
    if request.method != "POST":
        return Answer(405)
    message = json.loads(request.body)
    if "id" not in message:
        return Answer(202)
    told = {"jsonrpc": "2.0", **mcp_server.respond(message)}
    return Answer(200, JSON, json.dumps(told).encode())
