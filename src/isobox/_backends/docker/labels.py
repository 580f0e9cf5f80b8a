"""What the engine is told to remember: the only record of a container.

A second process, or the same after a crash, rebuilds everything from it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from isobox._backends.docker.engine import Answer

WORKSPACE: Final = "isobox.workspace"
#: Digests of what the container was made of, part by part.
PARTS: Final = "isobox.parts"
#: What a host shows to the guest; only who may use the engine can read it.
KEY: Final = "isobox.key"
#: What lives in it: a guest, and where its Python is from, or a shell.
KIND: Final = "isobox.kind"
#: Whether nobody comes back to it: what is left of it may go.
ANONYMOUS: Final = "isobox.anonymous"
#: On containers that never start, the workspace that they are for: one gives a host
#: its turn, the other hands a volume over.
TURN: Final = "isobox.turn"
HAND: Final = "isobox.hand"
#: Until when its host may need what it is on, in seconds since 1970.
UNTIL: Final = "isobox.until"
#: A workspace's own labels.
OF_USER: Final = "isobox.label."


def new_key() -> str:
    """Return what nobody can guess."""
    return secrets.token_hex(32)


def container(workspace: str) -> str:
    """Return the name of a workspace's container."""
    return f"isobox-{workspace}"


def volume(workspace: str) -> str:
    """Return the name of a workspace's volume."""
    return f"isobox-{workspace}"


def turn(workspace: str) -> str:
    """Return a name that one host can have at a time, and that no id makes."""
    return f"isobox.turn.{workspace}"


def hand(workspace: str) -> str:
    """Return a new name of what hands a volume over, which no id makes."""
    return f"isobox.hand.{workspace}.{new_key()[:8]}"


def of(answer: Answer) -> dict[str, str]:
    """Return the labels in what the engine says of a container."""
    config: object = answer.get("Config", answer)
    found = cast("Answer", config).get("Labels") if isinstance(config, dict) else None
    if not isinstance(found, dict):
        return {}
    items = cast("dict[object, object]", found).items()
    return {
        key: value
        for key, value in items
        if isinstance(key, str) and isinstance(value, str)
    }


def digests(parts: Mapping[str, object]) -> dict[str, str]:
    """Return a short digest of each part."""
    return {
        name: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16]
        for name, part in parts.items()
    }


def changed(labels: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the parts that differ from what a container is made of."""
    try:
        found: object = json.loads(labels.get(PARTS, ""))
    except ValueError:
        found = None
    known = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return tuple(name for name, digest in wanted.items() if known.get(name) != digest)
