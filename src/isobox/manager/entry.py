"""What a manager has open, is opening or is closing in this process."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import anyio

    from isobox._workspace.base import WorkspaceBase
    from isobox.manager.clock import Clock
    from isobox.manager.records import Record, Tenant

#: Sessions of a workspace that are remembered here; the store has all.
_MOST_MEMBERS: Final = 1000


#: A user, an agent and a session.
Member = tuple[str, str | None, str | None]


class Phase(Enum):
    """What this process does with a workspace."""

    QUEUED = auto()
    """It waits for its turn."""
    CLAIMING = auto()
    """The store is asked for it."""
    HELD = auto()
    """It waits for another process to hand it over."""
    MAKING = auto()
    OPEN = auto()
    CLOSING = auto()
    GONE = auto()
    """It is no business of this process any more."""


#: Closed ones that may stand among those that fall due, besides twice the open.
_SLACK: Final = 64

#: The phases in which nothing is lost if nobody waits any more.
WAITING: Final = frozenset((Phase.QUEUED, Phase.HELD))


class Entry:
    """A workspace in this process.

    Attributes:
        key: Which tenant's.
        tenant: Whose.
        workspace_id: Its name; the one that it would get until it is claimed.
        phase: What is done with it.
        holder: As whom it was claimed.
        record: What the store said of it, once it is claimed.
        workspace: It itself, while it is open.
        leases: How many keep it from being closed.
        waiting: How many wait for it to open.
        used: When it was last asked for, by the monotonic clock.
        heard: When its sandbox last answered.
        held_by: Who has it, while it waits for another process.
        error: Why it could not be opened, or not be closed.
        settled: Done at the end of what is being done with it.
        scope: Cancelled to let it wait no longer.
        members: Who the store knows to use it.
        watched: Whether it is among those that fall due.
        tries: How often another process was asked for it.
        victim: What is being closed to make room for it.
        gives_way: Whether it is not to be opened, but deleted.
    """

    def __init__(self, key: str, tenant: Tenant, workspace_id: str, now: float) -> None:
        self.key = key
        self.tenant = tenant
        self.workspace_id = workspace_id
        self.phase = Phase.QUEUED
        self.holder = ""
        self.record: Record | None = None
        self.workspace: WorkspaceBase | None = None
        self.leases = 0
        self.waiting = 0
        self.used = now
        self.heard = now
        self.held_by = ""
        self.error: BaseException | None = None
        self.settled = _future()
        self.scope: anyio.CancelScope | None = None
        self.members: set[Member] = set()
        self.watched = False
        self.tries = 0
        self.victim: Entry | None = None
        self.gives_way = False

    @property
    def busy(self) -> bool:
        """Whether it may not be closed for want of use."""
        workspace = self.workspace
        return self.leases > 0 or (workspace is not None and workspace._activity.in_use)

    @property
    def recovering(self) -> bool:
        """Whether it was open and gets another sandbox."""
        return self.phase is Phase.MAKING and self.workspace is not None

    @property
    def last_used(self) -> float:
        """When it was last asked for, or something went on in it."""
        workspace = self.workspace
        used = self.used if workspace is None else workspace._activity.used
        return max(self.used, used)

    def begin(self, phase: Phase) -> None:
        """Begin what ends with `settle`."""
        self.phase = phase
        self.error = None
        self.settled = _future()

    def settle(self, phase: Phase, error: BaseException | None = None) -> None:
        """End what is being done; who waits goes on."""
        self.phase = phase
        self.error = error
        if not self.settled.done():
            self.settled.set_result(None)

    def remember(self, member: Member) -> None:
        """Remember that the store knows somebody to use it."""
        if len(self.members) >= _MOST_MEMBERS:
            self.members.clear()
        self.members.add(member)


class Entries:
    """What a manager has in this process, and in which order it falls due.

    Args:
        clock: What tells the time.
        ttl: Idle seconds after which one is due.
    """

    def __init__(self, clock: Clock, ttl: float) -> None:
        self._clock = clock
        self._ttl = ttl
        self._by_key: dict[str, Entry] = {}
        self._by_id: dict[str, Entry] = {}
        #: Each open one stands here once, when it is due as far as was known.
        self._due: list[tuple[float, int, Entry]] = []
        self._numbers = itertools.count()
        self.touched: set[Entry] = set()
        self._reserved: dict[str, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._by_key.values()))

    def get(self, key: str) -> Entry | None:
        """Return the one of a key."""
        return self._by_key.get(key)

    def named(self, workspace_id: str) -> Entry | None:
        """Return the one of a name."""
        return self._by_id.get(workspace_id)

    def add(self, entry: Entry) -> None:
        """Have a new one."""
        self._by_key[entry.key] = entry

    def name(self, entry: Entry, record: Record) -> None:
        """Know an entry by the name that the store has for it."""
        entry.record, entry.workspace_id = record, record.workspace_id
        self._by_id[record.workspace_id] = entry

    def remove(self, entry: Entry) -> None:
        """Forget one; another of the same key stays."""
        if self._by_key.get(entry.key) is entry:
            del self._by_key[entry.key]
        if self._by_id.get(entry.workspace_id) is entry:
            del self._by_id[entry.workspace_id]
        self.touched.discard(entry)

    @contextlib.contextmanager
    def reserved(self, key: str) -> Generator[None]:
        """Let nobody begin one of a key meanwhile, who has the key for himself."""
        mine = None
        if key not in self._reserved:
            mine = self._reserved[key] = _future()
        try:
            yield
        finally:
            if mine is not None:
                del self._reserved[key]
                mine.set_result(None)

    def reservation(self, key: str) -> asyncio.Future[None] | None:
        """Return what is done when one of a key may be begun; None if it may."""
        return self._reserved.get(key)

    def touch(self, entry: Entry) -> None:
        """Note that one was asked for."""
        entry.used = self._clock.monotonic()
        self.touched.add(entry)

    def watch(self, entry: Entry) -> None:
        """Let one that is open fall due when nobody uses it."""
        if not entry.watched:
            self._push(entry, entry.last_used + self._ttl)

    def due(self) -> Iterator[Entry]:
        """Yield the open ones that nobody has used for so long.

        The cost is by what falls due: each open one is looked at again only after
        another such time.
        """
        now = self._clock.monotonic()
        looked: list[Entry] = []
        while self._due and self._due[0][0] <= now:
            entry = heapq.heappop(self._due)[2]
            entry.watched = False
            if entry.phase is not Phase.OPEN:
                continue
            if entry.busy:
                self.touch(entry)
            looked.append(entry)
            if entry.last_used + self._ttl <= now:
                yield entry
        for entry in looked:
            if entry.phase is Phase.OPEN:
                self.watch(entry)

    def _push(self, entry: Entry, due: float) -> None:
        entry.watched = True
        heapq.heappush(self._due, (due, next(self._numbers), entry))
        if len(self._due) > 2 * len(self._by_key) + _SLACK:
            self._compact()

    def _compact(self) -> None:
        """Forget those that were closed before they fell due."""
        for _, _, entry in self._due:
            entry.watched = entry.phase is Phase.OPEN
        self._due = [one for one in self._due if one[2].watched]
        heapq.heapify(self._due)


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()
