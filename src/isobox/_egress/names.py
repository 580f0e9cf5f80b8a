"""Addresses that stand for names inside the sandbox."""

from __future__ import annotations

import ipaddress
from typing import Final

from isobox._core.hosts import Address, address_of

#: Names that one sandbox may ask for; a wildcard rule has no end of them.
_MOST: Final = 65536


class Names:
    """Gives every name an address of its own, and knows it by that again.

    Args:
        network: The IPv4 network of the addresses, of which all are caught.
    """

    def __init__(self, network: str) -> None:
        self._network = ipaddress.IPv4Network(network)
        self._addresses: dict[str, ipaddress.IPv4Address] = {}
        self._names: dict[str, str] = {}

    def address(self, name: str) -> ipaddress.IPv4Address | None:
        """Return the address that stands for `name`; None when all are given."""
        known = self._addresses.get(name)
        if known is not None:
            return known
        number = len(self._addresses) + 1
        if number > _MOST or number >= self._network.num_addresses - 1:
            return None
        address = self._network[number]
        self._addresses[name] = address
        self._names[str(address)] = name
        return address

    def host(self, address: str) -> str | None:
        """Return what was dialled: a name, or the address itself.

        None is an address that stands for nothing: one of ours that was never
        given, or the sandbox's own loopback.
        """
        known = self._names.get(address)
        if known is not None:
            return known
        found = address_of(address)
        if isinstance(found, ipaddress.IPv4Address) and found in self._network:
            return self._names.get(str(found))
        if found is None or _is_own(found):
            return None
        return str(found)


def _is_own(address: Address) -> bool:
    return address.is_loopback or address.is_unspecified
