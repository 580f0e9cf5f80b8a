"""This machine's own addresses, listed anew once the kernel tells of a change."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from isobox._linux import interfaces

if TYPE_CHECKING:
    from isobox._core.hosts import Address

_AF_NETLINK: Final = 16
_ROUTE: Final = 0
#: Multicast groups of changes to addresses: RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR.
_CHANGES: Final = 0x10 | 0x100
_PIECE: Final = 1 << 12


class OwnAddresses:
    """Knows them without asking each time: every connection is held against them."""

    def __init__(self) -> None:
        self._changes: socket.socket | None = None
        self._known: frozenset[Address] | None = None

    def now(self) -> frozenset[Address]:
        """Return the addresses of every interface.

        Raises:
            OSError: The kernel does not tell.
        """
        if self._changes is None:
            self._changes = _changes()
        if self._have_changed(self._changes):
            self._known = None
        if self._known is None:
            self._known = interfaces.addresses()
        return self._known

    def close(self) -> None:
        """Be told no more; safe to call again, and so is `now`."""
        changes, self._changes, self._known = self._changes, None, None
        if changes is not None:
            changes.close()

    def _have_changed(self, changes: socket.socket) -> bool:
        try:
            while changes.recv(_PIECE):
                self._known = None
        except BlockingIOError:
            pass
        except OSError:
            # There were more changes than it could hold.
            return True
        return False


def _changes() -> socket.socket:
    """Return a socket that is told of changes."""
    told = socket.socket(_AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _ROUTE)
    try:
        told.bind((0, _CHANGES))
    except OSError:
        told.close()
        raise
    return told
