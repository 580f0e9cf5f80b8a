"""The Grep tool: lines by a regular expression."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from isobox._workspace.tools.places import no_file
from isobox._workspace.tools.schema import flag, optional_text, text, whole
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import MOST_TEXT, count, listed, note, said
from isobox.errors import PathError, PathIsDirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from isobox._core.results import Match, Matches
    from isobox._workspace.tools.result import ToolResult

_MOST: Final = 1000
_MOST_CONTEXT: Final = 50


@dataclass(frozen=True, kw_only=True)
class GrepArguments:
    """What Grep takes."""

    pattern: str = text(
        "Regular expression, such as `def \\w+\\(` ; text as it stands with `literal`."
    )
    path: str = optional_text("File or directory to search.", default=".")
    output_mode: str = optional_text(
        "`content`: matching lines with their numbers. `files`: paths of the files "
        "that have one. `count`: these paths with how many matches each has.",
        default="content",
        choices=("content", "files", "count"),
    )
    glob: str | None = optional_text(
        "Only files whose path matches, such as `*.py` (at any depth) or "
        "`src/**/*.{ts,tsx}`."
    )
    type: str | None = optional_text(
        "Only files of this type, by ripgrep's names: py, js, ts, rust, go, java, c, "
        "cpp, md, json, ..."
    )
    literal: bool = flag("Take the pattern as plain text.")
    ignore_case: bool = flag("Match letters of either case.")
    multiline: bool = flag("Let the pattern match across lines, and `.` any of them.")
    context: int = whole(
        "Lines to show before and after each match.",
        default=0,
        minimum=0,
        maximum=_MOST_CONTEXT,
    )
    before: int = whole(
        "Lines to show before each match.",
        default=0,
        minimum=0,
        maximum=_MOST_CONTEXT,
    )
    after: int = whole(
        "Lines to show after each match.",
        default=0,
        minimum=0,
        maximum=_MOST_CONTEXT,
    )
    include_ignored: bool = flag(
        "Search files too that .gitignore, .ignore or .rgignore leave out, and those "
        "of version control."
    )
    limit: int = whole(
        "The most matches (or files) to show.", default=200, minimum=1, maximum=_MOST
    )
    offset: int = whole("Matches (or files) to pass over.", default=0, minimum=0)
