"""Run in a container: which rung is reached, and what holds there. JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from typing import Any, get_args

from isobox import BubblewrapWorkspace
from isobox.abc import MinIsolation
from isobox.errors import IsoboxError

TRIES = """
import json, os, socket, sys
plan = json.loads(sys.argv[1])
found = []
def attempt(name, function):
    try:
        function()
        found.append(name)
    except OSError:
        pass
attempt("secret", lambda: open(plan["secret"]).read())
attempt("shadow", lambda: open("/etc/shadow").read())
attempt("isobox", lambda: os.listdir("/isobox"))
attempt("usr", lambda: open("/usr/new", "w"))
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", plan["port"]), 1))
attempt("signal", lambda: os.kill(plan["victim"], 0))
attempt("environment", lambda: open("/proc/%d/environ" % plan["victim"]).read())
attempt("sysctl", lambda: open("/proc/sys/kernel/core_pattern", "w"))
attempt("nothing", lambda: open("kept", "w").close())
print(json.dumps(found))
"""


async def reached(asked: MinIsolation) -> dict[str, Any]:
    """Start with `asked`, and try what must not be possible."""
    try:
        async with BubblewrapWorkspace(min_isolation=asked) as workspace:
            return await examined(workspace)
    except IsoboxError as error:
        return {"error": type(error).__name__, "message": str(error)}


async def examined(workspace: BubblewrapWorkspace) -> dict[str, Any]:
    secret = tempfile.mkdtemp() + "/secret"
    with open(secret, "w") as file:
        file.write("of the container")
    with (
        subprocess.Popen(["sleep", "60"], env={"SECRET": "x"}) as victim,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        plan = {
            "secret": secret,
            "port": server.getsockname()[1],
            "victim": victim.pid,
        }
        tries = await workspace.run(["python3", "-c", TRIES, json.dumps(plan)])
        victim.kill()
    late = await workspace.run(
        "(setsid sleep 987 &); setsid sleep 987 & sleep 987", timeout=0.5
    )
    return {
        "isolation": workspace.isolation().as_dict(),
        "tries": json.loads(tries.stdout or "null") or tries.stderr,
        "uid": (await workspace.run("id -u")).stdout.strip(),
        "timed_out": late.timed_out,
        "left": len(sleepers()),
    }


def sleepers() -> list[int]:
    """Return the processes that a timeout should have ended."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read() == b"sleep\0987\0":
                    found.append(int(name))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    # The container's first process reaps nobody's children otherwise.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    levels = [each for each in get_args(MinIsolation) if each in sys.argv[1:]]
    print(json.dumps({asked: asyncio.run(reached(asked)) for asked in levels}))
