"""What a class of workspaces is made with, before one is made."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

from isobox._workspace.base import WorkspaceBase
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection

_NAMED: Final = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def kind_of(given: object) -> type[WorkspaceBase]:
    """Return a class of workspaces.

    Raises:
        InvalidArgumentError: It is none.
    """
    if not isinstance(given, type) or not issubclass(given, WorkspaceBase):
        raise InvalidArgumentError(
            f"kind={given!r:.200} is no class of workspaces: give one such as "
            "isobox.BubblewrapWorkspace itself"
        )
    return given


class Keywords:
    """The keywords of a class of workspaces.

    Attributes:
        known: All that it takes.
        required: Those without which none is made.
    """

    def __init__(self, kind: type[WorkspaceBase]) -> None:
        self._kind = kind
        taken = _taken(kind)
        self.known = {each.name for group in taken for each in group}
        self.required = {
            each.name for each in taken[0] if each.default is inspect.Parameter.empty
        }

    def check(self, given: Collection[str], own: Collection[str]) -> None:
        """Refuse what the class does not take, and what lacks something.

        Args:
            given: Names of keywords.
            own: Those that the manager adds.

        Raises:
            InvalidArgumentError: Something is unknown, or missing.
        """
        if unknown := {*given, *own} - self.known:
            raise InvalidArgumentError(
                f"options: {self._kind.__name__} has no keyword "
                f"{', '.join(sorted(unknown))!a:.200}; it has "
                f"{', '.join(sorted(self.known - set(own)))}"
            )
        if missing := self.required - {*given, *own}:
            raise InvalidArgumentError(
                f"options: {self._kind.__name__} cannot be made without "
                f"{', '.join(sorted(missing))}; name it there"
            )


def _taken(kind: type) -> list[list[inspect.Parameter]]:
    """Return what a class takes, and what those take that it passes the rest on to."""
    taken: list[list[inspect.Parameter]] = []
    for each in kind.__mro__:
        if (made := vars(each).get("__init__")) is None:
            continue
        parameters = list(inspect.signature(made).parameters.values())[1:]
        taken.append([one for one in parameters if one.kind in _NAMED])
        if all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters):
            break
    return taken
