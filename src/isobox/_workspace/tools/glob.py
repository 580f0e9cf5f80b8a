"""The Glob tool: files by name, newest first."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from isobox._core.ops import Scan
from isobox._core.paths import referred
from isobox._workspace.tools.places import no_file
from isobox._workspace.tools.schema import (
    FARTHEST,
    flag,
    optional_text,
    text,
    whole,
)
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import count, failed, note, said
from isobox.errors import PathError

if TYPE_CHECKING:
    from isobox._core.results import Listing
    from isobox._workspace.tools.result import ToolResult

_MOST_FILES: Final = 1000
_MAGIC: Final = re.compile(r"[*?\[{\\]")
_SET: Final = re.compile(r"\\.|\[[!^]?\]?[^\]]*\]")
_IGNORED: Final = "include_ignored=true looks at ignored files too"


@dataclass(frozen=True, kw_only=True)
class GlobArguments:
    """What Glob takes."""

    pattern: str = text(
        "Such as `**/*.py`, `src/*.{c,h}` or `test_[a-z]*.py`: `**` stands for any "
        "number of directories, `*` and `?` stay within a name. Relative to `path`, "
        "or absolute."
    )
    path: str = optional_text("Directory to search.", default=".")
    include_ignored: bool = flag(
        "Show files too that .gitignore, .ignore or .rgignore leave out, and those of "
        "version control."
    )
    limit: int = whole(
        "The most files to show.", default=100, minimum=1, maximum=_MOST_FILES
    )
    offset: int = whole(
        "Files to pass over, to go on.", default=0, minimum=0, maximum=FARTHEST
    )


class Glob(SessionTool[GlobArguments]):
    """Finds files by their names."""

    name: str = "Glob"
    description = (
        "Find files by name pattern, the last changed first. Files that version "
        "control ignores are left out unless include_ignored=true. Links to "
        "directories are not followed."
    )
    read_only: ClassVar[bool] = True
    arguments = GlobArguments

    @override
    async def _perform(self, given: GlobArguments) -> ToolResult:
        given = replace(given, pattern=referred(given.pattern))
        if ".." in given.pattern.split("/"):
            return failed(
                'pattern holds ".."; give the directory to search as path',
                error="arguments",
            )
        base, pattern = split(given.pattern, given.path)
        place = self.session.absolute(base)
        try:
            listing = await self.workspace._do(
                Scan(
                    path=place,
                    depth=None,
                    pattern=pattern,
                    ignored=given.include_ignored,
                    files_only=True,
                    newest=True,
                    limit=given.limit,
                    offset=given.offset,
                )
            )
        except PathError as error:
            return await no_file(self.session, place, error)
        paths = [self.session.shown(entry.path) for entry in listing.entries]
        if not paths:
            return said(note(_nothing(given)), metadata={"files": 0})
        return said(
            "\n".join(paths), _extent(listing, given), metadata={"files": len(paths)}
        )


def split(pattern: str, path: str) -> tuple[str, str]:
    """Return the directory to search, and the pattern relative to it."""
    if not pattern.startswith("/"):
        return path, pattern.removeprefix("./")
    parts = pattern.split("/")
    fixed = next(
        (index for index, part in enumerate(parts) if _MAGIC.search(part)),
        len(parts) - 1,
    )
    return posixpath.join("/", *parts[:fixed]), "/".join(parts[fixed:])


def unclosed(pattern: str) -> bool:
    """Whether a set of characters has no end, so that its `[` stands for itself."""
    return "[" in _SET.sub("", pattern)


def _extent(listing: Listing, given: GlobArguments) -> str:
    if not listing.truncated:
        return ""
    after = given.offset + len(listing.entries)
    return note(f"there are more; go on with offset={after}")


def _nothing(given: GlobArguments) -> str:
    if given.offset:
        return f"no more than {count(given.offset, 'file')} match {given.pattern}"
    said = f"no file matches {given.pattern}"
    if unclosed(given.pattern):
        return f"{said}, which is malformed: a [ without its ]"
    if "/" not in given.pattern:
        below = f"**/{given.pattern} looks below it too"
        hidden = "" if given.include_ignored else f", {_IGNORED}"
        return f"{said} in {given.path} itself; {below}{hidden}"
    if not given.include_ignored:
        return f"{said}; {_IGNORED}"
    return said
