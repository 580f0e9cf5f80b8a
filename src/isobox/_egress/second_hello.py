"""The hello that a TLS client says once more, where the server asks for that.

A server answers a ClientHello that it cannot use with a HelloRetryRequest, and goes by
the name in the one that follows (RFC 8446, 4.1.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from isobox._core.wrapped import WrappedConnection
from isobox._egress import client_hello
from isobox._egress.parsing import ParseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._core.results import Connection
    from isobox._egress.client_hello import ClientHello

_HEADER: Final = 5
_ALERT, _HANDSHAKE = 21, 22
#: From change_cipher_spec to heartbeat.
_KINDS: Final = range(20, 25)
#: Bytes of a record that TLS 1.2 allows, which are the most.
_LARGEST_RECORD: Final = (1 << 14) + 2048
#: Records that a client may send before it is answered: 64 MiB of early data.
_MOST_RECORDS: Final = 4096

_SERVER_HELLO: Final = 2
#: A ServerHello with this random asks for another hello.
_ASKS_AGAIN: Final = bytes.fromhex(
    "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"
)
#: Bytes of a ServerHello up to the end of its random, which is the last of them.
_ENOUGH: Final = 38
#: Bytes in which a server has begun to answer.
_LONGEST_ANSWER: Final = 1 << 14


class Followed(WrappedConnection):
    """A client whose second ClientHello is checked before it is carried.

    What the client begins with is its first hello, which was checked. Once a second
    one was, or the server has answered and asks for none, nothing is looked at.

    Receiving raises what `check` does, and ParseError for what is no TLS.

    Args:
        client: The client.
        check: Raises an error if a hello is not one that may be carried.
    """

    def __init__(
        self, client: Connection, check: Callable[[ClientHello], None]
    ) -> None:
        super().__init__(client)
        self._check = check
        self._over = False
        self._hellos = 0
        self._records = 0
        # What came and is not carried yet, and bytes of a record that are to come.
        self._held = b""
        self._rest = 0
        self._answer: bytes | None = b""

    @override
    async def receive(self) -> bytes:
        while not self._over:
            data = await self._inner.receive()
            self._held += data
            if cleared := self._cleared():
                return cleared
            if not data:
                return self._end()
        held, self._held = self._held, b""
        return held or await self._inner.receive()

    @override
    async def send(self, data: bytes) -> None:
        # SAFETY: before the client has it, so that it answers nothing unseen.
        if self._answer is not None and not self._over:
            self._hear(self._answer + data)
        await self._inner.send(data)

    def _end(self) -> bytes:
        if self._held:
            raise ParseError("a TLS record of the client ends early")
        return b""

    def _cleared(self) -> bytes:
        at = self._rest
        # The server may have answered while this waited.
        while not self._over and at + _HEADER <= len(self._held):
            size = self._record(at)
            if size is None:
                break
            at += size
        if self._over:
            at = len(self._held)
        cleared, self._held = self._held[:at], self._held[at:]
        self._rest = at - len(cleared)
        return cleared

    def _record(self, at: int) -> int | None:
        """Return the size of a record that may be carried, None until that is clear."""
        kind, version = self._held[at : at + 2]
        if kind == _HANDSHAKE:
            return self._hello(self._held[at:])
        size = _size(self._held, at)
        # SAFETY: other records end nothing. A server skips early data that it did
        # not want, and heeds the hello behind them.
        self._records += 1
        if kind not in _KINDS or version != 3 or size > _LARGEST_RECORD:
            raise ParseError("what follows the ClientHello is no TLS record")
        if self._records > _MOST_RECORDS:
            raise ParseError(f"more than {_MOST_RECORDS} records before an answer")
        return _HEADER + size

    def _hello(self, data: bytes) -> int | None:
        size = client_hello.measured(data)
        if size is None:
            return None
        self._hellos += 1
        if self._hellos > 1:
            found = client_hello.parse(data)
            assert found is not None  # noqa: S101 - it was measured
            self._check(found)
            # No server takes a third one.
            self._over = True
        return size

    def _hear(self, answer: bytes) -> None:
        asks = asks_again(answer)
        self._answer = answer if asks is None else None
        self._over = asks is False


def asks_again(answer: bytes) -> bool | None:
    """Whether a server asks for another hello; None while that is not clear."""
    at, said = 0, b""
    while at < len(answer) and len(said) < _ENOUGH:
        if answer[at] not in (_ALERT, _HANDSHAKE):
            return False
        if len(answer) < at + _HEADER:
            break
        start, end = at + _HEADER, at + _HEADER + _size(answer, at)
        if answer[at] == _HANDSHAKE:
            said += answer[start:end]
        at = end
    if len(said) >= _ENOUGH or len(answer) > _LONGEST_ANSWER:
        return said[:1] == bytes((_SERVER_HELLO,)) and said[6:_ENOUGH] == _ASKS_AGAIN
    return None


def _size(records: bytes, at: int) -> int:
    """Return how many bytes a record has after its header."""
    return int.from_bytes(records[at + 3 : at + _HEADER])
