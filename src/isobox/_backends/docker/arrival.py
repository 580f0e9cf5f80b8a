"""How a workspace came to its container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

How = Literal["created", "attached", "updated", "restarted", "recreated"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a workspace came to its container.

    Attributes:
        how: `created`: there was none. `attached`: it ran, and runs on.
            `updated`: it ran, and was given other limits. `restarted`: it had
            stopped; its root is as it was, its processes are gone. `recreated`:
            another took its place, with the workspace's files.
        because: The options that changed, or what had happened to it.
    """

    how: How
    because: tuple[str, ...] = ()
