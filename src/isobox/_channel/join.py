"""Two connections that become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from isobox._channel.background import collapsed

if TYPE_CHECKING:
    from isobox._core.results import Connection


async def join(one: Connection, other: Connection) -> None:
    """Carry bytes both ways until both sides have ended; raises what breaks."""
    with collapsed():
        async with anyio.create_task_group() as group:
            group.start_soon(carry, one, other)
            group.start_soon(carry, other, one)


async def carry(source: Connection, target: Connection) -> None:
    """Carry bytes one way, and then the end."""
    while data := await source.receive():
        await target.send(data)
    await target.send_eof()
