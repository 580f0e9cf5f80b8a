"""Frames as they arrive from a guest that may be hostile."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from isobox._guest import agent
from isobox.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What a guest may send.
_FROM_GUEST = frozenset(
    (
        agent.HELLO,
        agent.DATA,
        agent.END,
        agent.CREDIT,
        agent.RESULT,
        agent.ERROR,
        agent.EVENT,
        agent.ACCEPT,
        agent.PONG,
    )
)

#: The largest payload of each kind; the others carry a few words.
_LARGEST = {
    agent.DATA: agent.PIECE + 1,
    agent.RESULT: 1 << 18,
    agent.ERROR: 1 << 16,
}
_LARGEST_OTHER = 4096


class Parser:
    """Cuts bytes into frames, and holds no more than one frame of them."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield (kind, stream, payload) for each whole frame.

        Raises:
            ProtocolError: A frame is of no known kind, or too large.
        """
        buffer = self._buffer
        if buffer:
            buffer += data
        # Most frames arrive whole, and need not be kept.
        source = buffer or data
        at, size = 0, agent.HEADER.size
        try:
            while len(source) - at >= size:
                length, kind, stream = agent.HEADER.unpack_from(source, at)
                # SAFETY: the header is the guest's word; refuse before waiting.
                _check(kind, length)
                end = at + size + length
                if end > len(source):
                    return
                payload = bytes(memoryview(source)[at + size : end])
                at = end
                yield kind, stream, payload
        finally:
            if source is buffer:
                del buffer[:at]
            else:
                buffer += memoryview(data)[at:]


def _check(kind: int, length: int) -> None:
    if kind not in _FROM_GUEST:
        raise ProtocolError(f"the guest sent a frame of unknown kind {kind}")
    if length > _LARGEST.get(kind, _LARGEST_OTHER):
        raise ProtocolError(f"the guest sent a frame of {length} bytes")


def frame(kind: int, stream: int, *parts: bytes) -> bytes:
    """Return one frame for the guest."""
    return b"".join((agent.HEADER.pack(sum(map(len, parts)), kind, stream), *parts))


def fields(payload: bytes) -> dict[str, object]:
    """Return the message that a frame carries.

    Raises:
        ProtocolError: It is none.
    """
    # SAFETY: decode bounds depth and sizes by the payload it is given.
    try:
        message: object = agent.decode(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the guest sent no message: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError("the guest sent a message that is no mapping")
    return cast("dict[str, object]", message)
