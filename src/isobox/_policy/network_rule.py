"""One rule about connections that leave: what it is about, and what it says."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from typing_extensions import override

from isobox._core import addresses, given, hosts
from isobox._policy import paths
from isobox._policy.decision import Verdict
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from isobox._core.hosts import Address

#: Ports of a rule: these; all; or, where none are named, 80 and 443 for a rule
#: that allows, and all for one that denies.
Ports = tuple[int, ...] | Literal["*"] | None

WEB: Final = (80, 443)
_MARKS: Final[dict[str, Verdict]] = {"!": "deny", "?": "ask"}
_METHOD: Final = re.compile(r"[A-Z]{1,20}")
_PATH: Final = re.compile(r"[/*][^\s?#\x00-\x20\x7f]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRule:
    """One thing that connections may, or may not, reach.

    Attributes:
        host: A name; `*.example.org` for everything below it; an IP address or
            a network such as `10.0.0.0/8`; `*` for everything that is public.
        ports: Ports there; `"*"` is all. None is 80 and 443 where the rule
            allows or asks, and all where it denies.
        verdict: `allow`, `deny`, or `ask` a person. Deny beats ask beats allow.
        methods: Only requests with these methods, such as `("GET", "HEAD")`:
            the filter then reads what is sent to the host.
        paths: Only requests whose path is one of these, without the query; `*`
            stands for anything, such as `/v1/*`. Where servers may differ about
            what a path means (`%2561`, `//`, `;`), a rule that allows is about
            it if it is about each meaning, any other if it is about one. A
            path with `.` or `..` between slashes, however encoded, fits no rule
            that allows, and every other.
        passthrough: Do not read what is sent there, as programs need that pin a
            certificate; no secret is attached then. A rule about requests wins.

    Raises:
        InvalidArgumentError: It names what no rule can allow (the host's own
            loopback, `localhost`), what makes no sense together, or what is of
            another type.
    """

    host: str
    ports: Ports = None
    verdict: Verdict = "allow"
    methods: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    passthrough: bool = False
    network: addresses.Network | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        given.text("NetworkRule: host", self.host)
        given.truth("NetworkRule: passthrough", self.passthrough)
        if self.verdict not in get_args(Verdict):
            raise InvalidArgumentError(
                f"network rule {self.host!r}: verdict {self.verdict!r} is not allow, "
                "ask or deny"
            )
        network = _network(self.host)
        host = _written(network) if network else hosts.pattern(self.host)
        _refuse_own(self.host, host, network)
        _check_ports(self.ports)
        _check_requests(self)
        object.__setattr__(self, "host", host)
        object.__setattr__(self, "network", network)

    @classmethod
    def parse(cls, text: str) -> NetworkRule:
        """Read `HOST`, `HOST:PORT` or `HOST:*`, with `!` to deny, `?` to ask.

        An IPv6 address with a port is written in brackets: `[2001:db8::1]:443`.

        Raises:
            InvalidArgumentError: It is not of that form.
        """
        given.text("network rule", text)
        verdict = _MARKS.get(text[:1], "allow")
        rest = text if verdict == "allow" else text[1:]
        address = hosts.address_of(rest.partition("/")[0].strip("[]"))
        path = "/" in rest and address is None
        if not rest or path or "@" in rest:
            raise _not_alone(text)
        host, port = _split(rest)
        return cls(host=host, ports=_ports(text, port), verdict=verdict)

    @override
    def __str__(self) -> str:
        mark = {"deny": "!", "ask": "?", "allow": ""}[self.verdict]
        ports = "" if self.ports is None else f":{_listed(self.ports)}"
        host = f"[{self.host}]" if ports and ":" in self.host else self.host
        parts = [mark + host + ports]
        parts += ["|".join(self.methods)] if self.methods is not None else []
        parts += [" ".join(self.paths)] if self.paths is not None else []
        return " ".join(parts)

    @property
    def reads(self) -> bool:
        """Whether it is about requests, which the filter has to read."""
        return self.methods is not None or self.paths is not None

    def covers(self, host: str, port: int) -> bool:
        """Whether a destination, in the one form, is one that it is about."""
        return self.has_port(port) and self._has_host(host)

    def names(self, address: Address) -> bool:
        """Whether it names an address that is not public, as such.

        A network that is wider than the block of special addresses does not: a
        rule for everything is no rule for the neighbours.
        """
        block = addresses.block_of(address)
        if self.network is None or block is None or address not in self.network:
            return False
        return _within(self.network, block)

    def is_address(self, address: Address) -> bool:
        """Whether it is about this address alone."""
        return self.network == ipaddress.ip_network(address)

    def meets(self, pattern: str) -> bool:
        """Whether it is about something that a pattern names, on whatever port."""
        address = hosts.address_of(pattern)
        if address is not None or self.network is not None:
            return address is not None and self.has_address(address)
        return hosts.overlap(self.host, pattern)

    def fits(self, method: str, path: str) -> bool:
        """Whether a request is one that it is about; the path is without query."""
        return self._fits_method(method) and self._fits_path(path)

    def has_port(self, port: int) -> bool:
        """Whether it is about a port, of whatever host."""
        if self.ports is None:
            return self.verdict == "deny" or port in WEB
        return self.ports == "*" or port in self.ports

    def has_address(self, address: Address) -> bool:
        """Whether it is about an address, on whatever port."""
        if self.network is None:
            return self.host == "*"
        if self.verdict != "deny":
            return address in self.network
        return any(each in self.network for each in addresses.carried(address))

    def _has_host(self, host: str) -> bool:
        address = hosts.address_of(host)
        if address is not None:
            return self.has_address(address)
        return self.network is None and hosts.matches(self.host, host)

    def _fits_method(self, method: str) -> bool:
        if self.methods is None or method in self.methods:
            return True
        # Some servers take `delete` for DELETE.
        return self.verdict != "allow" and method.upper() in self.methods

    def _fits_path(self, path: str) -> bool:
        if self.paths is None:
            return True
        patterns = [paths.plain(pattern) for pattern in self.paths]
        # SAFETY: which of the readings the server takes is for it to say; so
        # none may be one that no rule allows, or that one denies.
        readings = paths.readings(path)
        about = [any(paths.fits(each, one) for each in patterns) for one in readings]
        if self.verdict == "allow":
            return bool(about) and all(about)
        return not about or any(about)


def _within(network: addresses.Network, block: addresses.Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(block, ipaddress.IPv4Network) and network.subnet_of(block)
    return isinstance(block, ipaddress.IPv6Network) and network.subnet_of(block)


def _network(text: str) -> addresses.Network | None:
    address = hosts.address_of(text)
    if address is not None:
        return ipaddress.ip_network(address)
    if "/" not in text:
        return None
    if "://" in text:
        raise _not_alone(text)
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidArgumentError(f"network rule {text!r}: {error}") from None
    return _unmapped(network)


def _not_alone(text: str) -> InvalidArgumentError:
    named = re.search(r"://([\w.-]+)(?=[:/]|$)(?!.*@)", text)
    host = named[1] if named else "example.org"
    return InvalidArgumentError(
        f"network rule {text!r}: write the host alone, such as {host} or {host}:443"
    )


def _unmapped(network: addresses.Network) -> addresses.Network:
    # An address that is mapped into IPv6 is the IPv4 address everywhere here.
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < 96:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - 96))


def _written(network: addresses.Network) -> str:
    whole = network.prefixlen == network.max_prefixlen
    return str(network.network_address if whole else network)


def _refuse_own(text: str, host: str, network: addresses.Network | None) -> None:
    own = host == "localhost" or hosts.matches("*.localhost", host)
    if network is not None:
        own = any(_within(network, block) for block in _OWN)
    if own:
        raise InvalidArgumentError(
            f"network rule {text!r}: localhost is the sandbox's own; "
            "expose_host_port leads to a port of the host's loopback"
        )


def is_own(address: Address) -> bool:
    """Whether an address is the sandbox's own, which no rule can allow."""
    return any(address in block for block in _OWN)


def _check_ports(ports: object) -> None:
    if ports is None or ports == "*":
        return
    if not isinstance(ports, tuple):
        raise InvalidArgumentError(
            f'ports={ports!r}: give a tuple such as (443,), or "*"'
        )
    for port in cast("tuple[object, ...]", ports):
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
            raise InvalidArgumentError(f"port {port!r}: a number from 1 to 65535")


def _check_requests(rule: NetworkRule) -> None:
    _check_some("methods", rule.methods)
    _check_some("paths", rule.paths)
    for method in rule.methods or ():
        if not _METHOD.fullmatch(method):
            raise InvalidArgumentError(f"method {method!r}: write it as GET or POST")
    for path in rule.paths or ():
        if not _PATH.fullmatch(path):
            raise InvalidArgumentError(
                f"path {path!r}: it begins with / or *, and has no space and no query"
            )
    if rule.passthrough and rule.reads:
        raise InvalidArgumentError(
            f"network rule {rule.host!r}: with passthrough=True nobody reads the "
            "requests, so methods and paths cannot be told"
        )


def _check_some(name: str, some: object) -> None:
    if some is None:
        return
    # A text would pass for a sequence of one-letter ones.
    if not (isinstance(some, tuple) and some):
        raise InvalidArgumentError(f"{name}={some!r}: give a tuple of at least one")
    for each in cast("tuple[object, ...]", some):
        given.text(name, each)


def _split(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, _, after = text.partition("]")
        return host[1:] + after.partition(":")[0], after.partition(":")[2] or None
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, None


def _ports(text: str, port: str | None) -> Ports:
    if port is None:
        return None
    if port == "*":
        return "*"
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise InvalidArgumentError(f"network rule {text!r}: {port!r} is no port")
    return (int(port),)


def _listed(ports: Ports) -> str:
    return ",".join(map(str, ports)) if isinstance(ports, tuple) else "*"


#: What leads to the host itself: its loopback, and what means "this host".
_OWN: Final = tuple(
    map(ipaddress.ip_network, ("127.0.0.0/8", "0.0.0.0/8", "::1/128", "::/128"))
)
