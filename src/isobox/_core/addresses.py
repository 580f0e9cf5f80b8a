"""What an IP address reaches: the internet, or something closer to home."""

from __future__ import annotations

import functools
import ipaddress
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from isobox._core.hosts import Address

#: `public` is everything that is none of the others.
Reach = Literal[
    "public",
    "loopback",  # this host
    "metadata",  # a cloud's service that hands out credentials
    "link_local",
    "private",  # RFC 1918, RFC 4193, RFC 6598, RFC 8215, site-local
    "reserved",  # documentation, benchmarks, multicast, broadcast, unassigned
]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_V4 = ipaddress.IPv4Network
_V6 = ipaddress.IPv6Network

#: Where clouds answer with credentials: AWS, Azure, GCP and most others share
#: the first; AWS over IPv6, its containers, Alibaba, Azure's agent, Oracle.
METADATA: Final[frozenset[Address]] = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",
        "fd00:ec2::254",
        "169.254.170.2",
        "169.254.170.23",
        "fd00:ec2::23",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd20:ce::254",
    )
)

_BLOCKS: Final[tuple[tuple[Reach, tuple[Network, ...]], ...]] = (
    ("loopback", (_V4("127.0.0.0/8"), _V6("::1/128"))),
    ("link_local", (_V4("169.254.0.0/16"), _V6("fe80::/10"))),
    (
        "private",
        (
            _V4("10.0.0.0/8"),
            _V4("172.16.0.0/12"),
            _V4("192.168.0.0/16"),
            _V4("100.64.0.0/10"),
            _V6("fc00::/7"),
            _V6("fec0::/10"),
            _V6("64:ff9b:1::/48"),
        ),
    ),
    (
        "reserved",
        (
            _V4("0.0.0.0/8"),
            _V4("192.0.0.0/24"),
            _V4("192.0.2.0/24"),
            _V4("192.88.99.0/24"),
            _V4("198.18.0.0/15"),
            _V4("198.51.100.0/24"),
            _V4("203.0.113.0/24"),
            _V4("224.0.0.0/3"),
            _V6("::/128"),
            _V6("100::/64"),
            _V6("2001::/23"),
            _V6("2001:db8::/32"),
            _V6("3fff::/20"),
            _V6("ff00::/8"),
        ),
    ),
)

#: Gateways to IPv4 that everybody may use (RFC 6052).
_TRANSLATED: Final = _V6("64:ff9b::/96")
#: All of IPv6 that is given out for the internet (RFC 4291, 2.4).
_GLOBAL: Final = _V6("2000::/3")

#: Prefixes that carry an IPv4 address: RFC 6052's well-known and local-use
#: (RFC 8215) translation, the old compatible form, and the mapped ones.
_LAST_FOUR: Final = (
    _TRANSLATED,
    _V6("64:ff9b:1::/48"),
    _V6("::/96"),
    _V6("::ffff:0:0/96"),
    _V6("::ffff:0:0:0/96"),
)


@functools.lru_cache(1024)
def reach(address: Address) -> Reach:
    """Say what an address reaches, an IPv4 address inside of it included."""
    for each in carried(address):
        kind = _plain(each)
        if kind != "public":
            return kind
    return "public"


@functools.lru_cache(1024)
def block_of(address: Address) -> Network | None:
    """Return the network of addresses that are not public to which one belongs."""
    if address in METADATA:
        return ipaddress.ip_network(address)
    for _, blocks in _BLOCKS:
        for block in blocks:
            if address in block:
                return block
    return None


def _plain(address: Address) -> Reach:
    if address in METADATA:
        return "metadata"
    for kind, blocks in _BLOCKS:
        if any(address in block for block in blocks):
            return kind
    given = address.version == 4 or address in _GLOBAL or address in _TRANSLATED
    return "public" if given else "reserved"


def carried(address: Address) -> tuple[Address, ...]:
    """Return an address, and those that a gateway would take out of it."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address in (ipaddress.IPv6Address("::"), ipaddress.IPv6Address("::1")):
        return (address,)
    found: list[Address] = [address]
    if any(address in block for block in _LAST_FOUR):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    # ISATAP (RFC 5214): 0000:5efe or 0200:5efe before the last four bytes.
    if (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(found)
