"""The Write tool: a whole file at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from isobox._workspace.tools.places import no_file, no_name
from isobox._workspace.tools.schema import flag, text
from isobox._workspace.tools.session import Seen
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import count, difference, failed, note, said
from isobox.errors import ConflictError, PathError

if TYPE_CHECKING:
    from isobox._core.results import Entry
    from isobox._workspace.tools.result import ToolResult


@dataclass(frozen=True, kw_only=True)
class WriteArguments:
    """What Write takes."""

    file_path: str = text(
        "The file, relative to the workspace's directory or absolute. Missing "
        "directories are made."
    )
    content: str = text("All that the file is to hold; UTF-8.", empty=True)
    overwrite: bool = flag(
        "Replace the file whatever it holds, even if it was never read or has "
        "changed since."
    )


class Write(SessionTool[WriteArguments]):
    """Makes a file, or replaces one that the session has seen."""

    name: str = "Write"
    description = (
        "Create a file, or replace all that it holds, at once; its mode is kept. An "
        "existing file must have been read before and be as it was then, unless "
        "overwrite=true. To change parts of a file, use Edit."
    )
    read_only: ClassVar[bool] = False
    arguments = WriteArguments

    @override
    async def _perform(self, given: WriteArguments) -> ToolResult:
        if refusal := no_name(given.file_path):
            return refusal
        path = self.session.absolute(given.file_path)
        seen = self.session.seen(path)
        digest = seen.digest if seen else ""
        try:
            entry = await self.workspace.write(
                path, given.content, if_match=None if given.overwrite else digest
            )
        except ConflictError:
            return failed(
                self._conflict(path, known=seen is not None), error="ConflictError"
            )
        except PathError as error:
            return await no_file(self.session, path, error)
        before = self.session.text(path)
        newline = "\r\n" if "\r\n" in given.content else "\n"
        self.session.note(path, Seen(entry.digest or "", newline), given.content)
        return said(
            note(self._done(path, given, entry, known=seen is not None)),
            difference(before, given.content) if before is not None else "",
            _change_of_form(seen, newline),
            metadata={
                "path": path,
                "created": None if given.overwrite else seen is None,
                "bytes": entry.size,
                "digest": entry.digest,
            },
        )

    def _conflict(self, path: str, *, known: bool) -> str:
        shown = self.session.shown(path)
        if known:
            return (
                f"{shown} has changed, or is gone, since it was read; nothing was "
                "written. Read it again, or give overwrite=true to replace it"
            )
        return (
            f"{shown} exists and has not been read in this session; nothing was "
            "written. Read it first, or give overwrite=true to replace it unseen"
        )

    def _done(
        self, path: str, given: WriteArguments, entry: Entry, *, known: bool
    ) -> str:
        verb = "wrote" if given.overwrite else "replaced" if known else "created"
        lines = len(given.content.splitlines())
        return (
            f"{verb} {self.session.shown(path)}: {count(lines, 'line')}, "
            f"{count(entry.size, 'byte')}"
        )


def _change_of_form(seen: Seen | None, newline: str) -> str:
    if seen is None:
        return ""
    changes: list[str] = []
    if seen.newline == "\r\n" and newline == "\n":
        changes.append("its lines ended with CRLF and now end with LF")
    if seen.encoding != "utf-8":
        changes.append(f"it was {seen.encoding} and now is UTF-8")
    return note("; ".join(changes)) if changes else ""
