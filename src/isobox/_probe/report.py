"""What came out of a probe run: checked, and compared with what is claimed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from isobox._core.isolation import DIMENSIONS
from isobox._probe import inside
from isobox.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from isobox._core.isolation import Dimension, Isolation, Level

#: The most bytes of an answer from inside.
ANSWER_LIMIT: Final = 1 << 20
_DETAIL_LIMIT = 300

Outcome = Literal["reached", "held", "absent", "error"]
_OUTCOMES: Final[dict[str, Outcome]] = {
    "reached": "reached",
    "held": "held",
    "absent": "absent",
    "error": "error",
}

#: `admitted`: it was reached, where nothing or only a part is claimed.
Verdict = Literal["held", "absent", "admitted", "unexpected", "unmeasured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How one probe ended.

    Attributes:
        id: Names the probe.
        dimension: Which dimension of the isolation it tries.
        tries: What it attempts.
        outcome: What happened inside.
        detail: What was reached, or what stood in the way. Written by the
            sandbox, so it may lie; it is plain printable ASCII.
        level: What the backend claims in this dimension.
    """

    id: str
    dimension: Dimension
    tries: str
    outcome: Outcome
    detail: str
    level: Level

    @property
    def verdict(self) -> Verdict:
        """What the outcome means, given what is claimed."""
        if self.outcome == "error":
            return "unmeasured"
        if self.outcome == "reached":
            return "unexpected" if self.level == "strong" else "admitted"
        return self.outcome

    def as_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return {
            "id": self.id,
            "tries": self.tries,
            "outcome": self.outcome,
            "detail": self.detail,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Every finding about one backend, and what that backend claims."""

    backend: str
    isolation: Isolation
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether all was measured and nothing got through what is claimed."""
        verdicts = {finding.verdict for finding in self.findings}
        return not verdicts & {"unexpected", "unmeasured"}

    def of(self, dimension: Dimension, *verdicts: Verdict) -> list[Finding]:
        """Return the findings of a dimension that have one of the verdicts."""
        return [
            finding
            for finding in self.findings
            if finding.dimension == dimension and finding.verdict in verdicts
        ]

    def as_dict(self) -> dict[str, object]:
        """Return it as plain data for JSON."""
        return {
            "backend": self.backend,
            "ok": self.ok,
            "dimensions": {name: self._dimension(name) for name in DIMENSIONS},
        }

    def _dimension(self, name: Dimension) -> dict[str, object]:
        findings = [f.as_dict() for f in self.findings if f.dimension == name]
        return {**self.isolation.as_dict()[name], "probes": findings}


def judge(isolation: Isolation, outcomes: Mapping[str, tuple[Outcome, str]]) -> Report:
    """Compare what happened inside with what the backend claims.

    A probe without an outcome is an error: a sandbox cannot pass by silence.
    """
    missing: tuple[Outcome, str] = ("error", "no outcome came back")
    findings: list[Finding] = []
    for probe in inside.CATALOGUE.values():
        dimension = cast("Dimension", probe.dimension)
        outcome, detail = outcomes.get(probe.id, missing)
        findings.append(
            Finding(
                id=probe.id,
                dimension=dimension,
                tries=probe.tries,
                outcome=outcome,
                detail=detail,
                level=isolation[dimension].level,
            )
        )
    return Report(
        backend=isolation.backend, isolation=isolation, findings=tuple(findings)
    )


def parse(answer: bytes) -> dict[str, tuple[Outcome, str]]:
    """Return the outcomes that the program inside printed.

    Raises:
        ProtocolError: It is anything else than the program prints.
    """
    # SAFETY: a sandbox wrote this. It is bounded before it is parsed, every
    # value is checked, and no text keeps what a terminal obeys.
    if len(answer) > ANSWER_LIMIT:
        raise _refused(f"it has more than {ANSWER_LIMIT} bytes")
    document = _object(_json(answer), "the document")
    if document.keys() != {"format", "outcomes"}:
        raise _refused("it has other fields")
    if document["format"] != inside.FORMAT:
        raise _refused("it has another format")
    outcomes = _object(document["outcomes"], "the outcomes")
    if not outcomes.keys() <= inside.CATALOGUE.keys():
        raise _refused("it names unknown probes")
    return {name: _outcome(pair) for name, pair in outcomes.items()}


def _json(answer: bytes) -> object:
    try:
        parsed: object = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise _refused("it is not JSON") from error
    return parsed


def _object(value: object, name: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _refused(f"{name} is not an object")
    return cast("dict[str, object]", value)


def _outcome(pair: object) -> tuple[Outcome, str]:
    match pair:
        case [str() as outcome, str() as detail] if outcome in _OUTCOMES:
            return _OUTCOMES[outcome], plain(detail)
        case _:
            raise _refused("an outcome is malformed")


def plain(text: str) -> str:
    """Return the beginning of a text in printable ASCII; the rest as `?`."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:_DETAIL_LIMIT])


def _refused(why: str) -> ProtocolError:
    return ProtocolError(f"the probe's answer from inside is refused: {why}")
