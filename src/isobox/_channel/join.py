"""Two connections that become one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from isobox._channel.background import collapsed
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from isobox._core.results import Connection

#: Seconds for what a side still has to say when the other is gone.
_LAST_WORDS: Final = 5.0
#: What sending fails with where nobody takes it.
_UNTAKEN: Final = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)


async def join(one: Connection, other: Connection, *, halves: bool = True) -> None:
    """Carry bytes both ways until both sides have ended; raises what breaks.

    A side that takes no more is heard for some seconds yet: it may say why.

    Args:
        one: A connection.
        other: Another one.
        halves: Whether one side goes on for as long as it likes when the other has
            ended, and not for some seconds.
    """
    broken: list[Exception] = []

    def hurry() -> None:
        deadline = anyio.current_time() + _LAST_WORDS
        group.cancel_scope.deadline = min(group.cancel_scope.deadline, deadline)

    async def taken(target: Connection, data: bytes) -> bool:
        try:
            await target.send(data)
        except _UNTAKEN as error:
            if isinstance(error, IsoboxError):
                raise
            broken.append(error)
            hurry()
            return False
        return True

    async def lead(source: Connection, target: Connection) -> None:
        heard = True
        while data := await source.receive():
            # What nobody takes is received all the same: who still says it could
            # not read the last words else.
            heard = heard and await taken(target, data)
        if not halves:
            hurry()
        if heard:
            await target.send_eof()

    with collapsed():
        async with anyio.create_task_group() as group:
            group.start_soon(lead, one, other)
            group.start_soon(lead, other, one)
    if broken:
        raise broken[0]
