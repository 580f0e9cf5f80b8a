"""The lines of the table, and how a result is held against its target."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from measure import MB, MiB, duration

HEADER = ("work", "isobox", "rival", "ratio", "target", "met?")


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison; `met` is None where there is no target."""

    work: str
    isobox: str
    rival: str
    ratio: str
    target: str
    met: bool | None

    def to_json(self) -> str:
        """Return it as one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Line":
        """Return what `to_json` wrote."""
        return cls(**json.loads(text))


def at_most(
    work: str, ours: float, rival: str, theirs: float, factor: float | None
) -> Line:
    """Ours, in seconds, may take `factor` times as long as the rival."""
    ratio = ours / theirs
    return Line(
        work,
        duration(ours),
        f"{rival}: {duration(theirs)}",
        f"{ratio:.2f} x",
        f"≤ {factor:g} x" if factor else "",
        ratio <= factor if factor else None,
    )


def faster(
    work: str, ours: float, rival: str, theirs: float, factor: float | None
) -> Line:
    """Ours, in seconds, must be `factor` times as fast as the rival."""
    ratio = theirs / ours
    return Line(
        work,
        duration(ours),
        f"{rival}: {duration(theirs)}",
        f"{ratio:.1f} x faster",
        f"≥ {factor:g} x faster" if factor else "",
        ratio >= factor if factor else None,
    )


def flow(
    work: str,
    ours: tuple[float, int],
    rival: str,
    theirs: tuple[float, int],
    *,
    rate: float,
    growth: int,
) -> Line:
    """Ours, in bytes a second and bytes of growth, must reach both targets."""
    return Line(
        work,
        _flow(*ours),
        f"{rival}: {_flow(*theirs)}",
        f"{ours[0] / theirs[0]:.2f} x the rate",
        f"≥ {rate / MB:.0f} MB/s, RSS + < {growth / MiB:.0f} MiB",
        ours[0] >= rate and ours[1] < growth,
    )


def _flow(rate: float, growth: int) -> str:
    return f"{rate / MB:.0f} MB/s, RSS + {growth / MiB:.1f} MiB"


def markdown(lines: Iterable[Line]) -> str:
    """Return the lines as a markdown table."""
    rows = [HEADER, ("---",) * len(HEADER), *map(_cells, lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(line: Line) -> tuple[str, ...]:
    met = {True: "yes", False: "**no**", None: ""}[line.met]
    return (line.work, line.isobox, line.rival, line.ratio, line.target, met)
