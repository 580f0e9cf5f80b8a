"""What a model is told of the workspace that it works in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from isobox._core.protected import ABSENT
from isobox._workspace.tools.bash import DEFAULT_TIMEOUT, MAX_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._core.sandbox import Sandbox
    from isobox._core.spec import Limits, SandboxSpec
    from isobox._policy.network import Network
    from isobox._policy.policy import Policy

#: Rules that a model is shown.
_MOST_RULES = 32
#: What stands for a secret inside.
_PLACEHOLDER = re.compile("isobox_[0-9a-f]{16}_")
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def instructions(sandbox: Sandbox, spec: SandboxSpec, policy: Policy) -> str:
    """Return a fragment of a system prompt that says what holds here."""
    lines = [
        f"- Directory: {sandbox.root}. Relative paths start there, and so does Bash.",
        "- workspace:///x refers to the path x there; every tool but Bash takes it.",
        *_files(sandbox, spec),
        *_commands(spec.limits),
        *_network(sandbox, spec, policy.network),
        *_limits(spec.limits, isolated="isolated" in sandbox.capabilities),
        *_policy(policy),
    ]
    return "\n".join(("# Workspace", "", *lines))


def _files(sandbox: Sandbox, spec: SandboxSpec) -> Iterator[str]:
    if "isolated" not in sandbox.capabilities:
        yield (
            "- Isolation: none. Commands run as the user's own processes and reach "
            "what the user reaches; change nothing outside the directory."
        )
        return
    yield (
        "- Isolation: commands see the system's programs read-only and a private "
        "/tmp and home; only the directory is shared with the user."
    )
    if spec.mode == "copy":
        yield (
            "- Changes are made in a private view of the directory; the user decides "
            "which of them are kept."
        )
    names = sorted(ABSENT - spec.unprotected)
    if spec.protect and names:
        yield (
            "- Protected, and not to be written: "
            f"{', '.join(names)}, and other files that the host executes. If one has "
            "to change, show the user the change instead."
        )


def _commands(limits: Limits) -> Iterator[str]:
    most = min(MAX_TIMEOUT, limits.max_timeout or MAX_TIMEOUT)
    usual = min(DEFAULT_TIMEOUT, most)
    yield (
        f"- Commands end after {usual:g} s unless `timeout` says otherwise, at most "
        f"{most:g} s. Run servers and what takes longer in the background."
    )


def _network(sandbox: Sandbox, spec: SandboxSpec, network: Network) -> Iterator[str]:
    if "capture" in sandbox.capabilities:
        yield from _filtered(spec, network)
    elif "no_network" in sandbox.capabilities:
        yield (
            "- Network: none, except the sandbox's own loopback. Nothing can be "
            "downloaded; if something is needed, say what, and ask the user for it."
        )
    else:
        yield "- Network: that of the machine."


def _filtered(spec: SandboxSpec, network: Network) -> Iterator[str]:
    rules = [str(rule) for rule in network.rules]
    shown = ", ".join(rules[:_MOST_RULES])
    more = f" and {len(rules) - _MOST_RULES} more" if len(rules) > _MOST_RULES else ""
    yield (
        f"- Network: a filter lets through what these rules allow: {shown}{more}. "
        "A host without a port means 80 and 443; ! denies, ? asks the user. "
        "Everything else is refused, and the result of a command says so; private "
        "addresses are, unless a rule names them, and so are the host's services."
    )
    held = sorted(name for name, text in spec.env.items() if _PLACEHOLDER.match(text))
    if held:
        yield (
            f"- Secrets: {', '.join(held)} hold placeholders. Use them as if they were "
            "the secrets: they are replaced on the way to the hosts that they are "
            "for, and work nowhere else."
        )


def _limits(limits: Limits, *, isolated: bool) -> Iterator[str]:
    held: list[str] = []
    if isolated and limits.memory is not None:
        held.append(f"{size(limits.memory)} of memory")
    if isolated and limits.cpus is not None:
        held.append(f"{limits.cpus:g} processors")
    if isolated and limits.processes is not None:
        held.append(f"{limits.processes} processes")
    if isolated and limits.disk is not None:
        held.append(f"{size(limits.disk)} in the directory")
    if isolated and limits.file_size is not None:
        held.append(f"{size(limits.file_size)} in one file")
    if isolated:
        held.append(f"{size(limits.tmp)} in /tmp")
    if held:
        yield f"- Limits: {', '.join(held)}."


def _policy(policy: Policy) -> Iterator[str]:
    if policy.default.verdict == "deny":
        yield f"- Policy: every operation is refused ({policy.default.reason})."
    yield (
        "- When something is refused, do not look for a way around it: say what you "
        "need and what for, and the user can allow it."
    )


def size(number: int) -> str:
    """Return bytes in the largest unit that divides them well."""
    for unit, factor in _UNITS:
        if number >= factor:
            return f"{number / factor:.4g} {unit}"
    return f"{number} bytes"
