"""The rules about a host, found without a look at all the others."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from isobox._core import addresses, hosts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from isobox._core.hosts import Address
    from isobox._policy.network_rule import NetworkRule

#: Hosts of which it is remembered which rules are about them.
_REMEMBERED: Final = 1024


class Index:
    """Finds rules by their hosts.

    Args:
        rules: The rules; their order is kept.
    """

    def __init__(self, rules: Iterable[NetworkRule]) -> None:
        self._rules = tuple(rules)
        self._names: defaultdict[str, list[int]] = defaultdict(list)
        self._networks: defaultdict[addresses.Network, list[int]] = defaultdict(list)
        for number, rule in enumerate(self._rules):
            if rule.network is None:
                self._names[rule.host].append(number)
            else:
                self._networks[rule.network].append(number)
        self._sizes = {(each.version, each.prefixlen) for each in self._networks}
        self._known: dict[str, tuple[NetworkRule, ...]] = {}

    def about(self, host: str) -> tuple[NetworkRule, ...]:
        """Return the rules about a host, in the one form, on whatever ports."""
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[host] = tuple(self._about(host))
        return known

    def _about(self, host: str) -> list[NetworkRule]:
        address = hosts.address_of(host)
        if address is None:
            return [self._rules[number] for number in sorted(self._named(host))]
        found = (self._rules[number] for number in sorted(self._at(address)))
        return [rule for rule in found if rule.has_address(address)]

    def _named(self, host: str) -> set[int]:
        found = {*self._names.get("*", ()), *self._names.get(host, ())}
        while "." in host:
            host = host.partition(".")[2]
            found.update(self._names.get(f"*.{host}", ()))
        return found

    def _at(self, address: Address) -> set[int]:
        found = set(self._names.get("*", ()))
        for each in addresses.carried(address):
            for network in self._around(each):
                found.update(self._networks.get(network, ()))
        return found

    def _around(self, address: Address) -> Iterator[addresses.Network]:
        for version, size in self._sizes:
            if version == address.version:
                yield ipaddress.ip_network((address, size), strict=False)
