"""The addresses that this machine has."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_AF_NETLINK: Final = 16
_ROUTE: Final = 0
_NEW_ADDRESS, _GET_ADDRESS = 20, 22
_ERROR, _DONE = 2, 3
#: A request, for all that there are.
_FLAGS: Final = 0x301
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_MESSAGE: Final = struct.Struct("=IHHII")
_BODY: Final = struct.Struct("=BBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
#: Bytes of an answer: the kernel puts no more than 32 KiB into one.
_PIECE: Final = 1 << 16
_ASKED: Final = 1


def addresses() -> frozenset[Address]:
    """Return the addresses of every interface, of this network namespace.

    Raises:
        OSError: The kernel does not tell.
    """
    found: set[Address] = set()
    with socket.socket(_AF_NETLINK, socket.SOCK_RAW, _ROUTE) as asked:
        size = _MESSAGE.size + _BODY.size
        head = _MESSAGE.pack(size, _GET_ADDRESS, _FLAGS, _ASKED, 0)
        asked.sendto(head + _BODY.pack(0, 0, 0, 0, 0), (0, 0))
        while True:
            for kind, body in _messages(asked.recv(_PIECE)):
                if kind == _DONE:
                    return frozenset(found)
                if kind == _ERROR:
                    number = -int.from_bytes(body[:4], sys.byteorder, signed=True)
                    raise OSError(number, os.strerror(number))
                if kind == _NEW_ADDRESS:
                    found.update(_own(body))


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _MESSAGE.size:
        size, kind, *_ = _MESSAGE.unpack_from(data)
        yield kind, data[_MESSAGE.size : size]
        data = data[_aligned(max(size, _MESSAGE.size)) :]


def _own(body: bytes) -> Iterator[Address]:
    family = body[0]
    parts = dict(_attributes(body[_BODY.size :]))
    # Where a link has two ends, the address is the other's.
    packed = parts.get(_IFA_LOCAL, parts.get(_IFA_ADDRESS))
    if packed and family in (socket.AF_INET, socket.AF_INET6):
        yield ipaddress.ip_address(packed)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : size]
        data = data[_aligned(max(size, _ATTRIBUTE.size)) :]


def _aligned(size: int) -> int:
    return (size + 3) & ~3
