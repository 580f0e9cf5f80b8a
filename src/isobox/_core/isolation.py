"""What holds a workload, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Dimension = Literal[
    "process",
    "file_system",
    "user_identity",
    "network",
    "system_calls",
    "resources",
    "secrets",
    "tenant",
]

#: `none`: nothing stands there. `partial`: some of it is held, the mechanism
#: says which. `strong`: the kernel holds it.
Level = Literal["none", "partial", "strong"]

DIMENSIONS: Final[tuple[Dimension, ...]] = (
    "process",
    "file_system",
    "user_identity",
    "network",
    "system_calls",
    "resources",
    "secrets",
    "tenant",
)


@dataclass(frozen=True, slots=True)
class Barrier:
    """What stands in one dimension."""

    level: Level
    mechanism: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """What holds a workload, dimension by dimension."""

    backend: str
    process: Barrier
    file_system: Barrier
    user_identity: Barrier
    network: Barrier
    system_calls: Barrier
    resources: Barrier
    secrets: Barrier
    tenant: Barrier

    def __getitem__(self, dimension: Dimension) -> Barrier:
        barrier = getattr(self, dimension)
        assert isinstance(barrier, Barrier)  # noqa: S101 - narrows getattr
        return barrier

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return it as plain data for a record or for JSON."""
        return {
            name: {"level": self[name].level, "mechanism": self[name].mechanism}
            for name in DIMENSIONS
        }
