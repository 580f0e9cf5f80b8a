"""The MCP servers of a workspace, by whom they are for."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from isobox._workspace.mcp.live import Live, Offers
from isobox._workspace.mcp.server import McpStatus
from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    LimitError,
    McpError,
    SandboxLostError,
    WorkspaceClosedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.client._transport import Transport

    from isobox._workspace.mcp.server import McpServer

#: Seconds that a server must have lived for its end to be no failed start.
_LIVED: Final = 10.0
#: Seconds before it is started anew: the first wait, and the longest.
_FIRST: Final = 0.25
_LONGEST: Final = 8.0
#: Servers that run at once unless the workspace says otherwise.
MOST: Final = 40

#: The agent and the session that something is for; None is any.
Whom = tuple[str | None, str | None]


@dataclass(slots=True, eq=False)
class _Slot:
    """Where one instance of a server has its place."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    starting: Live | None = None
    live: Live | None = None
    since: float = 0.0
    failures: int = 0
    not_before: float = 0.0
    problem: IsoboxError | None = None

    @property
    def runs(self) -> Live | None:
        """The server, if it runs."""
        return None if self.live is None or self.live.ended is not None else self.live


class Servers:
    """Declares servers, starts them when they are needed, and ends them.

    Args:
        transport: Makes the way to a server that is to start.
        offers: What servers may ask of the host.
        most: Servers that run at once; the one that was used least recently
            makes room for another.
    """

    def __init__(
        self,
        transport: Callable[[Live], Awaitable[Transport]],
        *,
        offers: Offers,
        most: int = MOST,
    ) -> None:
        self._transport = transport
        self._offers = offers
        self._most = most
        self._declared: dict[Whom, dict[str, McpServer]] = {}
        self._slots: OrderedDict[tuple[str, ...], _Slot] = OrderedDict()

    def __bool__(self) -> bool:
        return any(self._declared.values())

    def declare(self, server: McpServer, whom: Whom) -> None:
        """Make a server known to an agent and session.

        Raises:
            InvalidArgumentError: They have one of that name.
        """
        known = self._declared.setdefault(whom, {})
        if server.name in known:
            raise InvalidArgumentError(
                f"there is an MCP server {server.name!r} already; remove it first"
            )
        known[server.name] = server

    async def withdraw(self, name: str, whom: Whom) -> None:
        """End a server and forget it.

        Raises:
            InvalidArgumentError: There is none of that name.
        """
        known = self._declared.get(whom, {})
        if name not in known:
            raise InvalidArgumentError(_unknown(name, known))
        scope = _scope(whom, known.pop(name))
        keys = [key for key in self._slots if key[0] == scope]
        await self._end_all([self._slots.pop(key) for key in keys])

    def exactly(self, whom: Whom) -> Mapping[str, McpServer]:
        """Return the servers that were declared for just these."""
        return self._declared.get(whom, {})

    def visible(self, agent: str | None, session: str) -> dict[str, McpServer]:
        """Return the servers that an agent has in a session, the nearest first."""
        found: dict[str, McpServer] = {}
        for whom in _whoms(agent, session):
            for name, server in self._declared.get(whom, {}).items():
                found.setdefault(name, server)
        return found

    def find(self, name: str, agent: str | None, session: str) -> McpServer:
        """Return what is declared of a server that an agent has in a session.

        Raises:
            InvalidArgumentError: There is none of that name.
        """
        return self._nearest(name, agent, session)[1]

    async def live(
        self, name: str, agent: str | None, session: str, *, patient: bool = True
    ) -> Live:
        """Return a running server, started if it does not run.

        Args:
            name: The server's name.
            agent: The agent that needs it.
            session: The session that needs it.
            patient: Wait where it failed a moment ago, instead of saying so.

        Raises:
            McpError: It does not start.
            InvalidArgumentError: There is none of that name.
            LimitError: So many run and are in use that none can make room.
        """
        slot = self._slot(name, agent, session)
        if slot.runs:
            return slot.runs
        async with slot.lock:
            if slot.runs:
                return slot.runs
            self._note_end(slot)
            await self._pause(slot, patient=patient)
            live = Live(self.find(name, agent, session))
            try:
                await self._make_room(slot, live)
                await self._start(slot, live)
            finally:
                slot.starting = None
        if slot not in self._slots.values():
            await self._end(slot)
            raise McpError(f"MCP server {name} was ended meanwhile")
        return live

    def status(self, agent: str | None, session: str) -> list[McpStatus]:
        """Return how each server does that an agent has in a session."""
        return [
            self._status(server, self._slots.get(self._key(name, agent, session)))
            for name, server in self.visible(agent, session).items()
        ]

    async def end_session(self, session: str) -> None:
        """End the servers that one session had for itself."""
        keys = [key for key in self._slots if len(key) > 1 and key[-1] == session]
        await self._end_all([self._slots.pop(key) for key in keys])

    async def aclose(self) -> None:
        """End every server; those that are declared stay so."""
        slots, self._slots = self._slots, OrderedDict()
        await self._end_all(list(slots.values()))

    # One place.

    def _nearest(
        self, name: str, agent: str | None, session: str
    ) -> tuple[Whom, McpServer]:
        for whom in _whoms(agent, session):
            known = self._declared.get(whom)
            if known is not None and name in known:
                return whom, known[name]
        raise InvalidArgumentError(_unknown(name, self.visible(agent, session)))

    def _key(self, name: str, agent: str | None, session: str) -> tuple[str, ...]:
        whom, server = self._nearest(name, agent, session)
        scope = _scope(whom, server)
        return (scope,) if server.shared else (scope, agent or "", session)

    def _slot(self, name: str, agent: str | None, session: str) -> _Slot:
        key = self._key(name, agent, session)
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = _Slot()
        self._slots.move_to_end(key)
        return slot

    def _status(self, server: McpServer, slot: _Slot | None) -> McpStatus:
        if slot is None:
            return McpStatus(server=server, state="idle")
        live = slot.live
        log = "" if live is None else live.log.text
        if live is not None and live.ended is None:
            return McpStatus(server=server, state="running", log=log)
        problem = live.failure() if live is not None else slot.problem
        if problem is None:
            return McpStatus(server=server, state="idle", log=log)
        return McpStatus(server=server, state="failed", problem=str(problem), log=log)

    def _note_end(self, slot: _Slot) -> None:
        """Count the end of a server as a failure if it came soon."""
        live, slot.live = slot.live, None
        if live is None:
            return
        if time.monotonic() - slot.since >= _LIVED:
            slot.failures = 0
            return
        self._count(slot, live.failure())

    def _count(self, slot: _Slot, problem: IsoboxError) -> None:
        wait = min(_LONGEST, _FIRST * 2**slot.failures)
        slot.failures += 1
        slot.problem = problem
        slot.not_before = time.monotonic() + wait

    async def _pause(self, slot: _Slot, *, patient: bool) -> None:
        left = slot.not_before - time.monotonic()
        if left <= 0:
            return
        if not patient and slot.problem is not None:
            raise type(slot.problem)(slot.problem.message)
        await anyio.sleep(left)

    async def _start(self, slot: _Slot, live: Live) -> None:
        try:
            await live.start(self._transport, self._offers)
        except (SandboxLostError, WorkspaceClosedError):
            raise
        except IsoboxError as error:
            self._count(slot, error)
            raise
        slot.live, slot.since, slot.problem = live, time.monotonic(), None

    async def _make_room(self, wanted: _Slot, live: Live) -> None:
        """Take one of the places, as soon as there is one."""
        while True:
            others = [slot for slot in self._slots.values() if slot is not wanted]
            starting = [slot for slot in others if slot.starting is not None]
            running = [slot for slot in others if slot.live is not None]
            if len(starting) + len(running) < self._most:
                wanted.starting = live
                return
            idle = [slot for slot in running if slot.live and not slot.live.users]
            if idle:
                # From here on, the place is nobody else's.
                wanted.starting = live
                await self._end(idle[0])
                return
            if not starting:
                raise LimitError(
                    f"{self._most} MCP servers run and all are in use; raise "
                    "`max_mcps`, or share one between sessions"
                )
            async with starting[0].lock:
                pass

    async def _end_all(self, slots: list[_Slot]) -> None:
        async with anyio.create_task_group() as group:
            for slot in slots:
                group.start_soon(self._end, slot)

    async def _end(self, slot: _Slot) -> None:
        starting, live, slot.live = slot.starting, slot.live, None
        for each in (starting, live):
            if each is not None:
                await each.aclose()


def _whoms(agent: str | None, session: str) -> tuple[Whom, ...]:
    if agent is None:
        return (None, session), (None, None)
    return (agent, session), (agent, None), (None, session), (None, None)


def _scope(whom: Whom, server: McpServer) -> str:
    agent, session = whom
    return f"{agent!r} {session!r} {server.name}"


def _unknown(name: str, known: dict[str, McpServer]) -> str:
    there = ", ".join(sorted(known)) or "none"
    return f"no MCP server is called {name!r}; there are: {there}"
