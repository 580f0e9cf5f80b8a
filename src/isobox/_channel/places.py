"""Places for the connections of every sandbox: the process has so many descriptors."""

from __future__ import annotations

import resource
import threading
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._core.wrapped import WrappedConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox._core.results import Connection

#: Descriptors that a connection needs on the host: its own, and one to the world.
_EACH: Final = 2
#: Of the process's descriptors, one in so many is for its own work.
_RESERVE: Final = 4
#: Bytes after which a client has said something, though it was no head.
_MUCH: Final = 1 << 16
_HEAD_END: Final = b"\r\n\r\n"


def available() -> int:
    """Return how many connections a process has places for, by its soft limit.

    The limit is not raised: programs that it starts would inherit that, and some
    close every descriptor there may be, or cannot wait for those over 1023.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return max((soft - soft // _RESERVE) // _EACH, 1)


class Places:
    """So many places, shared evenly among those who want some.

    It may be used from several threads.

    Args:
        total: Says how many there are.
    """

    def __init__(self, total: Callable[[], int] = available) -> None:
        self._total = total
        self._lock = threading.Lock()
        self._shares: set[Share] = set()

    def join(
        self, most: int, *, free: Callable[[], None], cut: Callable[[], None]
    ) -> Share:
        """Take part.

        Args:
            most: Places that are taken at once at most, however many are left.
            free: Called once there may be a place again, after there was none.
            cut: Called to give back the place that is needed least, if there is
                one. Both may be called from any thread.
        """
        share = Share(self, most, free, cut)
        with self._lock:
            self._shares.add(share)
        return share

    def leave(self, share: Share) -> None:
        """Take no part any more; its places are free."""
        with self._lock:
            self._shares.discard(share)
            waiting = self._waiting()
        for each in waiting:
            each.free()

    def take(self, share: Share) -> bool:
        """Take a place; false if none is left, and then one is asked for."""
        with self._lock:
            total = self._total()
            even = max(total // max(len(self._shares), 2), 1)
            used = sum(each.taken for each in self._shares)
            left = total - used
            # The last ones are for those who have less than their part.
            spare = left > total // _RESERVE or share.taken < even
            if share.taken < share.most and left > 0 and spare:
                share.taken += 1
                return True
            share.waits = True
            own = share.taken >= min(even, share.most)
            loser = share if own else max(self._shares, key=lambda each: each.taken)
        loser.cut()
        return False

    def give(self, share: Share) -> None:
        """Give a place back."""
        with self._lock:
            share.taken -= 1
            waiting = self._waiting()
        for each in waiting:
            each.free()

    def _waiting(self) -> list[Share]:
        found = [share for share in self._shares if share.waits]
        for share in found:
            share.waits = False
        return found


class Share:
    """What one sandbox has of the places.

    Attributes:
        taken: The places that it has.
        waits: Whether it waits for one.
    """

    def __init__(
        self,
        places: Places,
        most: int,
        free: Callable[[], None],
        cut: Callable[[], None],
    ) -> None:
        self._places = places
        self.most = most
        self.free = free
        self.cut = cut
        self.taken = 0
        self.waits = False

    def take(self) -> bool:
        """Take a place; false if there is none: `free` is called when there may be."""
        return self._places.take(self)

    def give(self) -> None:
        """Give a place back."""
        self._places.give(self)

    def leave(self) -> None:
        """Take no part any more."""
        self._places.leave(self)


#: The places of this process.
SHARED: Final = Places()


class Caught(WrappedConnection):
    """A connection from inside, of which it is known whether it is in use.

    Attributes:
        since: The moment, of the event loop, at which it came.
        is_cut: Whether it was ended for others.
        used: Whether its client has said the head of a request, or more than one
            has, or was told something.
    """

    def __init__(self, inner: Connection, since: float) -> None:
        super().__init__(inner)
        self.since = since
        self._end = b""
        self._heard = 0
        self._scope: anyio.CancelScope | None = None
        self.is_cut = False
        self.used = False

    async def serve(self, job: Awaitable[None]) -> None:
        """Await what serves it, until it is cut."""
        with anyio.CancelScope() as self._scope:
            if self.is_cut:
                self._scope.cancel()
            await job
        if self.is_cut:
            await self.abort()

    def cut(self) -> None:
        """End it for others."""
        self.is_cut = True
        if self._scope is not None:
            self._scope.cancel()

    @override
    async def receive(self) -> bytes:
        data = await self._inner.receive()
        if not self.used:
            self._heard += len(data)
            self.used = _HEAD_END in self._end + data or self._heard > _MUCH
            self._end = (self._end + data)[-len(_HEAD_END) :]
        return data

    @override
    def receive_nowait(self) -> bytes:
        return self._inner.receive_nowait()

    @override
    async def send(self, data: bytes) -> None:
        self.used = True
        await self._inner.send(data)
