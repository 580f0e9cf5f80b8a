"""Bytes that are counted while they arrive."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from isobox._core.wrapped import WrappedProcess, WrappedStream
from isobox.errors import BudgetError, IsoboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._core.results import ByteStream, Exit, Process

_OUTPUTS: Final = ("stdout_bytes", "stderr_bytes")


class Metered(WrappedStream):
    """A stream that tells how much of it was read.

    Args:
        inner: The stream.
        count: Told of the bytes of each piece; what it raises ends the reading,
            and the piece is not returned.
    """

    def __init__(self, inner: ByteStream, count: Callable[[int], None]) -> None:
        super().__init__(inner)
        self._count = count

    @override
    async def receive(self) -> bytes:
        piece = await self._inner.receive()
        self._count(len(piece))
        return piece

    @override
    def receive_nowait(self) -> bytes:
        data = self._inner.receive_nowait()
        self._count(len(data))
        return data


class MeteredProcess(WrappedProcess):
    """A command whose output is counted, and that ends where it is too much.

    Whoever reads it then, or waits for it, gets a BudgetError.

    Args:
        inner: The command.
        count: Told of the bytes that it printed; returns why that is too much.
    """

    def __init__(
        self, inner: Process, count: Callable[[int], BudgetError | None]
    ) -> None:
        super().__init__(
            inner,
            stdout=Metered(inner.stdout, self._read),
            stderr=Metered(inner.stderr, self._read),
        )
        self._count = count
        self._counted = 0
        self._over: BudgetError | None = None
        self._killing: asyncio.Future[None] | None = None
        inner._on_print = self._count_printed
        inner.on_end(self._settle)

    def _read(self, size: int) -> None:
        self._count_printed(size)
        if self._over is not None:
            raise _again(self._over)

    def _count_printed(self, size: int) -> None:
        if self._is_over(size) and self._killing is None:
            self._killing = asyncio.ensure_future(self._stop())

    def _is_over(self, size: int) -> bool:
        self._counted += size
        # Who prints nothing has no part in what others have printed.
        if size > 0 and self._over is None:
            self._over = self._count(size)
        return self._over is not None

    def _settle(self, end: dict[str, object]) -> None:
        """Count what nobody was told of before the end."""
        found = (end.get(name) for name in _OUTPUTS)
        total = sum(number for number in found if isinstance(number, int))
        self._is_over(total - self._counted)

    async def _stop(self) -> None:
        with contextlib.suppress(IsoboxError):
            await self._inner.kill()

    @override
    async def wait(self) -> Exit:
        end = await self._inner.wait()
        if self._over is not None:
            raise _again(self._over)
        return end


def _again(error: BudgetError) -> BudgetError:
    # A fresh one: each raise of one object would grow its traceback.
    return BudgetError(error.message, budget=error.budget, op="spawn")
