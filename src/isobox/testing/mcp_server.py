"""An MCP server of the standard library alone, which does what is asked of it.

It goes into a sandbox as a file and runs there, so it imports nothing of ours. It
speaks over its standard streams or, with a port as its argument, over HTTP.
"""

from __future__ import annotations

import base64
import http.server
import json
import os
import sys
import threading
import time
from typing import Any

TOOLS: dict[str, dict[str, Any]] = {
    "echo": {"text": {"type": "string"}},
    "pid": {},
    "environment": {"name": {"type": "string"}},
    "sleep": {"seconds": {"type": "number"}},
    "die": {},
    "refuse": {},
    "unknown_error": {},
    "flood": {"bytes": {"type": "integer"}},
    "large": {"bytes": {"type": "integer"}},
    "garbage": {},
    "image": {},
    "chatter": {"bytes_per_second": {"type": "integer"}},
    "progress": {},
    "log": {},
    "add_tool": {},
    "elicit": {},
    "sample": {},
    "self": {"self": {"type": "string"}},
}
#: One pixel.
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
    "awAAAABJRU5ErkJggg=="
)

_lock = threading.Lock()
_waiting: dict[object, threading.Event] = {}
_answers: dict[object, Any] = {}
_cancelled: dict[object, threading.Event] = {}


class RefusedError(Exception):
    """A request that is answered with an error."""


def say(words: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def send(message: dict[str, Any]) -> None:
    """Send a message over standard output."""
    data = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    with _lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def ask(method: str, params: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Ask the client, and return what it answers."""
    number = f"s{time.monotonic_ns()}"
    answered = _waiting[number] = threading.Event()
    send({"id": number, "method": method, "params": params})
    answered.wait(10)
    return _answers.pop(number, None)


def text(value: object) -> dict[str, Any]:
    """Return a result of one text."""
    return {"content": [{"type": "text", "text": str(value)}]}


def call(name: str, given: dict[str, Any], request: Any) -> dict[str, Any]:  # noqa: ANN401, C901, PLR0912 - one case a tool
    """Do what a tool does."""
    if name == "echo":
        return text(given["text"])
    if name == "self":
        return text(given["self"])
    if name == "pid":
        return text(os.getpid())
    if name == "environment":
        return text(os.environ.get(given["name"], "(none)"))
    if name == "sleep":
        cancelled = _cancelled.setdefault(request, threading.Event())
        say("asleep")
        if cancelled.wait(given["seconds"]):
            say("cancelled")
        return text("slept")
    if name == "die":
        say("last words")
        os._exit(7)
    if name == "refuse":
        return {**text("I would rather not"), "isError": True}
    if name == "unknown_error":
        raise RefusedError("cannot do that")
    if name == "flood":
        left = given["bytes"]
        while left > 0:
            left -= sys.stderr.write("x" * min(left, 65536))
        return text("flooded")
    if name == "large":
        return text("y" * given["bytes"])
    if name == "garbage":
        with _lock:
            sys.stdout.buffer.write(b"this is no message\n\n[1]\n\xff\xfe\n")
            sys.stdout.buffer.flush()
        return text("after garbage")
    if name == "image":
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}
    if name == "chatter":
        return chatter(given["bytes_per_second"])
    if name == "progress":
        token = request_meta.get(request)
        for step in (1, 2, 3):
            params = {"progressToken": token, "progress": step, "total": 3}
            send({"method": "notifications/progress", "params": params})
        return text("done")
    if name == "log":
        params = {"level": "warning", "data": "something to note"}
        send({"method": "notifications/message", "params": params})
        return text("logged")
    if name == "add_tool":
        TOOLS["added"] = {}
        send({"method": "notifications/tools/list_changed"})
        return text("added")
    if name == "elicit":
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        asked: dict[str, Any] = {"message": "May I?", "requestedSchema": schema}
        return text(json.dumps(ask("elicitation/create", asked)))
    if name == "sample":
        content = {"type": "text", "text": "Hello"}
        asked = {"messages": [{"role": "user", "content": content}], "maxTokens": 9}
        return text(json.dumps(ask("sampling/createMessage", asked)))
    raise RefusedError(f"no tool {name}")


def chatter(rate: int) -> dict[str, Any]:
    """Send log notifications at a rate until the process ends."""

    def talk() -> None:
        params = {"level": "info", "data": "z" * 10_000}
        while True:
            send({"method": "notifications/message", "params": params})
            time.sleep(10_000 / rate)

    threading.Thread(target=talk, daemon=True).start()
    return text("chattering")


def tool(name: str) -> dict[str, Any]:
    """Describe a tool; each says of itself that it only reads."""
    schema = {"type": "object", "properties": TOOLS[name]}
    return {
        "name": name,
        "description": f"Does {name}.",
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True},
    }


request_meta: dict[object, object] = {}


def answer(method: str, params: dict[str, Any], number: object) -> dict[str, Any]:
    """Return the result of a request."""
    if method == "initialize":
        time.sleep(float(os.environ.get("SLOW_START", "0")))
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {
                "tools": {"listChanged": True},
                "resources": {},
                "prompts": {},
                "logging": {},
            },
            "serverInfo": {"name": "contract", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [tool(name) for name in TOOLS]}
    if method == "tools/call":
        request_meta[number] = params.get("_meta", {}).get("progressToken")
        return call(params["name"], params.get("arguments") or {}, number)
    if method == "resources/list":
        return {"resources": [{"uri": "note://one", "name": "one"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "resources/read":
        blob = base64.b64encode(b"\0\1\2").decode()
        contents = {"note://one": {"text": "first"}, "note://raw": {"blob": blob}}
        if params["uri"] not in contents:
            raise RefusedError(f"no resource {params['uri']}")
        return {"contents": [{"uri": params["uri"], **contents[params["uri"]]}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]}
    if method == "prompts/get":
        content = {"type": "text", "text": f"hello {params['arguments']['who']}"}
        return {"messages": [{"role": "user", "content": content}]}
    raise RefusedError(f"no method {method}")


def respond(message: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a request."""
    number = message["id"]
    try:
        result = answer(message["method"], message.get("params") or {}, number)
    except RefusedError as error:
        return {"id": number, "error": {"code": -32601, "message": str(error)}}
    return {"id": number, "result": result}


def arrived(message: dict[str, Any]) -> None:
    """Take a message from standard input."""
    if "method" not in message:
        number = message.get("id")
        _answers[number] = message.get("result", message.get("error"))
        if number in _waiting:
            _waiting.pop(number).set()
    elif "id" in message:
        threading.Thread(target=lambda: send(respond(message)), daemon=True).start()
    elif message["method"] == "notifications/cancelled":
        number = message["params"]["requestId"]
        _cancelled.setdefault(number, threading.Event()).set()


class Handler(http.server.BaseHTTPRequestHandler):
    """Streamable HTTP with an answer of JSON to each request."""

    def do_POST(self) -> None:
        """Answer one message."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = json.loads(body)
        told = b""
        if "id" in message:
            told = json.dumps({"jsonrpc": "2.0", **respond(message)}).encode()
        self.send_response(200 if told else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def do_GET(self) -> None:
        """Offer no stream of events."""
        self.send_error(405)

    def do_DELETE(self) -> None:
        """End no session."""
        self.send_error(405)


def main() -> None:
    """Serve."""
    say("starting")
    if len(sys.argv) > 1:
        address = ("127.0.0.1", int(sys.argv[1]))
        http.server.ThreadingHTTPServer(address, Handler).serve_forever()
    for line in sys.stdin.buffer:
        arrived(json.loads(line))


if __name__ == "__main__":
    main()
