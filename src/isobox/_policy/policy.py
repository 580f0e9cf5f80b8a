"""Policies and their decisions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from isobox._core.ops import Connect, Script, Spawn
from isobox._policy.decision import Decision, Verdict
from isobox._policy.network import NO_RULE, NONE, Network
from isobox._policy.op_rule import Rule, rules_of
from isobox._policy.part import GROUPS, Part, parts
from isobox._policy.rule_index import RuleIndex
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from isobox._core.ops import Op

#: The directory of a workspace where nobody says which.
ROOT: Final = "/workspace"
#: The network of a policy that says nothing of it, and only tightens another.
UNSAID: Final = Network()
#: Commands whose decisions are remembered, and characters of such a one.
_REMEMBERED: Final = 512
_LONGEST: Final = 4096
#: Characters of a command in a reason.
_SHOWN: Final = 120
_UNSURE: Final = "which file it writes, only running it tells, and a rule is about some"
_FILLED: Final = "only running it tells its arguments, and a rule is about some"
_ORDER: Final[dict[Verdict, int]] = {"allow": 0, "ask": 1, "deny": 2}
#: Operations of which rules know no more than the parts by that name.
_PLAIN: Final = frozenset[str]().union(*GROUPS.values()) - {
    "spawn",
    "script",
    "connect",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What may happen in a workspace; the same operation, the same decision.

    Attributes:
        default: What it says of everything inside that no rule is about.
        network: What may be reached outside.
        rules: What it says of operations that do something in particular. Deny
            beats ask beats allow.
        read_only: The workspace's files cannot be changed, by the rules and in
            the sandbox.
        tightened_by: Policies that may forbid more, and allow nothing.
    """

    default: Decision
    network: Network = field(default=NONE)
    rules: tuple[Rule, ...] = ()
    read_only: bool = False
    tightened_by: tuple[Policy, ...] = ()
    _index: RuleIndex = field(init=False, repr=False, compare=False)
    _known: dict[Hashable, Decision] = field(init=False, repr=False, compare=False)
    _plain: dict[str, Decision] = field(init=False, repr=False, compare=False)
    _on_paths: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_types(self.default, self.network)
        object.__setattr__(self, "rules", rules_of(self.rules))
        index = RuleIndex(self.rules)
        on_paths = index.on_paths.union(*(each._on_paths for each in self.tightened_by))
        object.__setattr__(self, "_index", index)
        object.__setattr__(self, "_on_paths", on_paths)
        object.__setattr__(self, "_known", {})
        object.__setattr__(self, "_plain", dict(self._said_of_all()))

    def _said_of_all(self) -> Iterator[tuple[str, Decision]]:
        """Yield operations that no rule is about, with what is said of each one."""
        for name in _PLAIN:
            others = [each._plain.get(name) for each in self.tightened_by]
            said = [self.default, *(each for each in others if each is not None)]
            if name not in self._index and None not in others:
                yield name, max(said, key=_strictness)

    @classmethod
    def allow_all(cls) -> Policy:
        """Allow every operation; the sandbox alone limits the damage."""
        return cls(Decision("allow", "allow_all", "everything inside is allowed"))

    @classmethod
    def deny_all(cls) -> Policy:
        """Deny every operation."""
        return cls(Decision("deny", "deny_all", "nothing is allowed"))

    @classmethod
    def preset(
        cls, name: str, *, network: object = None, rules: Iterable[Rule] = ()
    ) -> Policy:
        """Return a preset policy: `read_only`, `auto` or `full_access`.

        Args:
            name: The preset.
            network: What may be reached, as a workspace's `network`; what the
                preset says if None.
            rules: More rules.

        Raises:
            InvalidArgumentError: There is no such preset.
        """
        from isobox._policy.presets import preset  # noqa: PLC0415 - uses this module

        return preset(name, network=network, rules=rules)

    @classmethod
    def auto(cls, *, network: object = None, rules: Iterable[Rule] = ()) -> Policy:
        """Return the preset `auto`: work inside, ask before what goes beyond."""
        return cls.preset("auto", network=network, rules=rules)

    def tightened(self, other: Policy) -> Policy:
        """Return a policy that allows what this one and `other` allow.

        Raises:
            InvalidArgumentError: `other` is no Policy.
        """
        if not isinstance(other, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError(f"tightened: {other!r:.200} is no Policy")
        return replace(
            self,
            tightened_by=(*self.tightened_by, other),
            read_only=self.read_only or other.read_only,
        )

    def with_rules(self, rules: Iterable[Rule]) -> Policy:
        """Return this policy with more rules.

        Raises:
            InvalidArgumentError: One is no Rule.
        """
        return replace(self, rules=(*self.rules, *rules_of(rules)))

    def decide(self, op: Op[object], root: str = ROOT) -> Decision:
        """Say whether `op` may happen.

        Args:
            op: The operation.
            root: Absolute path inside of the workspace's directory.
        """
        known = self.remembered(op, root)
        if known is not None:
            return known
        key = _key(op, root)
        found = self.explain(op, root)
        decision = max((decision for _, decision in found), key=_strictness)
        if key is not None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = decision
        return decision

    def remembered(self, op: Op[object], root: str = ROOT) -> Decision | None:
        """Return the decision on `op` where that takes no look at what it does."""
        plain = self._plain.get(op.name)
        if plain is not None:
            return plain
        # Agents run the same few commands again and again.
        key = _key(op, root)
        return None if key is None else self._known.get(key)

    def explain(self, op: Op[object], root: str = ROOT) -> list[tuple[Part, Decision]]:
        """Return each part of an operation, with what is said of it.

        The strictest of these is the decision.
        """
        return self._explained(op, root, tightens=False)

    def _explained(
        self, op: Op[object], root: str, *, tightens: bool
    ) -> list[tuple[Part, Decision]]:
        found = [
            (part, self._of(op, part, root, tightens=tightens))
            for part in parts(op, commands=self._index.looks_inside)
            if not part.around or self._index.names_paths(part, root)
        ]
        for other in self.tightened_by:
            # SAFETY: each looks at what it makes of the operation by itself; what
            # one looks for takes nothing from the rules of another.
            found.extend(other._explained(op, root, tightens=True))
        return found

    @property
    def looks_inside(self) -> bool:
        """Whether rules are about what scripts run, or redirect to."""
        return self._index.looks_inside or any(
            other.looks_inside for other in self.tightened_by
        )

    @property
    def names_any_paths(self) -> bool:
        """Whether rules are about paths."""
        return bool(self._on_paths)

    def names_paths(self, op: Op[object]) -> bool:
        """Whether rules are about the paths of such an operation."""
        return op.name in self._on_paths or (
            isinstance(op, Spawn) and "write" in self._on_paths
        )

    def _of(
        self, op: Op[object], part: Part, root: str, *, tightens: bool = False
    ) -> Decision:
        said = self._by_rules(part, root)
        if not isinstance(op, Connect) or said.verdict == "deny":
            return said
        if self.network is UNSAID:
            return said
        there = self.network.decide(op)
        if tightens and self.network.only_denies and there.rule == NO_RULE:
            return said  # of what it does not deny it says nothing
        # What the rules say of operations never opens a way that the network has not.
        return max(there, said, key=_strictness)

    def _by_rules(self, part: Part, root: str) -> Decision:
        about = self._index.about(part)
        fitting = [rule for rule in about if rule.fits(part, root)]
        strictest = max(fitting, key=lambda rule: _ORDER[rule.verdict], default=None)
        said = self._otherwise(part) if strictest is None else _said(strictest, part)
        if said.verdict != "allow" or not _is_open(part):
            return said
        maybe = next((rule for rule in about if rule.may_fit(part, root)), None)
        return said if maybe is None else _asked(maybe, part)

    def _otherwise(self, part: Part) -> Decision:
        """Return what is said of a part that no rule fits."""
        if part.doubts and self._index.looks_inside and self.default.verdict == "allow":
            return Decision("ask", "not understood", "; ".join(part.doubts[:4]))
        return self.default


def _check_types(default: object, network: object) -> None:
    if not isinstance(default, Decision):
        raise InvalidArgumentError(
            f"Policy: default={default!r:.200} is no Decision; begin with "
            "Policy.allow_all(), Policy.deny_all() or Policy.preset(...)"
        )
    if not isinstance(network, Network):
        raise InvalidArgumentError(
            f"Policy: network={network!r:.200} is no Network; give Network.of(...)"
        )


def without_runs(policy: Policy) -> Policy:
    """Return a read-only policy for a sandbox that cannot hold it by itself."""
    rule = Rule(
        verdict="deny",
        name="read_only",
        ops=("run",),
        reason="the workspace is read-only, and here a command could still write",
    )
    return policy.with_rules([rule])


def _key(op: Op[object], root: str) -> Hashable:
    """Return all that a decision on an operation depends on, if that is little.

    It is remembered for commands and connections, which come again and again.
    """
    if isinstance(op, Connect):
        there = (op.name, op.host, op.port, op.via)
        return None if op.method is not None else (*there, op.caller, root)
    if isinstance(op, Script):
        return None if len(op.script) > _LONGEST else (op.script, op.caller, root)
    if not isinstance(op, Spawn):
        return None
    if len(op.script or "") + sum(map(len, op.argv)) > _LONGEST:
        return None
    told = (op.label, op.caller, op.spool, op.report, op.places)
    return (op.script, op.argv, op.cwd, *told, root)


def _strictness(decision: Decision) -> int:
    return _ORDER[decision.verdict]


def _said(rule: Rule, part: Part) -> Decision:
    reason = _about(part, rule.reason or _REASONS[rule.verdict])
    return Decision(rule.verdict, rule.title, reason, rule.source)


def _is_open(part: Part) -> bool:
    """Whether only running it tells the path or an argument of a part."""
    return part.unsure or (part.command is not None and bool(part.command.dynamic))


def _asked(rule: Rule, part: Part) -> Decision:
    reason = _UNSURE if part.unsure else _about(part, _FILLED)
    return Decision("ask", rule.title, reason, rule.source)


def _about(part: Part, reason: str) -> str:
    if part.command is None or part.command.program is None:
        return reason
    return f"{reason} ({_shown(part.command.program, part.command.arguments)})"


def _shown(program: str, arguments: Sequence[str]) -> str:
    # In whole words: half of a secret is not seen to be one, and stays.
    words: list[str] = []
    for each in (program, *arguments):
        words.append(each)
        if sum(map(len, words)) + len(words) > _SHOWN:
            return " ".join((*words[:-1], "..."))
    return " ".join(words).rstrip()


_REASONS: Final[dict[Verdict, str]] = {
    "allow": "a rule allows it",
    "ask": "a rule asks a person",
    "deny": "a rule denies it",
}
