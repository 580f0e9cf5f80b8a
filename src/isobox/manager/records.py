"""What a store remembers of workspaces, and what it answers. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(StrEnum):
    """How far a workspace is in its life."""

    SPARE = "spare"
    """Made ahead, nobody's yet."""
    MAKING = "making"
    """Somebody's, and being made."""
    LIVE = "live"
    """Made; its holder has it open, or had when it died."""
    CLOSING = "closing"
    """Its last holder is closing it."""
    CLOSED = "closed"
    """Not open anywhere; its files are there."""
    DELETING = "deleting"
    """Its files are being removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Whom a workspace is for, as the sharing policy has it.

    Attributes:
        user: The user, always.
        agent: The agent; None if the user's agents share it.
        session: The session; None if the agent's sessions share it.
    """

    user: str
    agent: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A store and the directory that belongs to it.

    Attributes:
        identity: What both have, and no other store and directory.
        basedir: The directory's absolute path, where it was last used.
    """

    identity: str
    basedir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A workspace as a store knows it.

    Attributes:
        workspace_id: Its name, everywhere: directory, container, audit log.
        key: Which tenant's it is: what `keys.key` derives. None for a spare.
        tenant: Whose it is; None for a spare.
        backend: The backend's name.
        place: What is new for each that is made: the name of its directory. Who
            removes a place cannot touch a later workspace of the same name.
        state: How far it is.
        holders: Processes that have it open now.
        created_at: Seconds since the epoch, by the store's clock, as all here.
        used_at: When it was last used, as far as its holders have said.
        closed_at: When it was closed; None while it is not.
        options: What opens it again from elsewhere, such as a container's image.
    """

    workspace_id: str
    key: str | None
    tenant: Tenant | None
    backend: str
    place: str
    state: State
    holders: tuple[str, ...] = ()
    created_at: float
    used_at: float
    closed_at: float | None = None
    options: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a holder asks for: this tenant's workspace, to have it open.

    Attributes:
        holder: Who asks.
        key: Which tenant's: what `keys.key` derives.
        workspace_id: The name for a new one; it equals the key's.
        tenant: Whose.
        backend: Of which backend it must be.
        place: The directory's name for a new one.
        shared: Whether several holders may have it open at once.
        spare: Whether a spare that this holder has open may become it.
        options: What to remember for opening it elsewhere.
        most: Workspaces in all that may be open or being made; None is no bound.
        most_of_user: The same, of the tenant's user.
    """

    holder: str
    key: str
    workspace_id: str
    tenant: Tenant
    backend: str
    place: str
    shared: bool = False
    spare: bool = False
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    most: int | None = None
    most_of_user: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The holder has it now.

    Attributes:
        record: The workspace, with this holder among its holders.
        new: Whether there was none: the directory has to be made.
        spare: Whether it was this holder's spare: it is open already.
    """

    record: Record
    new: bool
    spare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Another holder has it, or is closing or deleting it; it has been told.

    Attributes:
        holder: Who; it can be the one that asks, which is closing or deleting it.
            Empty if nobody has it now, and it is half deleted.
        state: What it is doing with it.
    """

    holder: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """A quota is used up.

    Attributes:
        of_user: Whether it is the user's; else the one of all.
        most: The quota.
    """

    of_user: bool
    most: int


Answer = Granted | Held | Full
