"""What `isobox run` is told of the network, and what it says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox._egress.secret import Secret
from isobox._egress.sources import missing
from isobox._policy.network import OPEN, Network, NetworkRule
from isobox.cli.status import complain, one_line
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._core.network import Denial

#: Refused connections that are listed after a command.
_LISTED: Final = 20


def network(texts: Sequence[str], *, ask: bool) -> Network:
    """Return the network that `--network` and `--ask-network` stand for.

    Raises:
        InvalidArgumentError: One is no rule, or they contradict one another.
    """
    if "none" in texts:
        if ask or set(texts) != {"none"}:
            raise InvalidArgumentError(
                "--network none: not together with hosts or --ask-network"
            )
        return Network()
    rules = [rule for text in texts for rule in _rules(text)]
    asking = next((rule for rule in rules if rule.verdict == "ask"), None)
    if asking is not None and not ask:
        raise InvalidArgumentError(
            f"--network '{asking}': it asks a person; add --ask-network"
        )
    return Network(rules=tuple(rules), otherwise="ask" if ask else "deny")


def _rules(text: str) -> tuple[NetworkRule, ...]:
    return OPEN.rules if text == "open" else (NetworkRule.parse(text),)


def secrets(texts: Sequence[str]) -> tuple[Secret, ...]:
    """Return the secrets that `--secret` stands for.

    Raises:
        InvalidArgumentError: One is none, and the message does not repeat it; or
            there is no value where it says.
    """
    given = tuple(map(Secret.parse, texts))
    for secret in given:
        reason = missing(secret.origin)
        if reason is not None:
            raise InvalidArgumentError(f"--secret {secret.name}: {reason}")
    return given


def fields(denials: Sequence[Denial]) -> list[dict[str, object]]:
    """Return what was refused, and what failed, as plain data."""
    return [
        {
            "host": denial.host,
            "port": denial.port,
            "rule": denial.rule,
            "reason": denial.reason,
            "kind": denial.kind,
        }
        for denial in denials
    ]


def tell(denials: Sequence[Denial]) -> None:
    """List on standard error what was refused, and what failed."""
    for denial in denials[:_LISTED]:
        what = "could not reach" if denial.kind == "unreachable" else "refused"
        complain(one_line(f"{what} {denial}"))
    if len(denials) > _LISTED:
        complain(f"and {len(denials) - _LISTED} more")
