"""A file's bytes, as they come from inside."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal
from isobox._core.results import ByteStream
from isobox._shell import answers
from isobox._shell.quote import filled
from isobox.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isobox._shell.operators import Operator, Operators

_SMALL, _LARGE = 1 << 16, 1 << 20
#: Opens what is a regular file, looks again at what is open, and reads on.
_READ: Final = """\
( p=<path>
[ -f "$p" ] && [ -r "$p" ] || why "$p"
command exec 8<"$p" || why "$p"
[ -f /proc/self/fd/8 ] || no not_regular
printf 'ok '; stat -L -c <format> /proc/self/fd/8
dd bs=<block> skip=<skip> {count} <&8 && printf 000 || printf 005 )"""


class Whole:
    """Takes the status off the end of what a program printed."""

    def __init__(self, op: str, path: str) -> None:
        self._op = op
        self._path = path
        self._held = b""

    def add(self, piece: bytes) -> bytes:
        """Return what surely is no status."""
        data = self._held + piece
        at = max(0, len(data) - 3)
        self._held = data[at:]
        return data[:at]

    def check(self) -> None:
        """Raise unless everything was read.

        Raises:
            StorageError: The file system failed.
            ProtocolError: There is no status.
        """
        if not self._held.isdigit() or len(self._held) != 3:
            raise ProtocolError("the shell inside did not say how it ended")
        if number := int(self._held):
            raise answers.error_of(
                answers.failure(number), op=self._op, path=self._path
            )


class Reading(ByteStream):
    """What code prints, without its first and beyond its last bytes."""

    def __init__(
        self,
        operator: Operator,
        stack: contextlib.AsyncExitStack,
        *,
        op: str,
        path: str,
        skip: int = 0,
        most: int | None = None,
    ) -> None:
        super().__init__()
        self._pieces = operator.answer()
        self._stack = stack
        self._whole = Whole(op, path)
        self._skip = skip
        self._left = most
        self._count = 0

    @override
    async def receive(self) -> bytes:
        try:
            async for piece in self._pieces:
                if data := self._cut(self._whole.add(piece)):
                    self._count += len(data)
                    return data
            self._whole.check()
        except BaseException:
            await self.aclose()
            raise
        await self.aclose()
        return b""

    def _cut(self, data: bytes) -> bytes:
        dropped = min(self._skip, len(data))
        self._skip -= dropped
        data = data[dropped:]
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        return data

    @override
    async def aclose(self) -> None:
        self._ended({"bytes": self._count})
        with anyio.CancelScope(shield=True):
            await self._stack.aclose()


async def opened(
    operators: Operators, path: str, *, offset: int, length: int | None, op: str
) -> tuple[Reading, list[bytes]]:
    """Open a regular file; also returns how it is described.

    Raises:
        PathError: There is none.
    """
    stack = contextlib.AsyncExitStack()
    try:
        operator = await stack.enter_async_context(operators.one(spare=True))
        fields = await _begun(operator, path, offset, length, op)
    except BaseException:
        await stack.aclose()
        raise
    reading = Reading(
        operator,
        stack,
        op=op,
        path=path,
        skip=offset % _block(length),
        most=length,
    )
    return reading, fields


def _block(length: int | None) -> int:
    return _LARGE if length is None or length > _LARGE else _SMALL


async def _begun(
    operator: Operator, path: str, offset: int, length: int | None, op: str
) -> list[bytes]:
    block = _block(length)
    count = ""
    if length is not None:
        count = f"count={-(-(offset % block + length) // block)}"
    nonce = secrets.token_hex(8)
    code = filled(
        _READ.replace("{count}", count),
        path=path,
        block=block,
        skip=offset // block,
        format=answers.FORMAT.format(nonce),
    )
    await operator.tell(code)
    line = await answers.check_line(operator, op=op, path=path)
    found = answers.records(line, nonce)
    if len(found) != 1:
        raise ProtocolError("the shell inside describes something else")
    return found[0]


async def content(
    operators: Operators, path: str, *, op: str, most: int
) -> AsyncIterator[bytes]:
    """Yield a file's bytes, no more than `most`."""
    reading, _ = await opened(operators, path, offset=0, length=None, op=op)
    async with reading:
        size = 0
        async for piece in reading:
            size += len(piece)
            if size > most:
                raise error_for(
                    GuestRefusal("invalid", f"{path!r} is over {most} bytes", 0),
                    op=op,
                    path=path,
                )
            yield piece
