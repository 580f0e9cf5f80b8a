"""The manager: whose workspace is which, for as long as it is used."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from isobox.errors import InvalidArgumentError, NotEntitledError
from isobox.manager import keys
from isobox.manager.clock import Clock, SystemClock
from isobox.manager.events import Kind, Stats
from isobox.manager.keys import PER_AGENT, Sharing
from isobox.manager.records import Record, Tenant
from isobox.manager.running import Running
from isobox.manager.settings import called, checked, count, yes_or_no

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Sequence

    from isobox._workspace.base import WorkspaceBase
    from isobox.manager.entry import Entry
    from isobox.manager.events import OnEvent
    from isobox.manager.making import Options
    from isobox.manager.records import State
    from isobox.manager.store import Store

#: Says whether a caller may join a workspace that is not its user's.
Entitled = Callable[[Tenant, Record], bool | Awaitable[bool]]


class WorkspaceManager:
    """Gives every user, agent and session its workspace, and closes what is idle.

    Use it as an async context manager. Several managers, in any number of
    processes, may share a store and a directory: each workspace is open in one of
    them, or, of kinds that can be attached to, in several.

    Every method raises WorkspaceClosedError when the manager is not open, and
    StoreError when its store cannot be asked.

    Args:
        kind: The class of the workspaces, such as BubblewrapWorkspace.
        basedir: Directory with one directory for each workspace; it is made, for
            this user alone, and others may not write to it.
        store: Where whose workspace is which is kept: a path, an URL such as
            `postgresql://user@host/database`, or a Store. SQLite in
            `basedir/manager.db` if None.
        options: Keywords for the class, or a function that returns them for a
            Tenant.
        isolation: Who shares a workspace: PER_USER, PER_AGENT or PER_SESSION.
            Each has workspaces of its own: after a change of it, all are new.
        ttl: Seconds without use after which a workspace is closed; its files stay.
            A lease, a running command and a call of an MCP server are use.
        retention: Seconds after its closing until a workspace is deleted with its
            files; never if None.
        max_live: Workspaces that may be open, in all processes of the store.
        max_live_per_user: The same, of one user.
        max_creating: Workspaces that this process makes at once.
        creation_rate: Workspaces that this process makes in a second.
        queue_timeout: Seconds that a request waits for a place, or for another
            process to hand its workspace over.
        queue_limit: Workspaces that may wait to be made; of more, the last of the
            user with the most waiting is refused.
        prewarm: Workspaces that are made ahead, for whoever comes first. `options`
            must be a mapping then.
        evict_after: Seconds without use after which a workspace may be closed to
            make room for another.
        handover_after: Seconds without use after which a workspace is closed for
            another process that wants it.
        sweep_interval: Seconds between two sweeps; a tenth of `ttl`, from a second
            to a minute, if None.
        heartbeat: Seconds between two signs of life to the store.
        holder_timeout: Seconds without one after which a process is taken for
            dead, and what it has for anybody's.
        audit: Whether each workspace has an audit log in its directory.
        on_event: Told of each Event; what it raises is logged.
        entitled: Whether a caller, a Tenant, may have another user's workspace, a
            Record, that it names; a function or coroutine function. Nobody may if
            None.
        clock: What tells the time.

    Raises:
        InvalidArgumentError: An argument cannot be honoured.
    """

    def __init__(
        self,
        kind: type[WorkspaceBase],
        *,
        basedir: str | os.PathLike[str],
        store: Store | str | os.PathLike[str] | None = None,
        options: Options | None = None,
        isolation: Sharing = PER_AGENT,
        ttl: float = 3600,
        retention: float | None = None,
        max_live: int | None = None,
        max_live_per_user: int | None = None,
        max_creating: int = 4,
        creation_rate: float | None = None,
        queue_timeout: float = 60,
        queue_limit: int = 1000,
        prewarm: int = 0,
        evict_after: float = 60,
        handover_after: float = 1.0,
        sweep_interval: float | None = None,
        heartbeat: float = 5.0,
        holder_timeout: float = 20.0,
        audit: bool = True,
        on_event: OnEvent | None = None,
        entitled: Entitled | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._isolation = keys.sharing(isolation)
        called("entitled", entitled)
        called("on_event", on_event, waits=False)
        self._entitled = entitled
        self._running = Running(
            kind,
            basedir=basedir,
            store=store,
            options={} if options is None else options,
            settings=checked(
                ttl=ttl,
                retention=retention,
                max_live=max_live,
                max_live_per_user=max_live_per_user,
                queue_timeout=queue_timeout,
                prewarm=prewarm,
                evict_after=evict_after,
                handover_after=handover_after,
                sweep_interval=sweep_interval,
                heartbeat=heartbeat,
                holder_timeout=holder_timeout,
            ),
            max_creating=max_creating,
            creation_rate=creation_rate,
            queue_limit=queue_limit,
            audit=yes_or_no("audit", audit),
            on_event=on_event,
            clock=_clock(clock),
        )

    # -- life -----------------------------------------------------------------

    async def open(self) -> None:
        """Connect to the store, and begin to sweep.

        Raises:
            ConflictError: It is open already.
            StoreError: The store cannot be reached.
            PathError: The directory cannot be used, or belongs to another store.
        """
        await self._running.open()

    async def aclose(self) -> None:
        """Close what is open, or leave it to others where it can be; files stay.

        Workspaces that are being made are waited for. Safe to call again.
        """
        await self._running.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- workspaces -------------------------------------------------------------

    async def get_workspace(
        self,
        user_id: str,
        agent_id: str,
        session_id: str,
        workspace_id: str | None = None,
    ) -> WorkspaceBase:
        """Return the live workspace of a session; it is made if there is none.

        Requests for one workspace get the same; none waits for another's. It may
        be closed once it is idle: hold a `lease` of it to keep it.

        Args:
            user_id: The user: any text of at most 1024 characters, as the others.
            agent_id: The agent.
            session_id: The session.
            workspace_id: The workspace to join, instead of the one that `isolation`
                gives. It must be the user's, or `entitled` must say yes.

        Raises:
            NotEntitledError: There is no such workspace, or it is another's.
            QueueTimedOutError: No place became free in time.
            QuotaError: Too many wait for a place, and most of them are this user's.
            SandboxLostError: Its sandbox ends as soon as it is made.
            WorkspaceHeldError: Another process has it and uses it.
            IsoboxError: It cannot be made; the message says why.
        """
        caller = keys.caller(user_id, agent_id, session_id)
        return (await self._reach(caller, workspace_id))[1]

    @contextlib.asynccontextmanager
    async def lease(
        self,
        user_id: str,
        agent_id: str,
        session_id: str,
        workspace_id: str | None = None,
    ) -> AsyncGenerator[WorkspaceBase]:
        """Have a session's workspace; it is not closed for want of use meanwhile.

        It is lost only if its sandbox dies, or somebody closes or deletes it. See
        `get_workspace` for the arguments and errors.
        """
        caller = keys.caller(user_id, agent_id, session_id)
        entry, workspace = await self._reach(caller, workspace_id)
        entry.leases += 1
        try:
            yield workspace
        finally:
            entry.leases -= 1
            self._running.used(entry)

    async def close_workspace(
        self, workspace_id: str, *, user_id: str | None = None
    ) -> bool:
        """Close a workspace that this process has open; its files stay.

        Args:
            workspace_id: Its name.
            user_id: The user whose it must be; anybody's if None, which is for
                who administers the manager.

        Returns:
            Whether it was open here.

        Raises:
            NotEntitledError: There is no such workspace, or it is another's.
        """
        record = await self._record(workspace_id, user_id)
        return await self._running.deleting.close(record)

    async def delete_workspace(
        self, workspace_id: str, *, user_id: str | None = None
    ) -> None:
        """Close a workspace and delete it with its files, for good.

        It is closed here even if it is in use; another process is waited for. See
        `close_workspace` for the arguments.

        Raises:
            NotEntitledError: There is no such workspace, or it is another's.
            WorkspaceHeldError: Another process has it open and keeps it.
            PathError: Some of its files, at this path, cannot be removed.
        """
        record = await self._record(workspace_id, user_id)
        await self._running.deleting.delete(record)

    async def list_workspaces(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        states: Sequence[State] = (),
        after: str | None = None,
        limit: int = 1000,
    ) -> Sequence[Record]:
        """Return workspaces in the order of their names, of all processes.

        Args:
            user_id: Only this user's; with None, everybody's and spares.
            agent_id: Only those that this agent alone has.
            session_id: Only those that this session alone has.
            states: Only those in one of these.
            after: Only those with a later name: the last one of the page before.
            limit: The most.

        Raises:
            InvalidArgumentError: An argument is not what it has to be.
        """
        self._running.check()
        site = self._running.site
        return await site.store.records(
            site.holder.now(),
            user=_if_given("user_id", user_id),
            agent=_if_given("agent_id", agent_id),
            session=_if_given("session_id", session_id),
            states=keys.states(states),
            after=_if_given("after", after),
            limit=count("limit", limit, least=0),
        )

    # -- the rest -----------------------------------------------------------------

    async def purge_session(self, user_id: str, agent_id: str, session_id: str) -> None:
        """Remove what a session has left.

        Its workspace, if it has one of its own; else what it offloaded there, its
        shell, and that it was there. The latter also where it joined by an id.

        Raises:
            WorkspaceHeldError: Another process has the workspace and keeps it.
        """
        whose = keys.caller(user_id, agent_id, session_id)
        await self._running.purge.session(self._isolation, whose)

    async def purge_agent(self, user_id: str, agent_id: str) -> None:
        """Remove what an agent has left for a user: workspaces, or its sessions.

        Raises:
            WorkspaceHeldError: Another process has a workspace and keeps it.
        """
        user, agent = keys.name("user_id", user_id), keys.name("agent_id", agent_id)
        await self._running.purge.agent(self._isolation, user, agent)

    async def sweep(self) -> None:
        """Close and delete what is due, now.

        Raises:
            PathError: `.trash` in the directory has become a link.
        """
        self._running.check()
        await self._running.sweep.run()

    async def rebuild(self) -> int:
        """Enter workspaces that directories and engines have and the store has not.

        Containers that another deployment made are left to it. Those of before there
        were deployments count if their directory is here.

        Returns:
            How many were entered, with those that the opening entered because the
            store knew of nothing.
        """
        self._running.check()
        return await self._running.rebuild.run()

    def stats(self) -> Stats:
        """Return what this process has, and what has happened in it."""
        return self._running.stats()

    async def _reach(
        self, caller: Tenant, workspace_id: str | None
    ) -> tuple[Entry, WorkspaceBase]:
        self._running.check()
        making, reach = self._running.site.making, self._running.reach
        whose = keys.tenant(
            self._isolation, caller.user, caller.agent or "", caller.session or ""
        )
        member = None if self._isolation is Sharing.PER_SESSION else caller
        if workspace_id is None:
            key = keys.key(self._isolation, making.backend, whose)
            called = keys.workspace_id(key, whose, making.deployment)
            return await reach.reach(key, whose, called, member)
        return await self._join(caller, keys.text("workspace_id", workspace_id))

    async def _join(
        self, caller: Tenant, workspace_id: str
    ) -> tuple[Entry, WorkspaceBase]:
        record = await self._entitled_to(caller, workspace_id)
        while True:
            key, tenant = record.key, record.tenant
            assert key is not None  # noqa: S101 - spares are nobody's
            assert tenant is not None  # noqa: S101 - spares are nobody's
            # What a deleted spare was called, its tenant's next one is not.
            making = self._running.site.making
            called = keys.workspace_id(key, tenant, making.deployment)
            found = await self._running.reach.reach(key, tenant, called, None)
            entry = found[0]
            if entry.record is not None and entry.record.place == record.place:
                self._running.reach.join(entry, caller)
                return found
            # It was deleted meanwhile: a yes was for that one, not for this.
            record = await self._entitled_to(caller, workspace_id)

    async def _entitled_to(self, caller: Tenant, workspace_id: str) -> Record:
        record = await self._running.find(workspace_id)
        if record is not None and record.tenant is not None:
            if record.tenant.user == caller.user:
                return record
            if self._entitled is not None:
                said = self._entitled(caller, record)
                if (await said if inspect.isawaitable(said) else said) is True:
                    return record
        raise self._denied(workspace_id, caller)

    async def _record(self, workspace_id: str, user_id: str | None) -> Record:
        self._running.check()
        workspace_id = keys.text("workspace_id", workspace_id)
        user_id = _if_given("user_id", user_id)
        record = await self._running.find(workspace_id)
        if record is None or record.tenant is None:
            raise self._denied(workspace_id, None)
        if user_id is not None and record.tenant.user != user_id:
            raise self._denied(workspace_id, Tenant(user=user_id))
        return record

    def _denied(self, workspace_id: str, caller: Tenant | None) -> NotEntitledError:
        error = NotEntitledError(
            f"there is no workspace {workspace_id!a:.100} that this caller may have"
        )
        self._running.site.events.emit(Kind.DENIED, None, caller, reason=error.message)
        return error


def _clock(given: Clock | None) -> Clock:
    if given is not None and not isinstance(given, Clock):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(f"clock={given!r:.200} is no Clock")
    return given or SystemClock()


def _if_given(what: str, given: object) -> str | None:
    return None if given is None else keys.text(what, given)
