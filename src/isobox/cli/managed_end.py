"""`isobox close`, `rm` and `gc`: what ends workspaces."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from isobox.cli import managed_rows
from isobox.cli.managed_list import every
from isobox.cli.managed_place import NEVER, kind_of, tenant_of
from isobox.cli.managed_use import leased
from isobox.cli.status import complain, one_line
from isobox.errors import InvalidArgumentError
from isobox.manager.events import Kind
from isobox.manager.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from isobox.cli.managed_place import Place
    from isobox.manager.events import Event
    from isobox.manager.records import Record

#: What a sweep does, in the words of `--dry-run`.
_DONE: Final = {Kind.REAPED: "close", Kind.DELETED: "delete"}
_SHORTEST: Final = 0.001
#: What a class cannot do without, though nothing is made of it here.
_UNUSED: Final = {"docker": {"image": "none"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is collected: unused for `ttl`, closed for `retention` seconds.

    `backend` is whose engine is asked for what to rebuild.
    """

    ttl: float | None = None
    retention: float | None = None
    rebuild: bool = False
    backend: str = "local"


async def close(place: Place, workspaces: Sequence[str], *, wait: float) -> int:
    """Close workspaces, wherever they are open.

    Raises:
        InvalidArgumentError: There is no such workspace, or no store.
        WorkspaceHeldError: Another process did not hand one over in time.
    """
    for record in await _records(place, workspaces):
        if record.state is State.CLOSED:
            continue
        async with place.manager(record, {}, wait=wait) as manager:
            async with leased(manager, record):
                pass  # Now it is this process's to close.
            await manager.close_workspace(record.workspace_id)
    return 0


async def remove(
    place: Place, workspaces: Sequence[str], *, yes: bool, wait: float
) -> int:
    """Delete workspaces with their files, when the person says yes.

    Raises:
        InvalidArgumentError: There is no such workspace, or no store; or nobody
            can be asked.
        WorkspaceHeldError: Another process did not hand one over in time.
    """
    found = await _records(place, workspaces)
    if not yes and not _agreed(found):
        complain("nothing was deleted")
        return 1
    for record in found:
        tenant_of(record)
        async with place.manager(record, {}, wait=wait) as manager:
            await manager.delete_workspace(record.workspace_id)
    return 0


def _agreed(found: Sequence[Record]) -> bool:
    if not sys.stdin.isatty():
        raise InvalidArgumentError(
            "nobody can be asked whether to delete them; say --yes"
        )
    for record in found:
        tenant = tenant_of(record)
        who = (tenant.user, tenant.agent or "*", tenant.session or "*")
        complain(one_line(f"{record.workspace_id} of {' / '.join(who)}"))
    print("Delete these with all their files? [y/N] ", end="", file=sys.stderr)  # noqa: T201
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def collect(place: Place, due: Due, *, dry_run: bool, as_json: bool) -> int:
    """Do what is due, or say what that is.

    Raises:
        InvalidArgumentError: There is no store; or it is to be rebuilt, and only be
            said what would be done.
        PathError: The base directory is another store's.
        StoreError: It cannot be asked.
    """
    if dry_run and due.rebuild:
        raise InvalidArgumentError(
            "--dry-run says what is due of what the store knows, and --rebuild changes "
            "that: run `isobox gc --rebuild` first, without --ttl and --retention it "
            "closes and deletes nothing of what it enters"
        )
    if not dry_run:
        await _collected(place, due, partial(_tell, as_json=as_json))
        return 0
    async with place.opened() as store:
        await place.agrees(store)
        now = await place.now(store)
        async for record in every(store, now):
            if (what := _what(record, due, now)) is not None:
                _tell(what, record.workspace_id, as_json=as_json)
    return 0


async def _collected(place: Place, due: Due, tell: Callable[[str, str], None]) -> None:
    from isobox.manager import WorkspaceManager  # noqa: PLC0415 - as it is large

    def on_event(event: Event) -> None:
        if event.kind in _DONE:
            tell(_DONE[event.kind], str(event.workspace_id))

    # What is due is ended by any manager, whatever its class.
    async with WorkspaceManager(
        kind_of(due.backend),
        basedir=place.basedir,
        store=place.url,
        ttl=NEVER if due.ttl is None else max(due.ttl, _SHORTEST),
        options=_UNUSED.get(due.backend),
        retention=due.retention,
        sweep_interval=NEVER,
        on_event=on_event,
    ) as manager:
        if due.rebuild:
            entered = await manager.rebuild()
            many = "workspace was" if entered == 1 else "workspaces were"
            complain(f"{entered} {many} entered")
        await manager.sweep()


def _what(record: Record, due: Due, now: float) -> str | None:
    """Return what would become of a workspace: closed, deleted, or nothing."""
    if record.holders:
        return None
    if record.key is None or record.state is State.DELETING:
        return "delete"
    if record.state is State.CLOSED:
        closed, kept = record.closed_at or 0.0, due.retention
        return "delete" if kept is not None and now - closed >= kept else None
    if record.state is not State.LIVE:
        return "close"
    idle = managed_rows.idle(record, now)
    return "close" if due.ttl is not None and idle >= due.ttl else None


def _tell(what: str, workspace_id: str, *, as_json: bool) -> None:
    told = {"do": what, "id": workspace_id}
    line = json.dumps(told) if as_json else one_line(f"{what}  {workspace_id}")
    print(line)  # noqa: T201


async def _records(place: Place, workspaces: Sequence[str]) -> list[Record]:
    async with place.opened() as store:
        return [await place.record(store, each) for each in workspaces]
