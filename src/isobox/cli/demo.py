"""`isobox demo`: real work in a sandbox, and what the sandbox withstands."""

from __future__ import annotations

import difflib
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.syntax import Syntax
from rich.table import Table

from isobox._core.spec import Limits, MiB
from isobox._workspace.classes import BubblewrapWorkspace
from isobox.cli import attempts, project
from isobox.cli.consoles import PipedConsole
from isobox.cli.stage import Stage
from isobox.cli.status import printable

if TYPE_CHECKING:
    from isobox._workspace.base import WorkspaceBase
    from isobox.cli.attempts import Outcome
    from isobox.cli.project import Project, Suite

_LIMITS = Limits(
    timeout=120,
    processes=128,
    file_size=128 * MiB,
    tmp=64 * MiB,
)
# Last, the Python that runs isobox: where the system has none, the sandbox is
# given this one.
_PATH = f"/usr/local/bin:/usr/bin:/bin:{os.path.realpath(sys.base_prefix)}/bin"


async def demo(*, as_json: bool = False, keep: bool = False) -> int:
    """Show it; return 0 when the work was done and everything held.

    Raises:
        BackendUnavailableError: This machine cannot run bubblewrap.
    """
    console = PipedConsole(stderr=as_json, highlight=False)
    with Stage(keep=keep) as stage:
        shown = _Demo(console, stage)
        report = await shown.perform()
        if keep:
            console.print(_plain(f"The project is in {stage.workdir}"), soft_wrap=True)
    if as_json:
        sys.stdout.write(json.dumps(report.as_dict()) + "\n")
    return 0 if report.ok else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the demo saw."""

    project: Project
    before: Suite
    diff: str
    after: Suite
    outcomes: list[Outcome]

    @property
    def ok(self) -> bool:
        """Whether the suite passed both times and every attempt was held."""
        held = all(outcome.held for outcome in self.outcomes)
        return held and self.before.ok and self.after.ok

    def as_dict(self) -> dict[str, object]:
        """Return it as plain data for JSON."""
        return {
            "ok": self.ok,
            "project": {"name": self.project.name, "source": self.project.source},
            "suite": {"before": asdict(self.before), "after": asdict(self.after)},
            "diff": self.diff,
            "attempts": [asdict(outcome) for outcome in self.outcomes],
        }


class _Demo:
    def __init__(self, console: PipedConsole, stage: Stage) -> None:
        self._console = console
        self._stage = stage

    async def perform(self) -> Report:
        with self._console.status("pip fetches a project"):
            chosen = await project.fetch(self._stage.directory)
        self._tell(f"Project: {chosen.name}, {chosen.source}.")
        workspace = BubblewrapWorkspace(
            self._stage.workdir, limits=_LIMITS, env={"PATH": _PATH}
        )
        async with workspace:
            await project.unpack(chosen, workspace)
            before = await self._test(chosen, workspace)
            diff = await self._edit(chosen, workspace)
            after = await self._test(chosen, workspace)
            outcomes = await self._attack(workspace)
            last = await attempts.make(attempts.LEAVE_BEHIND, self._stage, workspace)
            await attempts.clear(workspace)
        outcomes.append(self._told(attempts.after_closing(last, self._stage)))
        self._conclude(outcomes)
        return Report(
            project=chosen, before=before, diff=diff, after=after, outcomes=outcomes
        )

    async def _test(self, chosen: Project, workspace: WorkspaceBase) -> Suite:
        with self._console.status("its own tests run inside, without network"):
            suite = await project.test(chosen, workspace)
        if suite.ok:
            self._tell(f"Its own {suite.tests} tests pass ({suite.seconds:.1f} s).")
        else:
            self._tell(f"Its own tests FAIL inside the sandbox:\n{suite.said}")
        return suite

    async def _edit(self, chosen: Project, workspace: WorkspaceBase) -> str:
        change = chosen.change
        before = await workspace.read_text(change.path)
        await workspace.edit(change.path, change.old, change.new)
        after = await workspace.read_text(change.path)
        diff = "".join(
            difflib.unified_diff(
                before.splitlines(keepends=True),
                after.splitlines(keepends=True),
                f"a/{change.path}",
                f"b/{change.path}",
            )
        )
        self._tell(f"An edit of {change.path}:")
        self._console.print(Syntax(printable(diff), "diff", background_color="default"))
        return diff

    async def _attack(self, workspace: WorkspaceBase) -> list[Outcome]:
        await attempts.bring(workspace)
        facts = self._stage.facts
        chosen = [each for each in attempts.ATTEMPTS if each.needs in (None, *facts)]
        self._tell(f"A hostile program makes {len(chosen) + 1} attempts:")
        outcomes: list[Outcome] = []
        for attempt in chosen:
            with self._console.status(attempt.title):
                outcome = await attempts.make(attempt, self._stage, workspace)
            outcomes.append(self._told(outcome))
        return outcomes

    def _told(self, outcome: Outcome) -> Outcome:
        self._tell(f"  {'held' if outcome.held else 'FAILED'}: {outcome.title}")
        return outcome

    def _conclude(self, outcomes: list[Outcome]) -> None:
        table = Table(title="What a hostile program attempted")
        table.add_column("attempt", overflow="fold")
        table.add_column("what stopped it", overflow="fold")
        table.add_column("held")
        for outcome in outcomes:
            held = "[green]yes[/]" if outcome.held else "[bold red]NO[/]"
            table.add_row(outcome.title, _plain(outcome.stopped_by), held)
        self._console.print(table)
        through = sum(not outcome.held for outcome in outcomes)
        self._tell(
            f"{through} of {len(outcomes)} attempts got through."
            if through
            else f"All {len(outcomes)} attempts were held."
        )

    def _tell(self, text: str) -> None:
        self._console.print(_plain(text), soft_wrap=True)


def _plain(text: str) -> str:
    return printable(text).replace("[", r"\[")
