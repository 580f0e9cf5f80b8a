"""What the manager asks of a store. Every method is one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from isobox.manager.records import (
        Answer,
        Claim,
        Deployment,
        Record,
        State,
        Tenant,
    )

_PAGE: Final = 100


class Store(ABC):
    """The truth about whose workspace is where, shared by every process.

    A holder is one manager in one process. It lives until the moment that its
    last `beat` named; after that, what it held is anybody's. Times are seconds
    since the epoch by one clock, the store's: see `time`.

    Every method raises StoreError when the store cannot be asked, and is safe to
    call again then; also when what it holds was not written by this version. What
    makes a holder have something (`claim`, `spare`, `abandoned`, `forgotten`,
    `delete`) raises HolderExpiredError, a StoreError, if that holder is dead or
    has never beaten. Once a holder was seen dead by anybody it stays dead.
    """

    @abstractmethod
    async def open(self) -> None:
        """Connect, and make the tables where there are none.

        Raises:
            StoreError: It cannot be reached, or has tables of another version.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Disconnect; safe to call again."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @abstractmethod
    async def time(self) -> float | None:
        """Return the time of the store's own clock; None if it has none.

        A database server has one, which hosts with clocks of their own agree on;
        a file has none: its hosts are one.
        """

    # -- where it belongs ------------------------------------------------------

    @abstractmethod
    async def deployment(self) -> Deployment | None:
        """Return which deployment it is of; None if none has said so yet."""

    @abstractmethod
    async def deploy(self, deployment: Deployment) -> Deployment:
        """Be of a deployment, unless it is of one already; returns of which it is.

        Of its own it remembers where the directory is now.
        """

    # -- holders --------------------------------------------------------------

    @abstractmethod
    async def beat(
        self, holder: str, now: float, until: float, used: Mapping[str, float]
    ) -> tuple[str, ...] | None:
        """Keep a holder alive until `until`, and say when what it holds was used.

        Returns the workspaces that others are waiting for it to hand over; None
        if the holder had expired, and thus lost all that it held: it begins
        anew, with nothing held: a next beat makes it again. `used` maps workspaces
        to times; those that it does not hold are left alone. The first beat makes
        the holder.
        """

    @abstractmethod
    async def wanted(self, holder: str) -> tuple[str, ...]:
        """Return the workspaces of this holder that others are waiting for."""

    @abstractmethod
    async def leave(self, holder: str, now: float) -> None:
        """Forget a holder; what it still held is held by nobody.

        What was live stays live without a holder; what it was making, closing or
        deleting is taken up by whoever comes next.
        """

    @abstractmethod
    async def holders(self, now: float) -> Sequence[str]:
        """Return the holders that live."""

    # -- workspaces -----------------------------------------------------------

    @abstractmethod
    async def claim(self, claim: Claim, now: float) -> Answer:
        """Give a tenant's workspace to a holder, to be opened by it.

        - One that no living holder has, in whatever state but deleting, becomes
          this holder's, in the state `making`. One that was deleting under a
          dead holder is answered as Held with that state, until it is deleted.
        - One that another living holder has is Held, and that one is told by
          `wanted`, unless `shared` is said and its state is live: then both
          have it.
        - One that does not exist is made of a spare of this holder and backend,
          if `spare` is said and there is one, else of the claim's own names.
        - Before a workspace becomes open that was not, the quotas are compared
          with how many are making, live or closing under living holders; Full
          changes nothing. Spares count in `most`, and become no more by a claim.
        - Asked again by who is making it or has it live already, it is granted
          again, as it is. Who is closing or deleting it is answered as Held, by
          itself, until it has said that it is done.

        Raises:
            InvalidArgumentError: The tenant's workspace is of another backend.
        """

    @abstractmethod
    async def made(self, workspace_id: str, holder: str, now: float) -> bool:
        """Say that it is open: making becomes live. False if it is not held."""

    @abstractmethod
    async def release(
        self, workspace_id: str, holder: str, now: float, used_at: float
    ) -> bool:
        """Give a workspace up, before it is closed.

        True if no other living holder has it: it is `closing` and still this
        holder's, to be closed for good and then said to be `closed`. False if
        others have it, or it was lost: this holder has it no longer and only
        lets go of its own connection.
        """

    @abstractmethod
    async def closed(self, workspace_id: str, holder: str, now: float) -> None:
        """Say that it is closed, or was never made: held by nobody, files kept.

        Until this is said it cannot be claimed, so say it again after a StoreError.
        A spare, and what was being deleted, is `deleting` afterwards, held by
        nobody. If others have it too, only this holder lets go.
        """

    @abstractmethod
    async def begin(self, record: Record, now: float, most: int | None) -> bool:
        """Enter what its holder, the record's only one, will make a spare of.

        It is `making` until it is said to be a `spare`, and no claim gets it before.
        False if `most` count for the quota of all already: nothing is entered.

        Raises:
            HolderExpiredError: The holder is dead.
            InvalidArgumentError: It has a tenant or a key, or not one holder.
        """

    @abstractmethod
    async def spare(self, record: Record, now: float) -> None:
        """Enter a spare that its holder, the record's only one, has open.

        Raises:
            InvalidArgumentError: It has a tenant or a key, or not one holder.
        """

    # -- what is due ----------------------------------------------------------

    @abstractmethod
    async def abandoned(
        self, holder: str, now: float, *, idle_since: float, limit: int
    ) -> Sequence[Record]:
        """Take over what no living holder has and what is to be closed.

        These are: live ones last used before `idle_since`, and at once those
        that dead holders were making or closing, and their spares. Each becomes
        `closing` (a spare: `deleting`) and this holder's, so that one process
        closes it. At most `limit`, the longest abandoned first. The cost is by
        what is found, not by what there is.
        """

    @abstractmethod
    async def forgotten(
        self, holder: str, now: float, *, closed_since: float | None, limit: int
    ) -> Sequence[Record]:
        """Take over what is to be deleted: each becomes `deleting` and this holder's.

        These are: closed ones, closed before `closed_since` (none if None), and
        those that dead holders were deleting.
        """

    @abstractmethod
    async def delete(
        self, workspace_id: str, holder: str, now: float, *, place: str | None = None
    ) -> Record | Answer | None:
        """Take one workspace to delete it: `deleting`, and this holder's.

        Returns the record; Held if another living holder has it, which is told;
        None if there is none, or its place is not the one that was named: that one
        was deleted, and a later one has its name.
        """

    @abstractmethod
    async def deleted(self, workspace_id: str, holder: str) -> None:
        """Forget a workspace that this holder was deleting."""

    # -- what there is --------------------------------------------------------

    @abstractmethod
    async def find(self, workspace_id: str, now: float) -> Record | None:
        """Return one workspace."""

    @abstractmethod
    async def records(
        self,
        now: float,
        *,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        states: Sequence[State] = (),
        after: str | None = None,
        limit: int = 1000,
    ) -> Sequence[Record]:
        """Return workspaces by their id, those after `after`; spares with no user."""

    async def every(
        self,
        now: float,
        *,
        user: str,
        agent: str | None = None,
        session: str | None = None,
    ) -> AsyncGenerator[Record]:
        """Yield all of a user's workspaces by their id, as `records` has them."""
        after = None
        while True:
            page = await self.records(
                now, user=user, agent=agent, session=session, after=after, limit=_PAGE
            )
            for record in page:
                yield record
            if len(page) < _PAGE:
                return
            after = page[-1].workspace_id

    @abstractmethod
    async def counts(self, now: float) -> Mapping[State, int]:
        """Return how many workspaces are in each state."""

    @abstractmethod
    async def joined(self, workspace_id: str, tenant: Tenant, now: float) -> None:
        """Remember that this agent and session used a workspace; again is nothing."""

    @abstractmethod
    async def members(self, workspace_id: str) -> Sequence[Tenant]:
        """Return the agents and sessions that used a workspace."""

    @abstractmethod
    async def joined_by(self, whose: Tenant) -> Sequence[str]:
        """Return the ids of the workspaces, anybody's, that somebody used.

        Without a session, those that any session of the user's agent used.
        """

    @abstractmethod
    async def left(self, workspace_id: str, tenant: Tenant) -> None:
        """Forget that a session used a workspace."""

    @abstractmethod
    async def adopt(self, record: Record, now: float) -> bool:
        """Enter a workspace that was found on its engine or disk and is unknown.

        It is live, without a holder, and idle since `used_at`; without a key it is
        a dead holder's spare. False if its id or its key is known already.
        """
