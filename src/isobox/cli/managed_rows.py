"""What `isobox ls` and `isobox stats` print.

SAFETY: names of users, agents and sessions are what a service was sent, and rows
are whatever stands in a store: nothing of them is obeyed by a terminal.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

from isobox.cli.status import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from isobox.manager.records import Record

TITLES: Final = (
    "id",
    "user",
    "agent",
    "session",
    "backend",
    "state",
    "holder",
    "idle",
)
#: Characters of a name in a table.
_WIDE: Final = 60
_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60))
_Cells = tuple[str, ...]


def show(records: Iterable[Record], now: float, *, as_json: bool) -> None:
    """Print workspaces: as lines of JSON, a table, or aligned lines for a pipe."""
    if as_json:
        for record in records:
            _print(json.dumps(fields(record, now)))
        return
    show_table(TITLES, [cells(record, now) for record in records])


def show_table(titles: _Cells, rows: Sequence[_Cells]) -> None:
    """Print rows below their titles."""
    if sys.stdout.isatty():
        _print_table(titles, rows)
    else:
        _print_lines([titles, *rows])


def fields(record: Record, now: float) -> dict[str, object]:
    """Return what there is to know of a workspace."""
    tenant = record.tenant
    return {
        "id": record.workspace_id,
        "user": tenant and tenant.user,
        "agent": tenant and tenant.agent,
        "session": tenant and tenant.session,
        "backend": record.backend,
        "state": record.state.value,
        "holders": list(record.holders),
        "idle": round(idle(record, now), 3),
        "created_at": record.created_at,
        "used_at": record.used_at,
        "closed_at": record.closed_at,
        "place": record.place,
    }


def cells(record: Record, now: float) -> _Cells:
    """Return the same as a row of a table: "*" is what all share."""
    tenant = record.tenant
    who = ("-",) * 3
    if tenant is not None:
        who = (tenant.user, tenant.agent or "*", tenant.session or "*")
    row = (
        record.workspace_id,
        *map(_short, who),
        record.backend,
        record.state.value,
        " ".join(record.holders) or "-",
        ago(idle(record, now)),
    )
    return tuple(map(one_line, row))


def idle(record: Record, now: float) -> float:
    """Return for how many seconds it has not been used."""
    return max(0.0, now - record.used_at)


def ago(seconds: float) -> str:
    """Return a time in the largest unit of which it has at least one."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def show_counts(counts: Mapping[str, int], holders: Sequence[str]) -> None:
    """Print how many there are of each state, and who holds them."""
    show_table(("state", "workspaces"), [(k, str(v)) for k, v in counts.items()])
    _print("")
    show_table(("holder",), [(one_line(holder),) for holder in holders])


def _short(name: str) -> str:
    return name if len(name) <= _WIDE else f"{name[:_WIDE]}..."


def _print(line: str) -> None:
    print(line)  # noqa: T201


def _print_table(titles: _Cells, rows: Sequence[_Cells]) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from isobox.cli.consoles import PipedConsole  # noqa: PLC0415

    table = Table(*titles, box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for row in rows:
        # SAFETY: as Text, in which no markup is obeyed.
        table.add_row(*map(Text, row))
    PipedConsole(highlight=False, file=sys.stdout).print(table)


def _print_lines(rows: Sequence[_Cells]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        _print("  ".join(padded).rstrip())
