"""`isobox exec` and `cp`: a manager's workspace in use, beside the service's use."""

from __future__ import annotations

import os
import posixpath
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from isobox.cli import policies
from isobox.cli.managed_place import tenant_of
from isobox.cli.run import shown, variables
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from contextlib import AbstractAsyncContextManager

    from isobox._workspace.base import WorkspaceBase
    from isobox.cli.managed_place import Place
    from isobox.cli.run import Request
    from isobox.manager import WorkspaceManager
    from isobox.manager.records import Record

#: What the command line's use is remembered as.
_NAME: Final = "isobox"
#: A copy's side that is in a workspace; anything with a slash before is a path.
_INSIDE: Final = re.compile(r"(?P<id>[a-z0-9][a-z0-9-]*):(?P<path>.*)", re.DOTALL)


async def execute(
    place: Place, workspace_id: str, request: Request, *, wait: float
) -> int:
    """Run a command in a workspace and return the status that stands for its end.

    Raises:
        InvalidArgumentError: There is no such workspace, or no store.
        WorkspaceHeldError: Another process did not hand it over in time.
    """
    options = {
        "env": variables(request.env),
        "policy": policies.chosen(request.policies, request.preset, place.basedir),
    }
    async with joined(place, workspace_id, options, wait=wait) as workspace:
        return await shown(workspace, request)


async def copy(place: Place, source: str, target: str, *, wait: float) -> int:
    """Copy a file or directory into a workspace, or out of it.

    Raises:
        InvalidArgumentError: Not exactly one side is in a workspace.
        PathError: There is nothing to copy, or it cannot be put there.
    """
    up, down = _INSIDE.fullmatch(target), _INSIDE.fullmatch(source)
    if up is not None and down is None:
        async with joined(place, up["id"], {}, wait=wait) as workspace:
            await workspace.upload(source, _named(up["path"], source))
    elif down is not None and up is None:
        async with joined(place, down["id"], {}, wait=wait) as workspace:
            await workspace.download(down["path"], _below(target, down["path"]))
    else:
        raise InvalidArgumentError(
            "name a path of a workspace as ID:PATH, and the other without ID; a "
            "host's file with a colon in its name as ./NAME"
        )
    return 0


def _named(path: str, source: str) -> str:
    """Return where in a workspace it goes: a name of its own if none is said."""
    if path and not path.endswith("/"):
        return path
    return path + os.path.basename(os.path.abspath(source))


def _below(target: str, source: str) -> str:
    """Return where on the host it goes: into a directory that is there.

    Raises:
        InvalidArgumentError: It has no name to have there.
    """
    if not os.path.isdir(target):
        return target
    # As `a/..` is the directory above `a`, and not the one above the target.
    name = posixpath.basename(posixpath.normpath(source or "."))
    if name == "..":
        raise InvalidArgumentError(f"{source!a:.200}: name a path below the workspace")
    return os.path.join(target, name)


@asynccontextmanager
async def joined(
    place: Place, workspace_id: str, options: Mapping[str, object], *, wait: float
) -> AsyncGenerator[WorkspaceBase]:
    """Have a workspace open, leased; it is let go at the end.

    Raises:
        InvalidArgumentError: There is no such workspace, or no store.
        WorkspaceHeldError: Another process did not hand it over in time.
    """
    async with place.opened() as store:
        record = await place.record(store, workspace_id)
    async with (
        place.manager(record, options, wait=wait) as manager,
        leased(manager, record) as workspace,
    ):
        yield workspace


def leased(
    manager: WorkspaceManager, record: Record
) -> AbstractAsyncContextManager[WorkspaceBase]:
    """Lease a workspace as its own user.

    Raises:
        InvalidArgumentError: It is nobody's.
    """
    tenant = tenant_of(record)
    return manager.lease(
        tenant.user,
        tenant.agent or _NAME,
        tenant.session or _NAME,
        workspace_id=record.workspace_id,
    )
