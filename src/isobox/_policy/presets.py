"""Policies that are ready-made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from isobox._policy.decision import Decision
from isobox._policy.network import NONE, OPEN, Network
from isobox._policy.op_rule import Rule
from isobox._policy.policy import Policy
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def _ask(name: str, reason: str, *programs: str, arguments: tuple[str, ...]) -> Rule:
    return Rule(
        verdict="ask",
        name=name,
        ops=("run",),
        programs=programs,
        arguments=arguments,
        reason=reason,
    )


def _forced(command: str, but: str = "") -> Iterator[Rule]:
    """Rules on a command of git with `-f`, also among other letters.

    Args:
        command: The command.
        but: Letters of it that a name follows.
    """
    for option in ("-f*", f"-[!{but}-]*f*", "--f*"):
        yield _ask(f"git {command} -f", "it throws changes away",
                   "git", arguments=(command, option))  # fmt: skip


def _shortened(command: str, least: int) -> Iterator[str]:
    """What some programs take for a command: whatever no other one begins with."""
    return (command[:end] for end in range(least, len(command)))


_PUBLISHES: Final = (
    _ask("git push", "it publishes commits", "git", arguments=("push",)),
    _ask("git send-pack", "it publishes commits", "git", arguments=("send-pack",)),
    _ask("git send-email", "it sends mail", "git", arguments=("send-email",)),
    _ask("npm publish", "it publishes a package",
         "npm", "pnpm", "yarn", "bun", arguments=("publish",)),
    *(_ask("npm publish", "it publishes a package", "npm", arguments=(each,))
      for each in _shortened("publish", 2)),
    *(_ask("npm unpublish", "it takes a package back from everybody",
           "npm", "pnpm", "bun", arguments=(each,))
      for each in ("unpublish", *_shortened("unpublish", 3))),
    _ask("twine upload", "it publishes a package",
         "twine", "flit", "hatch", "poetry", "uv", arguments=("upload",)),
    _ask("package publish", "it publishes a package",
         "flit", "hatch", "poetry", "uv", "cargo", "dart", "gem",
         arguments=("publish",)),
    *(_ask("gem push", "it publishes a package", "gem", arguments=(each,))
      for each in ("push", *_shortened("push", 2))),
    _ask("docker push", "it publishes an image",
         "docker", "podman", "buildah", "skopeo", arguments=("push",)),
    _ask("gh", "it acts on a forge in the user's name",
         "gh", "glab", "hub", arguments=()),
    _ask("kubectl", "it acts on a cluster",
         "kubectl", "helm", "terraform", "tofu", "pulumi", arguments=()),
)  # fmt: skip

_LOSES: Final = (
    _ask("git reset --hard", "it throws changes away",
         "git", arguments=("reset", "--h*")),
    _ask("git clean", "it removes files that nobody can bring back",
         "git", arguments=("clean", "-*f*")),
    _ask("git branch -D", "it removes a branch", "git", arguments=("branch", "-*D*")),
    _ask("git branch -d -f", "it removes a branch",
         "git", arguments=("branch", "-d*", "-*f*")),
    _ask("git branch -fd", "it removes a branch",
         "git", arguments=("branch", "-[!-]*d*", "-*f*")),
    _ask("git branch --delete --force", "it removes a branch",
         "git", arguments=("branch", "--d*", "-*f*")),
    # `.`, `./`, `:/` and `*` are all of it.
    _ask("git checkout .", "it throws changes away",
         "git", arguments=("checkout", "[.:*]*")),
    *_forced("checkout", but="bB"),
    *_forced("switch", but="cC"),
    _ask("git switch --discard-changes", "it throws changes away",
         "git", arguments=("switch", "--di*")),
    *_forced("checkout-index"),
    *_forced("rm"),
    _ask("git read-tree --reset", "it throws changes away",
         "git", arguments=("read-tree", "--res*")),
    _ask("git stash clear", "it throws changes away",
         "git", arguments=("stash", "clear")),
    _ask("git stash drop", "it throws changes away",
         "git", arguments=("stash", "drop")),
    _ask("git worktree remove -f", "it throws changes away",
         "git", arguments=("worktree", "remove", "-*f*")),
    _ask("git restore .", "it throws changes away",
         "git", arguments=("restore", "[.:*]*")),
    _ask("rm -r", "it removes a directory and all that is in it",
         "rm", arguments=("-*[rR]*",)),
    _ask("rm --recursive", "it removes a directory and all that is in it",
         "rm", arguments=("--recursive",)),
    _ask("find -delete", "it removes whatever it finds",
         "find", arguments=("-delete",)),
    _ask("shred", "it destroys files", "shred", "wipefs", "mkfs", "mkfs.*",
         arguments=()),
)  # fmt: skip

_BEYOND: Final = (
    Rule(
        verdict="ask",
        name="checkpoint",
        ops=("checkpoint",),
        reason="the work has come to a stage that a person looks at",
    ),
    Rule(
        verdict="ask",
        name="host ports",
        ops=("listen",),
        reason="it opens a way from the sandbox to the host",
    ),
    Rule(
        verdict="ask",
        name="apply",
        ops=("apply",),
        reason="it brings the private view's changes to the directory",
    ),
)

_ANYTHING = Decision("allow", "auto", "work inside the workspace is allowed")

READ_ONLY: Final = Policy(
    Decision("allow", "read_only", "reading and running are allowed"),
    network=NONE,
    rules=(
        Rule(
            verdict="deny",
            name="read_only",
            ops=("write",),
            reason="the workspace is read-only",
        ),
    ),
    read_only=True,
)
AUTO: Final = Policy(
    _ANYTHING,
    network=NONE,
    rules=(*_PUBLISHES, *_LOSES, *_BEYOND),
)
FULL_ACCESS: Final = Policy(
    Decision("allow", "full_access", "everything is allowed"), network=OPEN
)

PRESETS: Final = {"read_only": READ_ONLY, "auto": AUTO, "full_access": FULL_ACCESS}


def preset(name: str, *, network: object = None, rules: Iterable[Rule] = ()) -> Policy:
    """Return a preset, see `Policy.preset`."""
    found = PRESETS.get(name)
    if found is None:
        raise InvalidArgumentError(f"preset {name!r}: there are {', '.join(PRESETS)}")
    if network is not None:
        found = replace(found, network=_network(found, network))
    return found.with_rules(rules)


def _network(policy: Policy, given: object) -> Network:
    network = Network.of(given)
    # Whoever names hosts is asked about others; a Network says it itself.
    if policy is not AUTO or isinstance(given, Network) or not network:
        return network
    return replace(network, otherwise="ask")
