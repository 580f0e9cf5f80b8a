"""The names of workspaces: derived, without collisions, safe everywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import unicodedata
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from isobox.errors import InvalidArgumentError
from isobox.manager.records import State, Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_VERSION: Final = 1
LONGEST: Final = 1024
_PREFIX: Final = 20
#: What the name of a workspace that was made ahead begins with.
SPARE: Final = "spare-"
_DIGEST: Final = 26
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
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


def states(given: Iterable[str]) -> tuple[State, ...]:
    """Return states of workspaces.

    Raises:
        InvalidArgumentError: One is none.
    """
    try:
        return tuple(State(one) for one in given)
    except (ValueError, TypeError):
        raise InvalidArgumentError(
            f"states={given!r:.100}: give some of {', '.join(State)}"
        ) from None


def tenant(sharing: Sharing, user: str, agent: str, session: str) -> Tenant:
    """Return whose a workspace is.

    Raises:
        InvalidArgumentError: An id is empty, no text, or over 1024 characters.
    """
    whole = caller(user, agent, session)
    user, agent, session = whole.user, whole.agent or "", whole.session or ""
    if sharing is PER_USER:
        return Tenant(user=user)
    if sharing is PER_AGENT:
        return Tenant(user=user, agent=agent)
    return Tenant(user=user, agent=agent, session=session)


def caller(user: object, agent: object, session: object) -> Tenant:
    """Return who asks.

    Raises:
        InvalidArgumentError: An id is empty, no text, or over 1024 characters.
    """
    return Tenant(
        user=name("user_id", user),
        agent=name("agent_id", agent),
        session=name("session_id", session),
    )


def name(what: str, given: object) -> str:
    """Return an id.

    Raises:
        InvalidArgumentError: It is empty, no text, or over 1024 characters.
    """
    if given is None:
        raise InvalidArgumentError(f"{what} is missing: give 1 to {LONGEST} characters")
    found = text(what, given)
    if not 0 < len(found) <= LONGEST:
        raise InvalidArgumentError(
            f"{what} has {len(found)} characters; give 1 to {LONGEST}"
        )
    return found


def text(what: str, given: object) -> str:
    """Return text as nothing but text: its class has no say in what it equals.

    Raises:
        InvalidArgumentError: It is none.
    """
    if not isinstance(given, str):
        raise InvalidArgumentError(f"{what}={given!r:.200} is no string")
    return str.__str__(given)


def key(sharing: Sharing, backend: str, whose: Tenant) -> str:
    """Return what no other tenant, sharing or backend has."""
    parts = (_VERSION, backend, sharing.value, whose.user, whose.agent, whose.session)
    return _digest(parts)


def key_of(backend: str, whose: Tenant) -> str:
    """Return the key of a tenant that `tenant` returns: it tells the sharing."""
    if whose.session is not None:
        return key(PER_SESSION, backend, whose)
    return key(PER_USER if whose.agent is None else PER_AGENT, backend, whose)


def workspace_id(key: str, whose: Tenant, deployment: str = "") -> str:
    """Return the name of a tenant's workspace: a readable prefix and a digest.

    Two deployments may share an engine, so each has names of its own.
    """
    parts = (whose.user, whose.agent, whose.session)
    readable = _slug("-".join(part[:_PREFIX] for part in parts if part is not None))
    digest = _digest([key, deployment]) if deployment else key
    return f"{readable or 'ws'}-{digest[:_DIGEST]}"


def spare_id() -> str:
    """Return the name of a workspace that is made ahead."""
    random = base64.b32encode(secrets.token_bytes(17)).decode("ascii").lower()
    return f"{SPARE}{random[:_DIGEST]}"


def place(workspace_id: str) -> str:
    """Return the name of a new directory for a workspace."""
    return f"{workspace_id}.{secrets.token_hex(4)}"


def is_identity(text: object) -> bool:
    """Whether it is what a deployment is known by."""
    return isinstance(text, str) and _IDENTITY.fullmatch(text) is not None


def is_place(name: str) -> bool:
    """Whether a name is one that `place` returns."""
    return _PLACE.fullmatch(name) is not None


def _digest(parts: Sequence[str | int | None]) -> str:
    digest = hashlib.sha256(told_apart(parts)).digest()
    return base64.b32encode(digest).decode("ascii").lower().rstrip("=")


def told_apart(parts: Sequence[str | int | None]) -> bytes:
    """Return bytes that no other parts give, whatever text they are."""
    # JSON tells "a","b" from "a,b", and half a surrogate pair by its escape.
    if not any(isinstance(part, str) and _PAIR.search(part) for part in parts):
        return json.dumps(parts).encode("ascii")
    # SAFETY: both halves in turn are not the one character that JSON has for them.
    # What is not ASCII here is nowhere above.
    return json.dumps(parts, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:_PREFIX].rstrip("-")
