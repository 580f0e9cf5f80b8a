"""The ApplyPatch tool: changes to several files at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from isobox._workspace.tools.places import no_file
from isobox._workspace.tools.schema import text
from isobox._workspace.tools.session import Seen
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import note, said
from isobox.errors import PathError

if TYPE_CHECKING:
    from isobox._workspace.tools.result import ToolResult


@dataclass(frozen=True, kw_only=True)
class ApplyPatchArguments:
    """What ApplyPatch takes."""

    patch: str = text(
        "A unified diff as `git diff` prints it, or a patch between the lines "
        "`*** Begin Patch` and `*** End Patch` with the headers `*** Add File:`, "
        "`*** Update File:`, `*** Move to:` and `*** Delete File:`."
    )


class ApplyPatch(SessionTool[ApplyPatchArguments]):
    """Changes, makes, moves and removes files as a patch says."""

    name: str = "ApplyPatch"
    description = (
        "Apply a patch to any number of files: all of it or nothing. Lines of "
        "context and removed lines must stand in the files exactly; line numbers may "
        "be off."
    )
    read_only: ClassVar[bool] = False
    arguments = ApplyPatchArguments

    @override
    async def _perform(self, given: ApplyPatchArguments) -> ToolResult:
        try:
            patched = await self.workspace.apply_patch(given.patch)
        except PathError as error:
            if error.path is None:
                raise
            return await no_file(self.session, self.session.absolute(error.path), error)
        for entry in patched.written:
            self.session.note(entry.path, Seen(entry.digest or ""))
        for path in patched.removed:
            self.session.forget(path)
        written = [self.session.shown(entry.path) for entry in patched.written]
        removed = [self.session.shown(path) for path in patched.removed]
        return said(
            *(note(f"wrote {path}") for path in written),
            *(note(f"removed {path}") for path in removed),
            metadata={"written": written, "removed": removed},
        )
