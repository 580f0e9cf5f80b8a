"""What a command prints, with the values of secrets masked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._core.wrapped import WrappedProcess, WrappedStream

if TYPE_CHECKING:
    from isobox._core.results import ByteStream, Captured, Exit, Process
    from isobox._egress.redact import Redactor

#: Seconds that an end which may begin a value waits for what follows it: longer
#: than between two pieces of one write, too short for a person to notice.
_PATIENCE: Final = 0.1


class RedactedStream(WrappedStream):
    """A stream with values masked, each byte by a `*`."""

    def __init__(self, inner: ByteStream, redactor: Redactor) -> None:
        super().__init__(inner)
        self._redactor = redactor
        self._holds = False

    @override
    async def receive(self) -> bytes:
        while True:
            piece = b""
            with anyio.move_on_after(_PATIENCE if self._holds else None) as waiting:
                piece = await self._inner.receive()
            if not piece:
                self._holds = False
                shown = self._redactor.flush()
                if shown or not waiting.cancelled_caught:
                    return shown
                continue
            shown = self._redactor.feed(piece)
            self._holds = len(shown) < len(piece)
            if shown:
                return shown

    @override
    def receive_nowait(self) -> bytes:
        self._holds = False
        return self._redactor.feed(self._inner.receive_nowait()) + (
            self._redactor.flush()
        )


class RedactedProcess(WrappedProcess):
    """A process whose outputs have values masked."""

    def __init__(self, inner: Process, redactor: Redactor) -> None:
        super().__init__(
            inner,
            stdout=RedactedStream(inner.stdout, redactor.fresh()),
            stderr=RedactedStream(inner.stderr, redactor.fresh()),
        )
        self._redactor = redactor

    @override
    async def wait(self) -> Exit:
        end = await self._inner.wait()
        return replace(
            end,
            stdout=redacted(end.stdout, self._redactor),
            stderr=redacted(end.stderr, self._redactor),
        )


def redacted(captured: Captured | None, redactor: Redactor) -> Captured | None:
    """Return captured output with values masked; its lengths stay."""
    if captured is None:
        return None
    head, tail = (_whole(part, redactor) for part in (captured.head, captured.tail))
    return replace(captured, head=head, tail=tail)


def _whole(data: bytes, redactor: Redactor) -> bytes:
    fresh = redactor.fresh()
    return fresh.feed(data) + fresh.flush()
