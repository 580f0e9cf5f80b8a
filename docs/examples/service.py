"""A service that runs commands for many users, each in a workspace of their own.

    python service.py

Each line that a client sends names a user, an agent, a session and a command; the
answer is a line with what the command printed. The example is its own client, and
believes it: a service takes the user from how it authenticates its callers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from typing import TYPE_CHECKING

from isobox import BubblewrapWorkspace, IsoboxError, Limits
from isobox.manager import WorkspaceManager

if TYPE_CHECKING:
    from isobox.manager import Event

SECONDS = 30
FIELDS = ("user", "agent", "session", "command")


class Service:
    """Answers lines of JSON, each by the workspace of who sends it."""

    def __init__(self, manager: WorkspaceManager) -> None:
        self._manager = manager

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one client, line by line."""
        try:
            async for line in reader:
                answer = await self._answered(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ValueError, ConnectionError) as error:  # too long a line, or gone
            print(f"a client is let go of: {error}", file=sys.stderr)
        finally:
            writer.close()

    async def _answered(self, line: bytes) -> dict[str, object]:
        try:
            asked = json.loads(line)
            user, agent, session, command = (asked[each] for each in FIELDS)
        except (ValueError, KeyError, TypeError):
            return {"error": "BadRequest", "message": f"give JSON with {FIELDS}"}
        try:
            async with self._manager.lease(user, agent, session) as workspace:
                result = await workspace.run(command, timeout=SECONDS)
        except IsoboxError as error:
            return {"error": type(error).__name__, "message": str(error)}
        return {"exit_code": result.exit_code, "stdout": result.stdout}


async def ask(path: str, user: str, session: str, command: str) -> None:
    """Send one request, and print the answer as a client would."""
    reader, writer = await asyncio.open_unix_connection(path)
    asked = {"user": user, "agent": "coder", "session": session, "command": command}
    writer.write(json.dumps(asked).encode() + b"\n")
    print(f"{user}, {session}: {command}")
    print("  ", json.loads(await reader.readline()))
    writer.close()
    await writer.wait_closed()


def tell(event: Event) -> None:
    """Print what happens to workspaces, without what changes from run to run."""
    if event.kind in ("created", "attached") and event.tenant:
        print(f"   [{event.kind.value}: {event.tenant.user}]")


async def day(directory: str, requests: list[tuple[str, str, str]]) -> None:
    """Serve for as long as there are requests."""
    async with WorkspaceManager(
        BubblewrapWorkspace,
        basedir=f"{directory}/workspaces",
        options={"limits": Limits(memory=256 << 20)},
        max_live_per_user=2,
        on_event=tell,
    ) as manager:
        path = f"{directory}/socket"
        async with await asyncio.start_unix_server(Service(manager).serve, path):
            for request in requests:
                await ask(path, *request)


async def main() -> None:
    """Serve two days: the files of the first are there on the second."""
    with tempfile.TemporaryDirectory() as directory:
        await day(
            directory,
            [
                ("ada", "monday", "echo 'two and two' > notes; ls"),
                ("bob", "monday", "cat notes || echo nothing there"),
                ("ada", "monday, later", "cat notes; exit 3"),
            ],
        )
        print("The service stops, and starts again.")
        await day(directory, [("ada", "tuesday", "cat notes")])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
