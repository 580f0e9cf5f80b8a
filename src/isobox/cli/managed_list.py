"""`isobox ls`, `logs` and `stats`: what a manager's store says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isobox.cli import managed_rows
from isobox.cli.status import complain
from isobox.errors import InvalidArgumentError
from isobox.manager.records import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isobox.cli.managed_place import Place
    from isobox.manager.records import Record
    from isobox.manager.store import Store

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which workspaces are listed: of these names, in these states; how many."""

    user: str | None = None
    agent: str | None = None
    session: str | None = None
    states: tuple[str, ...] = ()
    limit: int = 1000


async def show(place: Place, wanted: Wanted, *, as_json: bool) -> int:
    """Print the workspaces that are wanted, by their id.

    Raises:
        InvalidArgumentError: There is no such state, or no store.
        StoreError: The store cannot be asked.
    """
    states = tuple(map(_state, wanted.states))
    async with place.opened() as store:
        now = await place.now(store)
        found = [each async for each in _records(store, wanted, states, now)]
    managed_rows.show(found[: wanted.limit], now, as_json=as_json)
    if len(found) > wanted.limit:
        complain(f"there are more than {wanted.limit}; see --limit")
    return 0


async def _records(
    store: Store, wanted: Wanted, states: tuple[State, ...], now: float
) -> AsyncIterator[Record]:
    """Give the records that are wanted, and one more if there are more."""
    after, left = None, wanted.limit + 1
    while left > 0:
        page = await store.records(
            now,
            user=wanted.user,
            agent=wanted.agent,
            session=wanted.session,
            states=states,
            after=after,
            limit=min(_PAGE, left),
        )
        for record in page:
            yield record
        if len(page) < min(_PAGE, left):
            return
        after, left = page[-1].workspace_id, left - len(page)


async def every(store: Store, now: float) -> AsyncIterator[Record]:
    """Give every record of a store, page by page."""
    after = None
    while page := await store.records(now, after=after, limit=_PAGE):
        for record in page:
            yield record
        after = page[-1].workspace_id


def _state(word: str) -> State:
    try:
        return State(word)
    except ValueError:
        known = ", ".join(State)
        raise InvalidArgumentError(f"--state {word}: there are {known}") from None


async def log(place: Place, workspace_id: str) -> str:
    """Return the path of a workspace's audit log.

    Raises:
        InvalidArgumentError: There is no such workspace, or no store.
    """
    async with place.opened() as store:
        record = await place.record(store, workspace_id)
    return place.log(record)


async def stats(place: Place, *, as_json: bool) -> int:
    """Print how many workspaces there are in each state, and who holds them."""
    async with place.opened() as store:
        now = await place.now(store)
        counts = await store.counts(now)
        holders = list(await store.holders(now))
    by_state = {state.value: counts.get(state, 0) for state in State}
    if as_json:
        print(json.dumps({"workspaces": by_state, "holders": holders}))  # noqa: T201
    else:
        managed_rows.show_counts(by_state, holders)
    return 0
