"""What to say of a path where no file is."""

from __future__ import annotations

import difflib
import posixpath
from typing import TYPE_CHECKING

from isobox._workspace.tools.wording import count, failed, listed, plain
from isobox.errors import IsoboxError, PathIsDirectoryError, PathMissingError

if TYPE_CHECKING:
    from isobox._core.results import Listing
    from isobox._workspace.tools.result import ToolResult
    from isobox._workspace.tools.session import Session
    from isobox.errors import PathError

_MOST_NAMES = 50
_MOST_COMPARED = 2000


def no_name(path: str) -> ToolResult | None:
    """Return a refusal of a path that names a directory, such as `a/`."""
    if not path.endswith(("/", "/.")):
        return None
    return failed(f"{path} names a directory; give a file's name", error="arguments")


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
    names = [plain(entry.name) + "/" * entry.is_directory for entry in listing.entries]
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
    link = next((each for each in listing.entries if each.name == name), None)
    if link is not None and link.target is not None:
        return f"{shown} is a link to {link.target!r}, which does not exist"
    names = [entry.name for entry in listing.entries]
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        paths = [session.shown(posixpath.join(above, each)) for each in near]
        return f"{shown} does not exist; did you mean {' or '.join(paths)}?"
    if names:
        where = session.shown(above)
        holds = listed([plain(each) for each in names], _MOST_NAMES)
        return f"{shown} does not exist; {where} holds {holds}"
    return f"{shown} does not exist; its directory is empty"


async def _names(session: Session, path: str) -> Listing | None:
    try:
        return await session.workspace.scan(path, limit=_MOST_COMPARED)
    except IsoboxError:
        return None
