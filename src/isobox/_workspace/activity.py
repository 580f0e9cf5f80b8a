"""What goes on in a workspace: whether it is in use, and when it last was."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar, cast

from typing_extensions import override

from isobox._core.ops import Dial, Listen, Spawn
from isobox._core.results import Connection, Listener, Ongoing
from isobox._core.wrapped import WrappedConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox._core.ops import Op
    from isobox._core.stack import Perform

R = TypeVar("R")


class Activity:
    """A layer that counts what goes on: operations, and commands until they end.

    A persistent shell and an MCP server that wait for work are no use, nor is a
    connection or a port that is open: what is done with them is.

    Attributes:
        used: When something last began or ended, by its clock.
    """

    def __init__(self) -> None:
        self._going = _Going()
        self._allowed: Callable[[], Awaitable[None] | None] = _always
        self.go_by(time.monotonic)

    def go_by(self, clock: Callable[[], float]) -> None:
        """Take the time from a clock, by which it is used now."""
        self._clock = clock
        self.used = clock()

    def ask(self, allowed: Callable[[], Awaitable[None] | None]) -> None:
        """Begin nothing before it is allowed: what was returned is awaited."""
        self._allowed = allowed

    @property
    def in_use(self) -> bool:
        """Whether something goes on."""
        return self._going.count > 0

    def begin_anew(self) -> None:
        """Count from nothing: what went on ended with its sandbox."""
        self._going = _Going()

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        if (doubt := self._allowed()) is not None:
            await doubt
        going = self._going
        going.count += 1
        self.used = self._clock()
        try:
            result = await inner(op)
        except BaseException:
            self._ended(going)
            raise
        if isinstance(result, Ongoing) and not _waits(op):
            result.on_end(lambda _: self._ended(going))
            return result
        self._ended(going)
        if isinstance(result, Connection | Listener):
            return cast("R", self._heard(result))
        return result

    def _heard(self, result: Connection | Listener) -> Connection | Listener:
        """Return what says when something passes it."""
        if self._allowed is _always:
            return result  # nobody asks
        if isinstance(result, Connection):
            return _Heard(result, self._touch)
        return _Heeding(result, self._touch)

    def _touch(self) -> None:
        self.used = self._clock()

    def _ended(self, going: _Going) -> None:
        going.count -= 1
        self.used = self._clock()


class _Heard(WrappedConnection):
    """A connection that tells of each piece that passes it."""

    def __init__(self, inner: Connection, passed: Callable[[], None]) -> None:
        super().__init__(inner)
        self._passed = passed
        inner.on_end(self._ended)

    @override
    async def receive(self) -> bytes:
        piece = await self._inner.receive()
        self._passed()
        return piece

    @override
    def receive_nowait(self) -> bytes:
        if piece := self._inner.receive_nowait():
            self._passed()
        return piece

    @override
    async def send(self, data: bytes) -> None:
        self._passed()
        await self._inner.send(data)


class _Heeding(Listener):
    """A port whose connections do so."""

    def __init__(self, inner: Listener, passed: Callable[[], None]) -> None:
        super().__init__()
        self.port = inner.port
        self._inner = inner
        self._passed = passed
        inner.on_end(self._ended)

    @override
    async def accept(self) -> Connection:
        accepted = await self._inner.accept()
        self._passed()
        return _Heard(accepted, self._passed)

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


class _Going:
    """What goes on in one sandbox."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def _always() -> None:
    """Allow it, at once."""


def _waits(op: Op[R]) -> bool:
    if isinstance(op, Spawn):
        return op.report or op.declared
    return isinstance(op, Dial | Listen)
