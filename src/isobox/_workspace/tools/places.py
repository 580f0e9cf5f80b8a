"""What to say of a path where no file is."""

from __future__ import annotations

import difflib
import posixpath
from typing import TYPE_CHECKING

from isobox._workspace.tools.wording import count, failed, listed
from isobox.errors import IsoboxError, PathIsDirectoryError, PathMissingError

if TYPE_CHECKING:
    from isobox._core.results import Listing
    from isobox._workspace.tools.result import ToolResult
    from isobox._workspace.tools.session import Session
    from isobox.errors import PathError

_MOST_NAMES = 50
_MOST_COMPARED = 2000


async def no_file(session: Session, path: str, error: PathError) -> ToolResult:
    """Return what helps a model that named a path where no file is."""
    if isinstance(error, PathIsDirectoryError):
        message = await _directory(session, path)
    elif isinstance(error, PathMissingError):
        message = await _missing(session, path)
    else:
        message = error.message
    return failed(message, error=type(error).__name__)


async def _directory(session: Session, path: str) -> str:
    shown = session.shown(path)
    listing = await _names(session, path)
    if listing is None or not listing.entries:
        return f"{shown} is an empty directory; name a file"
    names = [entry.name + "/" * entry.is_directory for entry in listing.entries]
    return (
        f"{shown} is a directory; name a file in it. It holds "
        f"{count(len(names), 'name')}: {listed(names, _MOST_NAMES)}"
    )


async def _missing(session: Session, path: str) -> str:
    shown = session.shown(path)
    above, name = posixpath.split(path)
    listing = await _names(session, above)
    if listing is None:
        return f"{shown} does not exist, nor does its directory; find it with Glob"
    names = [entry.name for entry in listing.entries]
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        paths = [session.shown(posixpath.join(above, each)) for each in near]
        return f"{shown} does not exist; did you mean {' or '.join(paths)}?"
    if names:
        where = session.shown(above)
        return f"{shown} does not exist; {where} holds {listed(names, _MOST_NAMES)}"
    return f"{shown} does not exist; its directory is empty"


async def _names(session: Session, path: str) -> Listing | None:
    try:
        return await session.workspace.scan(path, limit=_MOST_COMPARED)
    except IsoboxError:
        return None
