"""Which connections may leave: rules, and what they say of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, cast

from isobox._core import addresses, given, hosts
from isobox._policy.decision import Decision, Verdict
from isobox._policy.index import Index
from isobox._policy.network_rule import NetworkRule, Ports, is_own
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from isobox._core.hosts import Address
    from isobox._core.ops import Connect

__all__ = ["NONE", "NO_RULE", "OPEN", "Network", "NetworkRule", "Ports"]

#: What stands for a rule where none is about a connection.
NO_RULE: Final = "default"
#: Order in which verdicts win: deny beats ask beats allow.
_STRICTEST: Final[tuple[Verdict, ...]] = ("deny", "ask", "allow")


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
    _index: Index = field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, wanted: object) -> Network:
        """Return the network that a `network` argument means.

        Raises:
            InvalidArgumentError: It is none of "none", "open", a Network, or a
                sequence of rules.
        """
        if isinstance(wanted, Network):
            return wanted
        if wanted is None or wanted == "none":
            return NONE
        if wanted == "open":
            return OPEN
        _check_list("network", wanted)
        return cls(rules=tuple(map(_rule, cast("Iterable[object]", wanted))))

    def __post_init__(self) -> None:
        _check_list("Network: rules", self.rules)
        object.__setattr__(self, "rules", tuple(map(_rule, self.rules)))
        object.__setattr__(self, "_index", Index(self.rules))
        if self.otherwise not in ("deny", "ask"):
            raise InvalidArgumentError('Network: otherwise is "deny" or "ask"')
        given.whole("Network: connections", self.connections, 1)
        given.whole("Network: per_second", self.per_second, 1)
        for name in ("bytes_in", "bytes_out"):
            if getattr(self, name) is not None:
                given.whole(f"Network: {name}", getattr(self, name), 0)
        timeout = self.ask_timeout
        if not (given.is_number(timeout) and 0 < timeout < float("inf")):
            raise InvalidArgumentError("Network: ask_timeout is more than 0 seconds")

    def with_denials(self, other: Network) -> Network:
        """Return this network, with what another one denies denied as well."""
        denials = tuple(rule for rule in other.rules if _denies(rule))
        return replace(self, rules=(*self.rules, *denials)) if self else self

    @property
    def only_denies(self) -> bool:
        """Whether it says of nothing that it is allowed, or to be asked."""
        return self.otherwise == "deny" and all(map(_denies, self.rules))

    @property
    def asks(self) -> bool:
        """Whether a person may be asked about a connection, or a request."""
        return self.otherwise == "ask" or any(map(_asks, self.rules))

    def could_reach(self, pattern: str, port: int) -> bool:
        """Whether a rule lets something through, asked or not, of what `pattern` names.

        Args:
            pattern: A host, or `*.` and a name, in the one form.
            port: The port there.
        """
        return self.otherwise == "ask" or any(
            rule.has_port(port) and rule.meets(pattern)
            for rule in self.rules
            if not _denies(rule)
        )

    def could_read(self, pattern: str, port: int) -> bool:
        """Whether what is sent to something that `pattern` names could be read.

        Args:
            pattern: A host, or `*.` and a name, in the one form.
            port: The port there.
        """
        # What a rule with passthrough is about passes, whatever others say of it.
        if self.passes(pattern.replace("*", "isobox-any"), port):
            return False
        return self.otherwise == "ask" or any(
            rule.has_port(port) and rule.meets(pattern)
            for rule in self.rules
            if not _denies(rule) and not rule.passthrough
        )

    def __bool__(self) -> bool:
        return bool(self.rules) or self.otherwise == "ask"

    def decide(self, op: Connect) -> Decision:
        """Say whether a connection, or a request on one, may be made."""
        if op.via == "exposed":
            return Decision("allow", "expose_host_port", "the host's program opened it")
        if op.via == "dns":
            return self.answers(op.host)
        if op.host == "localhost" or op.host.endswith(".localhost"):
            return Decision("deny", "localhost", f"{op.host} is the sandbox's own")
        about = self._about(op.host, op.port)
        if op.method is None:
            return self._of_connection(op, about)
        return self._of_request(op.method, op.target or "/", about)

    def answers(self, name: str) -> Decision:
        """Say whether a name is answered: whether a connection could be allowed."""
        about = self._index.about(name)
        whole = [rule for rule in about if not (_denies(rule) and _is_narrow(rule))]
        return self._strictest(whole, name)

    def denies(self, host: str, port: int) -> Decision | None:
        """Return what is said where a rule denies a host, or requests there."""
        for rule in self._about(host, port):
            if _denies(rule):
                return Decision("deny", str(rule), _REASONS["deny"])
        return None

    def reaches(
        self, host: str, address: Address, port: int, *, own: bool = False
    ) -> Decision:
        """Say whether `host` may be reached at an address that it resolved to.

        Args:
            host: A name or an address, in the one form.
            address: The address.
            port: The port there.
            own: Whether it is an address of this machine.
        """
        text = str(address)
        about = self._about(text, port)
        for rule in about:
            if _denies(rule) and rule.network:
                return Decision(
                    "deny", str(rule), f"{host} is at {text}, which is denied"
                )
        kind: str = addresses.reach(address)
        if kind == "public" and own:
            kind = "this machine's"
        elif kind == "public":
            return Decision("allow", "public", f"{text} is public")
        for rule in about:
            # Who asked for a name was not asked about the address.
            allows = rule.verdict == "allow" or (host == text and not _denies(rule))
            if allows and (rule.names(address) or (own and rule.is_address(address))):
                return Decision("allow", str(rule), f"{text} is named")
        # The loopback is the sandbox's own, and no rule can name it.
        hint = "" if is_own(address) else "; to allow it, name the address in a rule"
        return Decision(
            "deny",
            "not public",
            f"{host} is at {text} ({kind.replace('_', '-')}), which no rule names"
            f"{hint}",
        )

    def reads(self, host: str, port: int) -> bool:
        """Whether rules are about the requests that are sent there."""
        return any(rule.reads for rule in self._about(host, port))

    def passes(self, host: str, port: int) -> bool:
        """Whether what is sent there is not to be read."""
        about = self._about(host, port)
        return any(rule.passthrough for rule in about) and not self.reads(host, port)

    def is_open(self, port: int) -> bool:
        """Whether every name may be reached there."""
        there = [rule for rule in self.rules if rule.has_port(port)]
        every = any(rule.host == "*" and not rule.reads for rule in there)
        return every and all(rule.verdict == "allow" for rule in there)

    def ports(self) -> frozenset[int]:
        """Return the ports that rules name."""
        named: set[int] = set()
        for rule in self.rules:
            if not _denies(rule) and isinstance(rule.ports, tuple):
                named.update(rule.ports)
        return frozenset(named)

    def _about(self, host: str, port: int) -> list[NetworkRule]:
        return [rule for rule in self._index.about(host) if rule.has_port(port)]

    def _of_connection(self, op: Connect, about: list[NetworkRule]) -> Decision:
        whole = [rule for rule in about if not rule.reads]
        for rule in about:
            # What is about requests is decided once there is one.
            if not whole and rule.reads and not _denies(rule):
                return Decision("allow", str(rule), "its requests are decided")
        decision = self._strictest(whole, f"{op.host}:{op.port}")
        address = hosts.address_of(op.host)
        if decision.verdict != "ask" or address is None:
            return decision
        # Nobody is asked about what could not be reached then.
        reached = self.reaches(op.host, address, op.port)
        return reached if reached.verdict == "deny" else decision

    def _of_request(
        self, method: str, target: str, about: list[NetworkRule]
    ) -> Decision:
        """Say what is said of a request on a connection that was allowed."""
        path = target.partition("?")[0]
        fitting = [rule for rule in about if rule.fits(method, path)]
        # Who was asked about the connection is not asked about each request.
        fresh = [rule for rule in fitting if rule.verdict != "ask" or rule.reads]
        by_request = any(rule.reads and not _denies(rule) for rule in about)
        asked = fitting or (self.otherwise == "ask" and not by_request)
        if asked and not fresh:
            return Decision("allow", "connection", "its connection was allowed")
        return self._strictest(fresh, f"{method} {path}")

    def _strictest(self, about: list[NetworkRule], what: str) -> Decision:
        for verdict in _STRICTEST:
            for rule in about:
                if rule.verdict == verdict:
                    return Decision(verdict, str(rule), _REASONS[verdict])
        if self.otherwise == "ask":
            return Decision("ask", "otherwise", f"no rule is about {what}")
        return Decision("deny", NO_RULE, f"no rule allows {what}")


_REASONS: Final[dict[Verdict, str]] = {
    "allow": "a rule allows it",
    "ask": "a rule asks a person",
    "deny": "a rule denies it",
}


def _check_list(name: str, rules: object) -> None:
    wrong = isinstance(rules, str | bytes | Mapping)
    if wrong or not isinstance(rules, Iterable):
        raise InvalidArgumentError(
            f'{name}={rules!r}: give "none", "open", or a list of hosts such as '
            '["example.org"]'
        )


def _rule(rule: object) -> NetworkRule:
    if isinstance(rule, NetworkRule):
        return rule
    if isinstance(rule, str):
        return NetworkRule.parse(rule)
    raise InvalidArgumentError(
        f"network rule {rule!r}: give a string such as example.org:443, or a "
        "NetworkRule"
    )


def _denies(rule: NetworkRule) -> bool:
    return rule.verdict == "deny"


def _asks(rule: NetworkRule) -> bool:
    return rule.verdict == "ask"


def _is_narrow(rule: NetworkRule) -> bool:
    return rule.reads or isinstance(rule.ports, tuple)


NONE: Final = Network()
OPEN: Final = Network(rules=(NetworkRule(host="*", ports="*"),))
