"""Policies as files: TOML or JSON, strict, with examples that must hold."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from isobox._core.ops import Spawn, Write
from isobox._policy.decision import Decision, Verdict
from isobox._policy.network import NONE, Network, NetworkRule
from isobox._policy.op_rule import Rule
from isobox._policy.policy import UNSAID, Policy
from isobox._policy.presets import PRESETS
from isobox._policy.problems import described, headers, line_of
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._core.ops import Op

#: Bytes of a file; a person writes no longer one.
LARGEST: Final = 1 << 20
#: Characters of a project's own file: whoever works there may write it.
_LARGEST_OF_PROJECT: Final = 1 << 16
#: Dots in a line of TOML: each of a key's is looked up from the first.
_MOST_DOTS: Final = 512

_Text = Annotated[str, Field(min_length=1, max_length=1024)]
_Texts = Annotated[list[_Text], Field(max_length=256)]


class _Strict(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, frozen=True
    )


class Examples(_Strict):
    """What a rule is about, and what it is not: scripts, or paths."""

    match: _Texts = []
    no_match: _Texts = []


class RuleFile(_Strict):
    """A rule of a file; see `isobox.Rule`."""

    verdict: Verdict
    name: str = ""
    ops: _Texts = []
    tools: _Texts = []
    programs: _Texts = []
    arguments: _Texts = []
    paths: _Texts = []
    hosts: _Texts = []
    larger_than: Annotated[int, Field(ge=0)] | None = None
    reason: str = ""
    examples: Examples = Examples()

    def rule(self, source: str) -> Rule:
        """Return the rule.

        Raises:
            InvalidArgumentError: A name or a pattern is none.
        """
        return Rule(
            verdict=self.verdict,
            name=self.name,
            ops=tuple(self.ops),
            tools=tuple(self.tools),
            programs=tuple(self.programs),
            arguments=tuple(self.arguments),
            paths=tuple(self.paths),
            hosts=tuple(self.hosts),
            larger_than=self.larger_than,
            reason=self.reason,
            source=source,
        )


class NetworkRuleFile(_Strict):
    """A rule on connections; see `isobox.NetworkRule`."""

    host: _Text
    ports: list[int] | Literal["*"] | None = None
    verdict: Verdict = "allow"
    methods: _Texts | None = None
    paths: _Texts | None = None
    passthrough: bool = False

    def rule(self) -> NetworkRule:
        """Return the rule.

        Raises:
            InvalidArgumentError: It makes no sense.
        """
        return NetworkRule(
            host=self.host,
            ports=tuple(self.ports) if isinstance(self.ports, list) else self.ports,
            verdict=self.verdict,
            methods=None if self.methods is None else tuple(self.methods),
            paths=None if self.paths is None else tuple(self.paths),
            passthrough=self.passthrough,
        )


class _RuleError(InvalidArgumentError):
    """A rule makes no sense; `host` is what it says of the host."""

    def __init__(self, message: str, *, host: str) -> None:
        super().__init__(message)
        self.host = host


def _network_rule(given: str | NetworkRuleFile) -> NetworkRule:
    try:
        return NetworkRule.parse(given) if isinstance(given, str) else given.rule()
    except InvalidArgumentError as error:
        host = given if isinstance(given, str) else given.host
        raise _RuleError(str(error), host=host) from None


class NetworkFile(_Strict):
    """What may be reached; see `isobox.Network`."""

    hosts: Annotated[list[_Text | NetworkRuleFile], Field(max_length=10_000)] = []
    otherwise: Literal["deny", "ask"] = "deny"
    connections: Annotated[int, Field(ge=1)] = NONE.connections
    per_second: Annotated[int, Field(ge=1)] = NONE.per_second
    bytes_in: Annotated[int, Field(ge=0)] | None = None
    bytes_out: Annotated[int, Field(ge=0)] | None = None
    ask_timeout: Annotated[float, Field(gt=0, le=86_400)] = NONE.ask_timeout

    def network(self) -> Network:
        """Return the network.

        Raises:
            InvalidArgumentError: A rule makes no sense.
        """
        return Network(
            rules=tuple(map(_network_rule, self.hosts)),
            otherwise=self.otherwise,
            connections=self.connections,
            per_second=self.per_second,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            ask_timeout=self.ask_timeout,
        )


class PolicyFile(_Strict):
    """A policy in a file."""

    version: Literal[1]
    preset: Literal["read_only", "auto", "full_access"] | None = None
    default: Verdict | None = None
    network: NetworkFile | Literal["open", "none"] | None = None
    rules: Annotated[list[RuleFile], Field(max_length=1000)] = []


_KEYS: Final = {
    "": tuple(PolicyFile.model_fields),
    "rules": tuple(RuleFile.model_fields),
    "examples": tuple(Examples.model_fields),
    "network": tuple(NetworkFile.model_fields),
    "hosts": tuple(NetworkRuleFile.model_fields),
}


def schema() -> dict[str, object]:
    """Return the JSON Schema of a policy's file."""
    return PolicyFile.model_json_schema()


def parse(
    text: str, source: str = "policy.toml", *, tightening: bool = False
) -> Policy:
    """Read a policy; its examples hold.

    Args:
        text: TOML; JSON if `source` ends with `.json`.
        source: The file's name, for messages and explanations.
        tightening: It is for `Policy.tightened`: what it does not say is left to
            the other one.

    Raises:
        InvalidArgumentError: It is malformed, has a key that nobody knows, or an
            example that does not hold; the message says where.
    """
    given = _given(_data(text, source, tightening=tightening), text, source)
    lines = headers(text) if not source.endswith(".json") else []
    rules: list[Rule] = []
    for number, each in enumerate(given.rules):
        where = f"{source}:{lines[number]}" if number < len(lines) else source
        rule = _rule(each, where)
        _hold(each.examples, rule, where)
        rules.append(rule)
    policy = _policy(given, tuple(rules), text, source, tightening=tightening)
    if tightening and any(rule.reads for rule in policy.network.rules):
        raise InvalidArgumentError(
            f"{source}: a project's own rules on hosts are about connections; methods "
            "and paths are for those who open the workspace"
        )
    silent = tightening and given.network is None and given.preset is None
    return replace(policy, network=UNSAID) if silent else policy


def layered(policies: Iterable[Policy], project: Policy | None = None) -> Policy:
    """Return the policy that several make, the most general one first.

    Rules add up, and deny beats ask beats allow whosever they are; the default
    and the network are those of the last, where what another denies of the network
    stays denied.

    Args:
        policies: Of the system, of the user, of the call.
        project: The project's own, which can only forbid more: whoever works
            there could have written it.
    """
    first, *others = policies
    for other in others:
        first = replace(
            other,
            network=other.network.with_denials(first.network),
            rules=first.rules + other.rules,
            read_only=first.read_only or other.read_only,
            tightened_by=first.tightened_by + other.tightened_by,
        )
    return first if project is None else first.tightened(project)


def _data(text: str, source: str, *, tightening: bool) -> object:
    largest = _LARGEST_OF_PROJECT if tightening else LARGEST
    if len(text) > largest:
        raise InvalidArgumentError(f"{source}: over {largest} characters")
    if not source.endswith(".json"):
        _check_dots(text, source)
    try:
        if source.endswith(".json"):
            return json.loads(text)
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{source}: {error}") from None


def _check_dots(text: str, source: str) -> None:
    # SAFETY: the parser takes the square of a key's parts. Dots in texts count
    # too: what is text is not sure before it is parsed.
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MOST_DOTS:
            raise InvalidArgumentError(
                f"{source}:{number}: over {_MOST_DOTS} dots in a line; write a long "
                "list over several lines"
            )


def _given(data: object, text: str, source: str) -> PolicyFile:
    try:
        return PolicyFile.model_validate(data)
    except ValidationError as error:
        problems = described(error.errors(), text, source, _KEYS)
        raise InvalidArgumentError(problems) from None


def _rule(given: RuleFile, where: str) -> Rule:
    try:
        return given.rule(where)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error}") from None


def _hold(examples: Examples, rule: Rule, where: str) -> None:
    for text, expected in (
        *((text, True) for text in examples.match),
        *((text, False) for text in examples.no_match),
    ):
        if _is_about(rule, text) is not expected:
            said = "is not about" if expected else "is about"
            raise InvalidArgumentError(
                f"{where}: rule {rule.title!r} {said} its example {text!r}"
            )


def _is_about(rule: Rule, text: str) -> bool:
    op: Op[object]
    if rule.paths and not rule.looks_inside:
        op = cast("Op[object]", Write(path=text, body=b""))
        rule = replace(rule, ops=(), larger_than=None)
    else:
        op = cast("Op[object]", Spawn(script=text, cwd="/workspace"))
    mark = Decision("allow", "", "")
    about = Policy(mark, rules=(rule,)).explain(op)
    return any(decision.rule == rule.title for _, decision in about)


def _network(
    given: NetworkFile | str, text: str, source: str, *, asks: bool
) -> Network:
    try:
        if isinstance(given, str):
            return Network.of(given)
        network = given.network()
    except _RuleError as error:
        number = line_of(error.host, text)
        place = source if number is None else f"{source}:{number}"
        raise InvalidArgumentError(f"{place}: network: {error}") from None
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{source}: network: {error}") from None
    if not asks or not network or "otherwise" in given.model_fields_set:
        return network
    # Whoever names hosts is asked about others, as by `Policy.auto(network=)`.
    return replace(network, otherwise="ask")


def _policy(
    given: PolicyFile,
    rules: tuple[Rule, ...],
    text: str,
    source: str,
    *,
    tightening: bool,
) -> Policy:
    base = Policy.allow_all() if given.preset is None else PRESETS[given.preset]
    if given.default is not None:
        words = f"{source} says {given.default} where no rule is about it"
        base = replace(base, default=Decision(given.default, "default", words, source))
    if given.network is not None:
        # Denials of a project's own say nothing of other hosts.
        asks = given.preset == "auto" and not tightening
        base = replace(base, network=_network(given.network, text, source, asks=asks))
    return base.with_rules(rules)
