"""What tests of a manager's store say again and again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Integer, delete, text

from isobox.manager.records import Claim, Granted, Record, State, Tenant
from isobox.manager.sql import tables

if TYPE_CHECKING:
    from isobox.manager.sql import SqlStore
    from isobox.manager.store import Store

#: Until when holders live in most tests, whose times are small numbers.
LONG = 1_000_000.0


def asked(holder: str, name: str = "one", **how) -> Claim:
    """Return a claim of a tenant's workspace."""
    return Claim(
        **{
            "holder": holder,
            "key": f"key of {name}",
            "workspace_id": f"w-{name}",
            "tenant": Tenant(user=f"user of {name}", agent="agent", session="session"),
            "backend": "local",
            "place": f"w-{name}.0",
            **how,
        }
    )


def found(name: str = "one", **how) -> Record:
    """Return a record as it may be found on a disk."""
    return Record(
        **{
            "workspace_id": f"w-{name}",
            "key": f"key of {name}",
            "tenant": Tenant(user=f"user of {name}", agent="agent", session="session"),
            "backend": "local",
            "place": f"w-{name}.0",
            "state": State.LIVE,
            "created_at": 1.0,
            "used_at": 1.0,
            **how,
        }
    )


def spare(holder: str, name: str = "spare", **how) -> Record:
    """Return a spare."""
    its = {"key": None, "tenant": None, "state": State.SPARE, "holders": (holder,)}
    return found(name, **{**its, **how})


async def granted(store: Store, holder: str, name: str = "one", now=1.0, **how):
    """Claim what is to be had, and return the answer."""
    answer = await store.claim(asked(holder, name, **how), now)
    assert isinstance(answer, Granted), answer
    return answer


async def live(store: Store, holder: str, name: str = "one", now=1.0, **how) -> Record:
    """Make a workspace live, and return its record."""
    record = (await granted(store, holder, name, now, **how)).record
    assert await store.made(record.workspace_id, holder, now)
    return await known(store, record.workspace_id, now)


async def closed(store: Store, holder: str, name: str = "one", now=1.0, **how):
    """Make a workspace and close it, and return its record."""
    record = await live(store, holder, name, now, **how)
    assert await store.release(record.workspace_id, holder, now, now)
    await store.closed(record.workspace_id, holder, now)
    return await known(store, record.workspace_id, now)


async def known(store: Store, workspace_id: str, now=1.0) -> Record:
    """Return the record of a workspace that there is."""
    record = await store.find(workspace_id, now)
    assert record is not None
    return record


async def alive(store: Store, *holders: str, until: float = LONG) -> None:
    """Let holders live."""
    for holder in holders:
        assert await store.beat(holder, 0.0, until, {}) is not None


async def cleared(store: SqlStore) -> SqlStore:
    """Empty a store, whose tables take longer to make than to empty."""
    await store._database.write(_clear)
    return store


def _clear(transaction):
    for table in tables.metadata.tables.values():
        if table is not tables.schema:
            transaction.change(delete(table))


_WRONG = {
    "holds of holders that are gone": (
        "SELECT count(*) FROM isobox_holds "
        "WHERE holder NOT IN (SELECT holder FROM isobox_holders)"
    ),
    "holds of workspaces that are gone": (
        "SELECT count(*) FROM isobox_holds "
        "WHERE workspace_id NOT IN (SELECT workspace_id FROM isobox_workspaces)"
    ),
    "workspaces that are held and are not": (
        "SELECT count(*) FROM isobox_workspaces w WHERE held != EXISTS "
        "(SELECT 1 FROM isobox_holds h WHERE h.workspace_id = w.workspace_id)"
    ),
    "members of workspaces that are gone": (
        "SELECT count(*) FROM isobox_members "
        "WHERE workspace_id NOT IN (SELECT workspace_id FROM isobox_workspaces)"
    ),
}


def _number(statement, transaction):
    return transaction.value(text(statement).columns(number=Integer))


async def wrongs(store: SqlStore) -> dict[str, int]:
    """Return what does not fit together in the tables, and how often."""
    found = {}
    for what, statement in _WRONG.items():
        number = await store._database.read(partial(_number, statement))
        found |= {what: number} if number else {}
    return found
