"""A store and a directory that belong together: one deployment, one identity."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from isobox.errors import PathError
from isobox.manager import identity, keys
from isobox.manager.records import Deployment, State

if TYPE_CHECKING:
    from isobox.manager.places import Places
    from isobox.manager.store import Store

#: The label that says whose a sandbox is, of several deployments on one engine.
LABEL: Final = "isobox-deployment"
#: The states in which a workspace has a directory.
_WITH_FILES: Final = (State.LIVE, State.CLOSING, State.CLOSED)
#: Workspaces that are looked for in a directory that does not say whose it is.
_SAMPLE: Final = 100


async def agreed(store: Store, places: Places, now: float) -> str:
    """Return the identity of a store and a directory; the first to ask makes it.

    Raises:
        PathError: They do not belong together, or the directory does not say.
        StoreError: The store cannot be asked.
    """
    known = await checked(store, places, now)
    proposed = secrets.token_hex(16) if known is None else known.identity
    said = identity.make(places.path, proposed)
    here = Deployment(identity=said, basedir=places.path)
    entered = here if known == here else await store.deploy(here)
    if entered.identity != said:
        raise _of_another(places, entered)
    return said


async def checked(store: Store, places: Places, now: float) -> Deployment | None:
    """Return what a store knows of its directory, which this is; change nothing.

    Raises:
        PathError: They do not belong together, or the directory does not say.
        StoreError: The store cannot be asked.
    """
    known, here = await store.deployment(), identity.read(places.path)
    if known is not None and here is not None:
        if known.identity != here:
            raise _of_another(places, known)
        return known
    sample = await store.records(now, states=_WITH_FILES, limit=_SAMPLE)
    has_files = any(keys.is_place(one.place) and places.exists(one) for one in sample)
    if not has_files and (sample or known is not None):
        raise _elsewhere(places, known)
    return known


def _of_another(places: Places, known: Deployment) -> PathError:
    return PathError(
        f"the directory {places.path!r} belongs to another store; this store's is "
        f"{known.basedir!r}: give that as `basedir`, or the other store as `store`",
        path=places.path,
    )


def _elsewhere(places: Places, known: Deployment | None) -> PathError:
    if known is None:
        return PathError(
            f"the store's workspaces have no files in {places.path!r}: give the "
            "`basedir` that they were made in, or another `store`",
            path=places.path,
        )
    return PathError(
        f"the directory {places.path!r} is not the store's, which is "
        f"{known.basedir!r}: give that as `basedir`, or see that it is mounted; if "
        f"the store is to begin anew here, write {known.identity} to "
        f"{identity.path(places.path)!r}",
        path=places.path,
    )
