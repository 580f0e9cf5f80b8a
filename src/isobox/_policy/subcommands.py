"""Commands of programs: where one is told, what comes after it is no other one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from isobox._policy.shell import Command

_CONTAINERS: Final = (
    "attach build commit cp create diff events exec export history images import info"
    " inspect kill load login logout logs pause port ps pull push rename restart rm rmi"
    " run save search start stats stop tag top unpause update version wait"
)
_PACKAGES: Final = (
    "access add audit build ci create deprecate dist-tag info init install link list ls"
    " outdated pack publish remove run start stop test uninstall unlink unpublish"
    " update upgrade version view why"
)
_PROJECT: Final = (
    "add build check export init install lock new publish remove run show sync test"
    " update upload venv version"
)
_CLUSTER: Final = (
    "annotate apply attach cp create delete describe diff drain edit exec explain"
    " expose get label logs patch port-forward replace run scale top uncordon wait"
)
#: Commands that have none of their own.
_COMMANDS: Final = {
    name: frozenset(commands.split())
    for name, commands in {
        "buildah": "bud build commit config copy from images inspect mount pull push rm"
        " rmi run tag umount unmount",
        "bun": _PACKAGES,
        "cargo": "add bench build check clean clippy doc fetch fix fmt init install"
        " login new package publish remove run search test tree uninstall update yank",
        "docker": _CONTAINERS,
        "flit": _PROJECT,
        "gem": "build contents fetch install list owner push search uninstall update"
        " yank",
        "git": "add am apply archive blame branch cat-file checkout checkout-index"
        " cherry-pick clean clone commit config describe diff fetch for-each-ref"
        " format-patch gc grep init log ls-files ls-remote ls-tree merge merge-base mv"
        " pull push read-tree rebase reset restore rev-list rev-parse revert rm"
        " send-email send-pack shortlog show show-ref status switch tag update-index"
        " update-ref",
        "kubectl": _CLUSTER,
        "npm": _PACKAGES,
        "pip": "check download freeze hash inspect install list show uninstall wheel",
        "pnpm": _PACKAGES,
        "podman": _CONTAINERS,
        "poetry": _PROJECT,
        "twine": "check register upload",
        "uv": "add build export init lock publish remove run sync tree upload venv"
        " version",
        "yarn": _PACKAGES,
    }.items()
}
#: Commands that have some of their own: an argument of `docker image` may be one.
_GROUPS: Final = {
    name: frozenset(commands.split())
    for name, commands in {
        "docker": "buildx compose container context image manifest network system"
        " volume",
        "git": "bisect bundle lfs notes reflog remote stash submodule subtree worktree",
        "npm": "cache config org owner profile team token",
        "pip": "cache config index",
        "podman": "container image kube machine manifest network pod system volume",
        "poetry": "cache config env self source",
        "uv": "cache pip python self tool",
        "yarn": "cache config npm plugin workspace workspaces",
    }.items()
}
#: Options of git that stand before its command, and that a value follows.
_VALUED: Final = frozenset(
    {"-C", "-c", "--config-env", "--git-dir", "--namespace", "--work-tree"}
)
#: One argument, whatever it holds.
_QUOTED: Final = re.compile(r'"[^"@]*"')


def names(program: str) -> frozenset[str]:
    """Return the commands of a program that are known."""
    nothing = frozenset[str]()
    return _COMMANDS.get(program, nothing) | _GROUPS.get(program, nothing)


def told(command: Command) -> str | None:
    """Return the command that a program is told, where no other one can follow it.

    `git commit -m "$text"` never pushes, whatever the text is.
    """
    words = command.arguments
    at = _leading(command) if command.program == "git" else 0
    if at >= len(words) or at in command.dynamic:
        return None
    known = _COMMANDS.get(command.program or "", frozenset())
    return words[at] if words[at] in known else None


def _leading(command: Command) -> int:
    """The number of arguments before the command of git."""
    words, at = command.arguments, 0
    while at < len(words) and words[at].startswith("-") and at not in command.dynamic:
        at += 1
        if words[at - 1] in _VALUED and at < len(words) and _is_one(command, at):
            at += 1
    return at


def _is_one(command: Command, at: int) -> bool:
    return (
        at not in command.dynamic
        or _QUOTED.fullmatch(command.arguments[at]) is not None
    )
