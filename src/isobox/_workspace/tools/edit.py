"""The Edit tool: exact replacements, all of them or none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from isobox._core.ops import Edit as EditOp
from isobox._core.ops import Replacement
from isobox._workspace.tools.places import no_file, no_name
from isobox._workspace.tools.schema import flag, records, text
from isobox._workspace.tools.session import Seen
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import bounded_diff, count, failed, note, said
from isobox.errors import ConflictError, EditMismatchError, PathError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._core.results import Edited
    from isobox._workspace.tools.result import ToolResult

_MOST_EDITS: Final = 100
_NUMBERED: Final = re.compile(r"\A *\d+\t")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One replacement."""

    old_string: str = text(
        "Text to replace, exactly as it stands in the file, without line numbers; "
        "with enough lines around it to stand there only once."
    )
    new_string: str = text("Text to put there.", empty=True)
    replace_all: bool = flag("Replace it wherever it stands.")


@dataclass(frozen=True, kw_only=True)
class EditArguments:
    """What Edit takes."""

    file_path: str = text(
        "The file, relative to the workspace's directory or absolute."
    )
    edits: tuple[Change, ...] = records(
        "Replacements, made one after another: each sees what the ones before it left.",
        Change,
        most=_MOST_EDITS,
    )


class Edit(SessionTool[EditArguments]):
    """Replaces text in a file."""

    name: str = "Edit"
    description = (
        "Replace exact pieces of text in a file. Either all of the edits are made or "
        "none. Line ends, encoding and mode of the file are kept. A file that has "
        "changed since it was read is refused: read it again."
    )
    read_only: ClassVar[bool] = False
    arguments = EditArguments

    @override
    async def _perform(self, given: EditArguments) -> ToolResult:
        if problems := list(_useless(given.edits)):
            return failed("\n".join(problems), error="arguments")
        if refusal := no_name(given.file_path):
            return refusal
        path = self.session.absolute(given.file_path)
        seen = self.session.seen(path)
        try:
            edited = await self.workspace._do(
                EditOp(
                    path=path,
                    replacements=tuple(map(_replacement, given.edits)),
                    if_match=seen.digest if seen else None,
                    text=True,
                )
            )
        except ConflictError:
            return failed(
                f"{self.session.shown(path)} has changed since it was read; nothing "
                "was edited. Read it again, then edit it as it is now",
                error="ConflictError",
            )
        except EditMismatchError as error:
            return failed(_mismatch(error, given.edits), error="EditMismatchError")
        except PathError as error:
            return await no_file(self.session, path, error)
        return self._done(path, seen, edited)

    def _done(self, path: str, seen: Seen | None, edited: Edited) -> ToolResult:
        form = seen or Seen("")
        digest = edited.entry.digest or ""
        self.session.note(path, Seen(digest, form.newline, form.encoding))
        made = count(edited.replacements, "replacement")
        return said(
            note(f"edited {self.session.shown(path)}: {made}"),
            # Its first two lines name the file, which has just been named.
            bounded_diff(edited.diff.splitlines()[2:]),
            metadata={
                "path": path,
                "replacements": edited.replacements,
                "digest": edited.entry.digest,
            },
        )


def _replacement(change: Change) -> Replacement:
    return Replacement(
        change.old_string.encode(), change.new_string.encode(), change.replace_all
    )


def _useless(changes: tuple[Change, ...]) -> Iterator[str]:
    for index, change in enumerate(changes):
        if change.old_string == change.new_string:
            yield (
                f"Edit was not run: edits[{index}]: old_string and new_string are the "
                "same; give what is to stand there instead"
            )


def _mismatch(error: EditMismatchError, changes: tuple[Change, ...]) -> str:
    if any(_NUMBERED.match(change.old_string) for change in changes):
        return (
            f"{error.message}\nold_string begins with a line number: leave out the "
            "numbers and tabs that Read puts before each line"
        )
    return error.message
