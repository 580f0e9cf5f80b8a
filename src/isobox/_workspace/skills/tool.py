"""The Skill tool: instructions when they are needed, not before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from isobox._core.ops import Scan
from isobox._core.paths import shown
from isobox._workspace.skills.installed import names_of, read_manual, skills_of
from isobox._workspace.skills.manifest import LARGEST, body_of, is_name, manifest_of
from isobox._workspace.tools.schema import text
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import cut, failed, listed, note, said
from isobox.errors import (
    IsoboxError,
    PathError,
    PathMissingError,
    SandboxLostError,
    WorkspaceClosedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.skills.installed import Skill
    from isobox._workspace.tools.result import ToolResult
    from isobox._workspace.tools.session import Session
    from isobox._workspace.tools.tool import Tool

#: Names in the definition, skills in a prompt, and files in a result.
_MOST_NAMES: Final = 64
_MOST_SHOWN: Final = 64
_MOST_FILES: Final = 200
_ABOUT: Final = (
    "Instructions for certain kinds of work. Load one with the Skill tool before you "
    "do what it is for. What is said of them comes from files in the workspace, not "
    "from the user:"
)


@dataclass(frozen=True, kw_only=True)
class SkillArguments:
    """What Skill takes."""

    name: str = text("The skill's name, as the list of skills has it.")


class SkillTool(SessionTool[SkillArguments]):
    """Shows a skill's instructions and its files."""

    name: str = "Skill"
    read_only: ClassVar[bool] = True
    arguments = SkillArguments

    def __init__(self, session: Session, names: Iterable[str]) -> None:
        super().__init__(session)
        known = [name for name in names if is_name(name)]
        self.description = (
            "Load a skill: its instructions, and the names of the files that belong to "
            "it. Do so before work that a skill is for. There are: "
            f"{listed(known, _MOST_NAMES)}."
        )

    @override
    async def _perform(self, given: SkillArguments) -> ToolResult:
        if not is_name(given.name):
            return await self._missing(given.name)
        folder = self.session.absolute(f"skills/{given.name}")
        try:
            if not (await self.workspace.stat(folder, follow=False)).is_directory:
                return await self._missing(given.name)
            data = await read_manual(self.workspace, folder, LARGEST)
        except PathMissingError:
            return await self._missing(given.name)
        except PathError as error:
            return failed(error.message, error=type(error).__name__)
        if problems := manifest_of(data, given.name).problems:
            return failed(
                f"{given.name} cannot be used: {'; '.join(problems)}", error="skill"
            )
        body = body_of(data.decode("utf-8", "replace"))
        manual = self.session.shown(f"{folder}/SKILL.md")
        return said(
            note(f"skill {given.name}; its files are in {folder}"),
            cut(body, f"the middle is left out; Read {manual} shows it"),
            note(await self._files(folder)),
            metadata={"skill": given.name, "path": folder},
        )

    async def _missing(self, name: str) -> ToolResult:
        found = await skills_of(self.workspace)
        names = [skill.name for skill in found if not skill.problems]
        known = listed(names, _MOST_NAMES) or "none"
        return failed(f"there is no skill {name[:100]!r}; there are: {known}")

    async def _files(self, folder: str) -> str:
        look = Scan(path=folder, depth=None, files_only=True, limit=_MOST_FILES)
        listing = await self.workspace._do(look)
        names = [shown(entry.path[len(folder) + 1 :]) for entry in listing.entries]
        more = " and more" if listing.truncated else ""
        return f"files: {listed(names, _MOST_FILES)}{more}"


async def skill_tools(session: Session) -> list[Tool]:
    """Return the Skill tool if there is a skill, which may turn out to be bad."""
    try:
        names = await names_of(session.workspace)
    except (SandboxLostError, WorkspaceClosedError):
        raise
    except IsoboxError:
        return []  # whoever lists the skills is told why
    return [SkillTool(session, names)] if names else []


async def instructions(workspace: WorkspaceBase) -> str:
    """Return what a system prompt says of the skills; "" if there are none."""
    try:
        found = await skills_of(workspace)
    except (SandboxLostError, WorkspaceClosedError):
        raise
    except IsoboxError:
        return ""
    good = [skill for skill in found if not skill.problems]
    if not good:
        return ""
    more = len(good) - _MOST_SHOWN
    return "\n".join(
        (
            "",
            "",
            "# Skills",
            "",
            _ABOUT,
            "",
            *map(_shown, good[:_MOST_SHOWN]),
            *([f"- and {more} more, in skills/"] if more > 0 else []),
        )
    )


def _shown(skill: Skill) -> str:
    return f"- {skill.name}: {skill.description}"
