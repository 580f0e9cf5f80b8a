"""Answers that hold for longer than one operation."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from isobox._approval.key import Key
    from isobox._approval.project import Project
    from isobox._approval.question import Answer

#: Answers that are remembered in one workspace.
_REMEMBERED: Final = 1024


class ApprovalsWarning(UserWarning):
    """Answers for a project could not be read, or kept; the person is asked again."""


class Memory:
    """What was said in one workspace, and what is kept for its project.

    Args:
        project: Keeps answers for later workspaces; None keeps none.
    """

    def __init__(self, project: Project | None) -> None:
        self._project = project
        self._known: OrderedDict[Hashable, Answer] = OrderedDict()
        self._kept: Mapping[Key, Answer] | None = None

    def said(self, exact: Hashable, keys: Sequence[Key]) -> Answer | None:
        """Return what was said here of an operation, None if it is not settled.

        Args:
            exact: The operation itself.
            keys: Of its parts: one that is denied denies it, and only if all are
                allowed is it.
        """
        return self._known.get(exact) or _together([*map(self._known.get, keys)])

    def kept(self, keys: Sequence[Key]) -> Answer | None:
        """Return what `said` and the project say together; from then on it is said."""
        if self._project is None:
            return None
        if self._kept is None:
            self._kept = self._project.read()
        kept = self._kept
        found = [self._known.get(key) or kept.get(key) for key in keys]
        if (answer := _together(found)) is not None:
            said = zip(keys, found, strict=True)
            self._remember({key: each for key, each in said if each})
        return answer

    async def keep(self, answer: Answer, exact: Hashable, keys: Sequence[Key]) -> None:
        """Remember an answer for as long as it holds.

        Args:
            answer: The answer.
            exact: The operation itself, for which it holds if there are no keys.
            keys: Of its parts.
        """
        if answer.scope == "once":
            return
        self._remember(dict.fromkeys(keys or (exact,), answer))
        if answer.scope == "project" and self._project is not None and keys:
            try:
                await anyio.to_thread.run_sync(self._project.keep, keys, answer)
            except OSError as error:
                warnings.warn(
                    f"an answer is kept for the session only: {error}",
                    ApprovalsWarning,
                    stacklevel=2,
                )

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()

    def _remember(self, answers: Mapping[Hashable, Answer]) -> None:
        for key, answer in answers.items():
            self._known[key] = answer
            self._known.move_to_end(key)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def _together(found: Sequence[Answer | None]) -> Answer | None:
    denied = next((each for each in found if each and not each.allow), None)
    return denied or (found[0] if found and all(found) else None)
