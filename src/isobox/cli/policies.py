"""The policy that a command line asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isobox._policy.policy import Policy
from isobox._workspace.policy_files import load_policy
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence


def chosen(files: Sequence[str], preset: str | None, project: str) -> Policy:
    """Return the policy of `--policy` or `--preset`, tightened by the project's.

    The system's and the user's files come before it, where they exist.

    Raises:
        InvalidArgumentError: Both are given, or one is wrong.
    """
    if files and preset is not None:
        raise InvalidArgumentError("give --policy or --preset, not both")
    base = None if preset is None else Policy.preset(preset)
    return load_policy(*files, project=project, defaults=True, base=base)
