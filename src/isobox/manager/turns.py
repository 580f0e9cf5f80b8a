"""Whose workspace is made next: so many at once, and users take turns."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final

import anyio

from isobox.errors import QuotaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from isobox.manager.clock import Clock, Timer

#: Seconds after which room is looked for again: other processes say nothing.
_LOOK: Final = 0.25


class Ticket:
    """A place in the line of one user.

    Attributes:
        user: Whose; None is the manager's own, for spares, which come last.
    """

    def __init__(self, user: str | None, number: int) -> None:
        self.user = user
        self.number = number
        self.turn: asyncio.Future[None] | None = None
        self.rank = self.rank_before = 0


class Turns:
    """Gives turns: in a user's line by age, and round robin between users.

    Args:
        clock: What tells the time.
        most: Turns at once.
        rate: Turns in a second; None is no bound.
        limit: Tickets that may wait.
    """

    def __init__(
        self, clock: Clock, *, most: int, rate: float | None, limit: int
    ) -> None:
        self._clock = clock
        self._most = most
        self._pause = None if rate is None else 1 / rate
        self._limit = limit
        self._numbers = itertools.count(1)
        #: Tickets that wait, by their number, and the users' order: the lowest next.
        self._lines: dict[str | None, dict[int, Ticket]] = {}
        self._ranks: dict[str | None, int] = {}
        self._tickets: Counter[str | None] = Counter()
        self._waiting = 0
        self._running = 0
        #: Those that have a turn and do not know yet whether there is room.
        self._asking: set[Ticket] = set()
        #: Whether there was no room for one of those that have tickets now.
        self._tight = False
        self._blocked = False
        self._blocked_users: set[str | None] = set()
        self._next = 0.0
        #: Sandboxes that have died need no room, but not all are made again at once.
        self.recovering = anyio.Semaphore(most)
        self._timer: Timer | None = None
        self._due = 0.0

    @contextlib.contextmanager
    def ticket(self, user: str | None) -> Generator[Ticket]:
        """Have a ticket for a new workspace of a user's.

        Raises:
            QuotaError: Too many wait.
        """
        if self._waiting >= self._limit and not self._make_way(user):
            raise self._too_many()
        self._ranks.setdefault(user, next(self._numbers))
        self._tickets[user] += 1
        try:
            yield Ticket(user, next(self._numbers))
        finally:
            self._tickets[user] -= 1
            if not self._tickets[user]:
                del self._tickets[user], self._ranks[user]
                self._blocked_users.discard(user)
                self._tight = self._tight and bool(self._tickets)

    @contextlib.asynccontextmanager
    async def turn(self, ticket: Ticket) -> AsyncGenerator[None]:
        """Wait for a ticket's turn, and have it."""
        turn = ticket.turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(ticket.user, {})[ticket.number] = ticket
        self._waiting += 1
        self._give()
        try:
            await turn
            yield
        finally:
            self._leave(ticket, turn)

    def _make_way(self, user: str | None) -> bool:
        """Refuse a spare, else the last of somebody else's who has the most waiting.

        A spare is made at nobody's cost.
        """
        if user is None:
            return False
        if spares := self._lines.get(None):
            self._refuse_last(spares)
            return True
        longest = max(self._lines, key=lambda each: len(self._lines[each]))
        line = self._lines[longest]
        if len(line) <= len(self._lines.get(user, ())) + 1:
            return False
        self._refuse_last(line)
        return True

    def _refuse_last(self, line: dict[int, Ticket]) -> None:
        last = line[max(line)]
        assert last.turn is not None  # noqa: S101 - it waits for it
        if not last.turn.done():
            last.turn.set_exception(self._too_many())
        self._drop(last)

    def _too_many(self) -> QuotaError:
        return QuotaError(
            f"{self._limit} workspaces wait already to be made; try again later, "
            "or give the manager a larger queue_limit"
        )

    def unused(self, ticket: Ticket) -> None:
        """Say that nothing was made in a ticket's turn; its user has had it."""
        del ticket
        self._next -= self._pause or 0.0

    def full(self, ticket: Ticket, *, of_user: bool) -> None:
        """Say that there is no room; nobody whom that concerns gets a turn."""
        self.unused(ticket)
        if of_user:
            self._blocked_users.add(ticket.user)
        else:
            if self._ranks[ticket.user] == ticket.rank:
                # Whoever comes first to no room is the first to have some. With a
                # later turn, its user has been heard already.
                self._ranks[ticket.user] = ticket.rank_before
            self._blocked = self._tight = True
        self._look_in(_LOOK)

    def granted(self, ticket: Ticket) -> None:
        """Say that there is room, which is the ticket's; the next may ask for some."""
        self._asking.discard(ticket)
        self._give()

    def room(self) -> None:
        """Say that there may be room again."""
        self._blocked = False
        self._blocked_users.clear()
        self._give()

    def _leave(self, ticket: Ticket, turn: asyncio.Future[None]) -> None:
        self._asking.discard(ticket)
        if ticket.number in self._lines.get(ticket.user, {}):
            self._drop(ticket)
        elif not turn.cancelled() and turn.exception() is None:
            self._running -= 1
        self._give()

    def _drop(self, ticket: Ticket) -> None:
        line = self._lines[ticket.user]
        del line[ticket.number]
        self._waiting -= 1
        if not line:
            del self._lines[ticket.user]

    def _give(self) -> None:
        while self._may_ask():
            users = [user for user in self._lines if user not in self._blocked_users]
            if not users:
                return
            user = min(users, key=lambda user: (user is None, self._ranks[user]))
            ticket = self._lines[user][min(self._lines[user])]
            assert ticket.turn is not None  # noqa: S101 - it waits for it
            if not ticket.turn.done() and not self._may_now():
                return
            self._drop(ticket)
            if not ticket.turn.done():
                self._give_to(ticket, ticket.turn)

    def _may_ask(self) -> bool:
        if self._blocked or self._running >= self._most:
            return False
        # One at a time: else what is closed for the first is the second's, whose
        # question comes to the store just after it.
        return not (self._tight and self._asking)

    def _give_to(self, ticket: Ticket, turn: asyncio.Future[None]) -> None:
        ticket.rank_before = self._ranks[ticket.user]
        ticket.rank = self._ranks[ticket.user] = next(self._numbers)
        self._asking.add(ticket)
        self._running += 1
        turn.set_result(None)

    def _may_now(self) -> bool:
        """Whether the rate allows a turn now, which is taken then."""
        if self._pause is None:
            return True
        now = self._clock.monotonic()
        if now < self._next:
            self._look_in(self._next - now)
            return False
        self._next = now + self._pause
        return True

    def _look_in(self, seconds: float) -> None:
        due = self._clock.monotonic() + seconds
        if self._timer is None or due < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._due = due
            self._timer = self._clock.call_later(seconds, self._looked)

    def _looked(self) -> None:
        self._timer = None
        self.room()
