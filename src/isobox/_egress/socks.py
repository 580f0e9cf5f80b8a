"""The server's side of SOCKS 5 (RFC 1928), up to the request."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from isobox._egress.parsing import ParseError, host

if TYPE_CHECKING:
    from collections.abc import Callable

_OPEN, _PASSWORD, _NO_METHOD = 0, 2, 0xFF
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_ADDRESS_SIZES = {_IPV4: 4, _IPV6: 16}

_SOCKS4_REJECTED = b"\x00\x5b" + bytes(6)


class Reply(IntEnum):
    """What a request may be answered (RFC 1928, 6)."""

    SUCCEEDED = 0
    FAILED = 1
    DENIED = 2
    NETWORK_UNREACHABLE = 3
    HOST_UNREACHABLE = 4
    REFUSED = 5
    EXPIRED = 6
    UNKNOWN_COMMAND = 7
    UNKNOWN_ADDRESS = 8


@dataclass(frozen=True, slots=True)
class Request:
    """A wish to be connected.

    Attributes:
        host: An IP address in its canonical form, or a name as it was sent, which
            is not normalised and may look like an address as well.
        port: From 1 to 65535.
    """

    host: str
    port: int


def reply(code: int) -> bytes:
    """Return the answer to a request; the address that it has to name is 0.0.0.0."""
    return bytes((5, code, 0, _IPV4)) + bytes(6)


class Socks:
    """One client's negotiation; a name and a password are taken and ignored.

    Give `receive` what arrives and send what it returns, until there is a
    `request`; then answer it with `reply`. It buffers no more than a request,
    and what follows it in the same piece.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._step: Callable[[], bytes | None] = self._greeting
        self._request: Request | None = None

    @property
    def request(self) -> Request | None:
        """What the client asks for, once that is known."""
        return self._request

    @property
    def rest(self) -> bytes:
        """What came after the request and belongs to the connection asked for."""
        return bytes(self._buffer) if self._request else b""

    def receive(self, data: bytes) -> bytes:
        """Take what the client sent; return what to send to it now.

        Raises:
            ParseError: It does not speak SOCKS 5, or wants what is not offered. Send
                the error's `reply` and close.
        """
        self._buffer += data
        said = b""
        try:
            while self._request is None and (answer := self._step()) is not None:
                said += answer
        except ParseError as error:
            error.reply = said + error.reply
            raise
        return said

    def _greeting(self) -> bytes | None:
        buffer = self._buffer
        if buffer:
            _check_version(buffer[0])
        if len(buffer) < 2 or len(buffer) < 2 + buffer[1]:
            return None
        methods = self._cut(2 + buffer[1])[2:]
        if _OPEN in methods:
            self._step = self._asking
            return bytes((5, _OPEN))
        if _PASSWORD in methods:
            self._step = self._password
            return bytes((5, _PASSWORD))
        raise ParseError(
            "the SOCKS client insists on a way to authenticate that is not offered",
            reply=bytes((5, _NO_METHOD)),
        )

    def _password(self) -> bytes | None:
        """Take a name and a password (RFC 1929)."""
        buffer = self._buffer
        if buffer and buffer[0] != 1:
            raise ParseError("the SOCKS password is malformed", reply=b"\x01\x01")
        if len(buffer) < 2 or len(buffer) < 3 + buffer[1]:
            return None
        size = 3 + buffer[1] + buffer[2 + buffer[1]]
        if len(buffer) < size:
            return None
        self._cut(size)
        self._step = self._asking
        return b"\x01\x00"

    def _asking(self) -> bytes | None:
        _check_request(bytes(self._buffer[:4]))
        size = self._request_size()
        if size is None or len(self._buffer) < size:
            return None
        request = self._cut(size)
        port = int.from_bytes(request[-2:])
        if not port:
            raise _refusal("the SOCKS request is for port 0", Reply.FAILED)
        self._request = Request(_host(request), port)
        return b""

    def _request_size(self) -> int | None:
        buffer = self._buffer
        if len(buffer) < 5:
            return None
        if buffer[3] == _NAME:
            return 5 + buffer[4] + 2
        return 4 + _ADDRESS_SIZES[buffer[3]] + 2

    def _cut(self, size: int) -> bytes:
        cut = bytes(self._buffer[:size])
        del self._buffer[:size]
        return cut


def _check_version(version: int) -> None:
    if version == 4:
        raise ParseError(
            "the client speaks SOCKS 4; only SOCKS 5 is offered",
            reply=_SOCKS4_REJECTED,
        )
    if version != 5:
        raise ParseError("the client does not speak SOCKS 5")


def _check_request(start: bytes) -> None:
    """Refuse a request at the first byte that shows that it will be."""
    if start and start[0] != 5:
        raise _refusal("the SOCKS request is malformed", Reply.FAILED)
    if len(start) > 1 and start[1] != _CONNECT:
        raise _refusal(
            f"the SOCKS client asks for command {start[1]}; only CONNECT is offered",
            Reply.UNKNOWN_COMMAND,
        )
    if len(start) > 2 and start[2]:
        raise _refusal("the SOCKS request is malformed", Reply.FAILED)
    if len(start) > 3 and start[3] not in (_IPV4, _NAME, _IPV6):
        raise _refusal(
            f"the SOCKS request has an address of the unknown type {start[3]}",
            Reply.UNKNOWN_ADDRESS,
        )


def _host(request: bytes) -> str:
    if request[3] != _NAME:
        return str(ipaddress.ip_address(request[4:-2]))
    try:
        return host(request[5:-2])
    except ParseError as error:
        raise _refusal(str(error), Reply.FAILED) from error


def _refusal(message: str, code: Reply) -> ParseError:
    return ParseError(message, reply=reply(code))
