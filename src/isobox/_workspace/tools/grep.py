"""The Grep tool: lines by a regular expression."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, cast

from typing_extensions import override

from isobox._core.ops import Search
from isobox._workspace.tools.glob import unclosed
from isobox._workspace.tools.places import no_file
from isobox._workspace.tools.schema import (
    FARTHEST,
    flag,
    optional_text,
    text,
    whole,
)
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import (
    MOST_TEXT,
    count,
    failed,
    listed,
    note,
    said,
)
from isobox.errors import PathError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from isobox._core.ops import SearchMode
    from isobox._core.results import Match, Matches
    from isobox._workspace.tools.result import ToolResult

_MOST: Final = 1000
_MOST_CONTEXT: Final = 50
#: Characters of a line beyond which it is cut.
_LONGEST: Final = 500


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
    offset: int = whole(
        "Matches (or files) to pass over.", default=0, minimum=0, maximum=FARTHEST
    )


class Grep(SessionTool[GrepArguments]):
    """Finds text in files."""

    name: str = "Grep"
    description = (
        "Search files for a regular expression, in the order of their paths. Binary "
        "files, and those that version control ignores, are passed over."
    )
    read_only: ClassVar[bool] = True
    arguments = GrepArguments

    @override
    async def _perform(self, given: GrepArguments) -> ToolResult:
        if "\n" in given.pattern and not given.multiline:
            return failed(
                "pattern holds a newline, which no line does; give multiline=true to "
                "match across lines",
                error="arguments",
            )
        place = self.session.absolute(given.path)
        op = _operation(given, place)
        try:
            matches = await self.workspace._do(op)
        except PathError as error:
            return await no_file(self.session, place, error)
        if matches.timed_out and not matches.matches:
            return failed(_late(op, "nothing was found by then"), error="timeout")
        return self._told(given, op, matches)

    def _told(self, given: GrepArguments, op: Search, matches: Matches) -> ToolResult:
        shown = _fitting(matches.matches)
        more = matches.truncated or len(shown) < len(matches.matches)
        return said(
            self._body(given, shown) or note(_nothing(given, matches)),
            note(_rest(op, matches, len(shown))) if more else "",
            self._skipped(matches.skipped),
            self._partial(matches.partial),
            metadata={
                "matches": sum(match.count for match in shown),
                "files": len({match.path for match in shown}),
                "truncated": more,
            },
        )

    def _body(self, given: GrepArguments, matches: Sequence[Match]) -> str:
        if given.output_mode == "files":
            return "\n".join(self.session.shown(match.path) for match in matches)
        if given.output_mode == "count":
            return "\n".join(
                f"{self.session.shown(match.path)}:{match.count}" for match in matches
            )
        return "\n\n".join(
            f"{self.session.shown(path)}\n" + "\n".join(_excerpt(list(group)))
            for path, group in itertools.groupby(matches, key=lambda each: each.path)
        )

    def _skipped(self, paths: Sequence[str]) -> str:
        if not paths:
            return ""
        named = listed([self.session.shown(path) for path in paths], 10)
        return note(f"{count(len(paths), 'file')} could not be read: {named}")

    def _partial(self, paths: Sequence[str]) -> str:
        if not paths:
            return ""
        named = listed([self.session.shown(path) for path in paths], 10)
        return note(f"over 64 MiB, and not searched to the end: {named}")


def _operation(given: GrepArguments, place: str) -> Search:
    return Search(
        path=place,
        pattern=given.pattern,
        literal=given.literal,
        ignore_case=given.ignore_case,
        mode=cast("SearchMode", given.output_mode),
        multiline=given.multiline,
        glob=_at_any_depth(given.glob),
        types=(given.type,) if given.type else (),
        ignored=given.include_ignored,
        before=given.before or given.context,
        after=given.after or given.context,
        limit=given.limit,
        offset=given.offset,
    )


def _at_any_depth(glob: str | None) -> str | None:
    """Return a glob as ripgrep takes it: a name alone is looked for anywhere."""
    return f"**/{glob}" if glob and "/" not in glob else glob


def _fitting(matches: Sequence[Match]) -> Sequence[Match]:
    """Return the matches from the first on that a result holds."""
    room = MOST_TEXT
    for index, match in enumerate(matches):
        lines = (*match.before, match.text, *match.after)
        room -= sum(min(len(line), _LONGEST) + 10 for line in lines)
        if room < 0:
            return matches[: max(1, index)]
    return matches


def _excerpt(matches: Sequence[Match]) -> Iterator[str]:
    """Yield the lines of one file, a line of its own where some are left out."""
    lines = _numbered(matches)
    context = any(match.before or match.after for match in matches)
    last = min(lines)
    for number in sorted(lines):
        if context and number > last + 1:
            yield "--"
        yield lines[number]
        last = number


def _numbered(matches: Sequence[Match]) -> dict[int, str]:
    lines: dict[int, str] = {}
    for match in matches:
        text = match.text.split("\n")
        first, end = match.line - len(match.before), match.line + len(text)
        for number, line in enumerate(match.before, first):
            lines.setdefault(number, f"{number}-{_clipped(line)}")
        for number, line in enumerate(match.after, end):
            lines.setdefault(number, f"{number}-{_clipped(line)}")
        for number, line in enumerate(text, match.line):
            lines[number] = f"{number}:{_clipped(line)}"
    return lines


def _clipped(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _rest(op: Search, matches: Matches, shown: int) -> str:
    """Say how to see what is not shown."""
    if matches.timed_out and shown == len(matches.matches):
        return _late(op, "what comes after this was not searched")
    return f"there may be more; go on with offset={op.offset + shown}"


def _late(op: Search, so_far: str) -> str:
    return (
        f"the pattern ran out of time after {op.timeout:g} s, and {so_far}; simplify "
        "it, or narrow path or glob"
    )


def _nothing(given: GrepArguments, matches: Matches) -> str:
    if given.offset:
        return f"no more than {count(given.offset, 'match', 'matches')}"
    where = f"in {count(matches.files, 'file')} searched"
    if matches.partial:
        where = f"in what was searched of {count(matches.files, 'file')}"
    if given.glob and unclosed(given.glob):
        return f"no match {where}; glob {given.glob} is malformed: a [ without its ]"
    if given.include_ignored:
        return f"no match {where}"
    return f"no match {where}; include_ignored=true searches ignored files too"
