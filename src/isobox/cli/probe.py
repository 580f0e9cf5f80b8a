"""`isobox probe`: what a backend lets through, measured from inside."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from isobox._core.isolation import DIMENSIONS
from isobox._probe.measure import measure
from isobox.cli import containers

if TYPE_CHECKING:
    from isobox._core.isolation import Dimension
    from isobox._probe.report import Finding, Report

_LET_THROUGH = 1


async def probe(
    *,
    backend: str,
    image: str | None = None,
    runtime: str | None = None,
    python: str | None = None,
    as_json: bool = False,
) -> int:
    """Print what was reachable from inside; 1 if more than the backend admits.

    Raises:
        InvalidArgumentError: The backend has no images, or lacks one.
        BackendMissingError: There is no such backend.
        BackendUnavailableError: This machine cannot run it.
        UnsupportedError: There is no Python inside.
        ProtocolError: The answer from inside is not the program's.
        BrokenPipeError: Nobody reads our output any more.
    """
    options = containers.options(backend, image=image, runtime=runtime, python=python)
    report = await measure(backend, *options, owner=containers.owner(backend))
    sys.stdout.write(json.dumps(report.as_dict()) + "\n" if as_json else _shown(report))
    sys.stdout.flush()
    return 0 if report.ok else _LET_THROUGH


def _shown(report: Report) -> str:
    console = Console(highlight=False, soft_wrap=True)
    # Captured, because a console that prints ends the process when nobody reads.
    with console.capture() as shown:
        _show(report, console)
    return shown.get()


def _show(report: Report, console: Console) -> None:
    console.print(_summary(report))
    for dimension in DIMENSIONS:
        reached = report.of(dimension, "unexpected", "unmeasured", "admitted")
        if reached:
            console.print(f"\n{dimension}", style="bold")
        for finding in reached:
            console.print(_line(finding))
    console.print(f"\n{_conclusion(report)}")


def _summary(report: Report) -> Table:
    table = Table(title=f"{report.backend}: {len(report.findings)} probes from inside")
    for heading in ("dimension", "claimed", "held", "reached", "unexpected"):
        table.add_column(heading)
    for dimension in DIMENSIONS:
        table.add_row(
            dimension, report.isolation[dimension].level, *_row(report, dimension)
        )
    return table


def _row(report: Report, dimension: Dimension) -> tuple[str, str, str]:
    unexpected = len(report.of(dimension, "unexpected"))
    reached = unexpected + len(report.of(dimension, "admitted"))
    held = len(report.of(dimension, "held", "absent"))
    return str(held), str(reached), str(unexpected)


def _line(finding: Finding) -> Text:
    style = "" if finding.verdict == "admitted" else "red"
    # Text and not markup: the detail was written by the sandbox.
    return Text(
        f"  {finding.verdict:11} {finding.id}: {finding.tries}: {finding.detail}", style
    )


def _conclusion(report: Report) -> str:
    if report.ok:
        return "Nothing got through what the backend claims to hold."
    unexpected = sum(f.verdict == "unexpected" for f in report.findings)
    unmeasured = sum(f.verdict == "unmeasured" for f in report.findings)
    return (
        f"{unexpected} probes got through what the backend claims to hold; "
        f"{unmeasured} could not be measured."
    )
