"""Which connections may leave: rules, and what they say of one."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from typing_extensions import override

from isobox._core import addresses, hosts
from isobox._policy.decision import Decision, Verdict
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from isobox._core.hosts import Address
    from isobox._core.ops import Connect

#: Ports of a rule: these; all; or, where none are named, 80 and 443 for a rule
#: that allows, and all for one that denies.
Ports = tuple[int, ...] | Literal["*"] | None

WEB: Final = (80, 443)
_MARKS: Final[dict[str, Verdict]] = {"!": "deny", "?": "ask"}
_METHOD: Final = re.compile(r"[A-Z]{1,20}")
#: Order in which verdicts win: deny beats ask beats allow.
_STRICTEST: Final[tuple[Verdict, ...]] = ("deny", "ask", "allow")


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
        paths: Only requests whose path is one of these; `*` stands for
            anything, such as `/v1/*`.
        passthrough: Never read what is sent there, as programs need that pin a
            certificate; no secret is attached then.

    Raises:
        InvalidArgumentError: It names what no rule can allow (the host's own
            loopback, `localhost`), or what makes no sense together.
    """

    host: str
    ports: Ports = None
    verdict: Verdict = "allow"
    methods: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    passthrough: bool = False
    network: addresses.Network | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
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
        verdict = _MARKS.get(text[:1], "allow")
        rest = text if verdict == "allow" else text[1:]
        if "//" in rest or "@" in rest:
            raise InvalidArgumentError(
                f"network rule {text!r}: write the host alone, such as example.org "
                "or example.org:443"
            )
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
        return self._has_port(port) and self._has_host(host)

    def names(self, address: Address) -> bool:
        """Whether it names an address that is not public, as such.

        A network that is wider than the block of special addresses does not: a
        rule for everything is no rule for the neighbours.
        """
        block = addresses.block_of(address)
        if self.network is None or block is None or address not in self.network:
            return False
        return _within(self.network, block)

    def fits(self, method: str, path: str) -> bool:
        """Whether a request is one that it is about."""
        if self.methods is not None and method not in self.methods:
            return False
        return self.paths is None or any(_fits(each, path) for each in self.paths)

    def _has_port(self, port: int) -> bool:
        if self.ports is None:
            return self.verdict == "deny" or port in WEB
        return self.ports == "*" or port in self.ports

    def _has_host(self, host: str) -> bool:
        address = hosts.address_of(host)
        if address is None:
            return self.network is None and hosts.matches(self.host, host)
        if self.network is None:
            return self.host == "*"
        return self._holds(address)

    def _holds(self, address: Address) -> bool:
        assert self.network is not None  # noqa: S101 - callers have checked
        if self.verdict != "deny":
            return address in self.network
        return any(each in self.network for each in addresses.carried(address))


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What of the network a workspace reaches, and how much of it.

    Attributes:
        rules: Strings are read as `NetworkRule.parse` does. None at all is no
            network.
        otherwise: What happens to what no rule is about: `deny`, or `ask`.
        connections: Connections alive at once; more are refused.
        per_second: New connections in a second; more are refused.
        bytes_in: Bytes that one host may send, in the life of the sandbox.
        bytes_out: Bytes that may be sent to one host, likewise.
        ask_timeout: Seconds that a connection waits for a person's answer.
    """

    rules: tuple[NetworkRule, ...] = ()
    otherwise: Literal["deny", "ask"] = "deny"
    connections: int = 256
    per_second: int = 200
    bytes_in: int | None = None
    bytes_out: int | None = None
    ask_timeout: float = 60.0

    @classmethod
    def of(cls, given: object) -> Network:
        """Return the network that a `network` argument means.

        Raises:
            InvalidArgumentError: It is none of "none", "open", a Network, or a
                sequence of rules.
        """
        if isinstance(given, Network):
            return given
        if given is None or given == "none":
            return NONE
        if given == "open":
            return OPEN
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise InvalidArgumentError(
                f'network={given!r}: give "none", "open", or a list of hosts such '
                'as ["example.org"]'
            )
        return cls(rules=tuple(map(_rule, given)))

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(map(_rule, self.rules)))
        for name in ("connections", "per_second"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"Network: {name} is at least 1")

    def __bool__(self) -> bool:
        return bool(self.rules) or self.otherwise == "ask"

    def decide(self, op: Connect) -> Decision:
        """Say whether a connection, or a request on one, may be made."""
        if op.via == "exposed":
            return Decision("allow", "expose_host_port", "the host's program opened it")
        if op.via == "dns":
            return self.answers(op.host)
        about = [rule for rule in self.rules if rule.covers(op.host, op.port)]
        where = f"{op.host}:{op.port}"
        if op.method is not None:
            path = (op.target or "/").partition("?")[0]
            fitting = [rule for rule in about if rule.fits(op.method, path)]
            return self._strictest(fitting, f"{op.method} {path} at {where}")
        decision = self._strictest([rule for rule in about if not rule.reads], where)
        for rule in about:
            # What is about requests is decided once there is one.
            if rule.reads and not _denies(rule) and decision.rule in _UNRULED:
                return Decision("allow", str(rule), "its requests are decided")
        return decision

    def answers(self, name: str) -> Decision:
        """Say whether a name is answered: whether a connection could be allowed."""
        about = [rule for rule in self.rules if rule._has_host(name)]
        whole = [rule for rule in about if not (_denies(rule) and _is_narrow(rule))]
        return self._strictest(whole, name)

    def reaches(self, host: str, address: Address, port: int) -> Decision:
        """Say whether `host` may be reached at an address that it resolved to."""
        text = str(address)
        for rule in self.rules:
            if _denies(rule) and rule.network and rule.covers(text, port):
                return Decision(
                    "deny", str(rule), f"{host} is at {text}, which is denied"
                )
        kind = addresses.reach(address)
        if kind == "public":
            return Decision("allow", "public", f"{text} is public")
        for rule in self.rules:
            if not _denies(rule) and rule.covers(text, port) and rule.names(address):
                return Decision("allow", str(rule), f"{text} is named")
        return Decision(
            "deny",
            "not public",
            f"{host} is at {text} ({kind.replace('_', '-')}), which no rule names",
        )

    def reads(self, host: str, port: int) -> bool:
        """Whether rules are about the requests that are sent there."""
        return any(rule.reads and rule.covers(host, port) for rule in self.rules)

    def passes(self, host: str, port: int) -> bool:
        """Whether what is sent there is never read."""
        return any(rule.passthrough and rule.covers(host, port) for rule in self.rules)

    def ports(self) -> frozenset[int]:
        """Return the ports that rules name."""
        named: set[int] = set()
        for rule in self.rules:
            if not _denies(rule) and isinstance(rule.ports, tuple):
                named.update(rule.ports)
        return frozenset(named)

    def _strictest(self, about: list[NetworkRule], what: str) -> Decision:
        for verdict in _STRICTEST:
            for rule in about:
                if rule.verdict == verdict:
                    return Decision(verdict, str(rule), _REASONS[verdict])
        if self.otherwise == "ask":
            return Decision("ask", "otherwise", f"no rule is about {what}")
        return Decision("deny", "default", f"no rule allows {what}")


#: What stands for a rule where there is none.
_UNRULED: Final = ("otherwise", "default")

_REASONS: Final[dict[Verdict, str]] = {
    "allow": "a rule allows it",
    "ask": "a rule asks a person",
    "deny": "a rule denies it",
}


def _rule(given: object) -> NetworkRule:
    if isinstance(given, NetworkRule):
        return given
    if isinstance(given, str):
        return NetworkRule.parse(given)
    raise InvalidArgumentError(
        f"network rule {given!r}: give a string such as example.org:443, or a "
        "NetworkRule"
    )


def _denies(rule: NetworkRule) -> bool:
    return rule.verdict == "deny"


def _is_narrow(rule: NetworkRule) -> bool:
    return rule.reads or isinstance(rule.ports, tuple)


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
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidArgumentError(f"network rule {text!r}: {error}") from None


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


def _check_ports(ports: object) -> None:
    if ports is None or ports == "*":
        return
    if not isinstance(ports, tuple):
        raise InvalidArgumentError(
            f'ports={ports!r}: give a tuple such as (443,), or "*"'
        )
    for port in ports:
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
            raise InvalidArgumentError(f"port {port!r}: a number from 1 to 65535")


def _check_requests(rule: NetworkRule) -> None:
    for method in rule.methods or ():
        if not _METHOD.fullmatch(method):
            raise InvalidArgumentError(f"method {method!r}: write it as GET or POST")
    for path in rule.paths or ():
        if not path.startswith(("/", "*")):
            raise InvalidArgumentError(f"path {path!r}: it begins with /")
    if rule.passthrough and rule.reads:
        raise InvalidArgumentError(
            f"network rule {rule.host!r}: with passthrough=True nobody reads the "
            "requests, so methods and paths cannot be told"
        )


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


def _fits(pattern: str, path: str) -> bool:
    # Linear in the path: the pieces between stars, one after the other.
    first, *others = pattern.split("*")
    if not others:
        return path == pattern
    if not path.startswith(first):
        return False
    at = len(first)
    for piece in others[:-1]:
        found = path.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(path) - at >= len(others[-1]) and path.endswith(others[-1])


#: What leads to the host itself: its loopback, and what means "this host".
_OWN: Final = tuple(
    map(ipaddress.ip_network, ("127.0.0.0/8", "0.0.0.0/8", "::1/128", "::/128"))
)

NONE: Final = Network()
OPEN: Final = Network(rules=(NetworkRule(host="*", ports="*"),))
