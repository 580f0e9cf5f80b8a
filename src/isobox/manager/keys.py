"""The names of workspaces: derived, without collisions, safe everywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import unicodedata
from enum import StrEnum
from typing import Final

from isobox.errors import InvalidArgumentError
from isobox.manager.records import Tenant

_VERSION: Final = 1
LONGEST: Final = 1024
_PREFIX: Final = 20
_DIGEST: Final = 26
_PLACE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\.[0-9a-f]{8}")


class Sharing(StrEnum):
    """Who shares a workspace."""

    PER_USER = "per_user"
    """A user's agents, in all their sessions."""
    PER_AGENT = "per_agent"
    """An agent's sessions."""
    PER_SESSION = "per_session"
    """Nobody: each session has its own."""


PER_USER: Final = Sharing.PER_USER
PER_AGENT: Final = Sharing.PER_AGENT
PER_SESSION: Final = Sharing.PER_SESSION


def sharing(given: str) -> Sharing:
    """Return who shares a workspace.

    Raises:
        InvalidArgumentError: There is no such way.
    """
    try:
        return Sharing(given)
    except ValueError:
        raise InvalidArgumentError(
            f"isolation={given!r:.100}: there are {', '.join(Sharing)}"
        ) from None


def tenant(sharing: Sharing, user: str, agent: str, session: str) -> Tenant:
    """Return whose a workspace is.

    Raises:
        InvalidArgumentError: An id is empty, no text, or over 1024 characters.
    """
    check_ids(user_id=user, agent_id=agent, session_id=session)
    if sharing is PER_USER:
        return Tenant(user=user)
    if sharing is PER_AGENT:
        return Tenant(user=user, agent=agent)
    return Tenant(user=user, agent=agent, session=session)


def check_ids(**ids: object) -> None:
    """Refuse what is no id.

    Raises:
        InvalidArgumentError: One is empty, no text, or over 1024 characters.
    """
    for name, given in ids.items():
        if not isinstance(given, str):
            raise InvalidArgumentError(f"{name}={given!r:.200} is no string")
        if not 0 < len(given) <= LONGEST:
            raise InvalidArgumentError(
                f"{name} has {len(given)} characters; give 1 to {LONGEST}"
            )


def key(sharing: Sharing, backend: str, whose: Tenant) -> str:
    """Return what no other tenant, sharing or backend has."""
    parts = [_VERSION, backend, sharing.value, whose.user, whose.agent, whose.session]
    # JSON tells "a","b" from "a,b", and half a surrogate pair by its escape.
    digest = hashlib.sha256(json.dumps(parts).encode("ascii")).digest()
    return base64.b32encode(digest).decode("ascii").lower().rstrip("=")


def key_of(backend: str, whose: Tenant) -> str:
    """Return the key of a tenant that `tenant` returns: it tells the sharing."""
    if whose.session is not None:
        return key(PER_SESSION, backend, whose)
    return key(PER_USER if whose.agent is None else PER_AGENT, backend, whose)


def workspace_id(key: str, whose: Tenant) -> str:
    """Return the name of a tenant's workspace: a readable prefix and a digest."""
    parts = (whose.user, whose.agent, whose.session)
    readable = _slug("-".join(part[:_PREFIX] for part in parts if part is not None))
    return f"{readable or 'ws'}-{key[:_DIGEST]}"


def spare_id() -> str:
    """Return the name of a workspace that is made ahead."""
    random = base64.b32encode(secrets.token_bytes(17)).decode("ascii").lower()
    return f"spare-{random[:_DIGEST]}"


def place(workspace_id: str) -> str:
    """Return the name of a new directory for a workspace."""
    return f"{workspace_id}.{secrets.token_hex(4)}"


def is_place(name: str) -> bool:
    """Whether a name is one that `place` returns."""
    return _PLACE.fullmatch(name) is not None


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:_PREFIX].rstrip("-")
