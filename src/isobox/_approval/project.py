"""Answers that are kept for a project, in a file that its sandboxes never see."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Final, cast

from isobox._approval.memory import ApprovalsWarning
from isobox._approval.question import Answer
from isobox._workdir.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from isobox._approval.key import Key

#: Answers of one project.
_MOST: Final = 1000


class Project:
    """Keeps answers for a directory, beyond the life of a workspace.

    They are in `$XDG_STATE_HOME/isobox/approvals`, by default below
    `~/.local/state`, in a file that its owner alone reads and writes.

    Args:
        directory: The project's, as the host names it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        directory = os.path.realpath(directory)
        self._named = os.fsencode(directory).decode("utf-8", "replace")
        self._state = State("approvals", directory, empty=self._file({}))
        self.path = self._state.path

    def read(self) -> Mapping[Key, Answer]:
        """Return the answers; none, with a warning, if they are not to be trusted."""
        try:
            return self._answers(self._state.read())
        except (OSError, ValueError) as error:
            warnings.warn(
                f"the answers in {self.path} are not used: {error}",
                ApprovalsWarning,
                stacklevel=2,
            )
            return {}

    def keep(self, keys: Sequence[Key], answer: Answer) -> None:
        """Add an answer, or change it; what others add meanwhile stays.

        Raises:
            OSError: It cannot be kept; the message says why.
        """

        def added(before: object) -> object:
            answers = {**self._answers(before), **dict.fromkeys(keys, answer)}
            if len(answers) > _MOST:
                raise OSError(f"{self.path} holds {_MOST} answers; remove some")
            return self._file(answers)

        try:
            self._state.change(added)
        except ValueError as error:
            # It is a person's to repair; nothing of it is lost to us.
            raise OSError(f"{self.path}: {error}") from None

    def _file(self, answers: Mapping[Key, Answer]) -> dict[str, object]:
        return {
            "version": 1,
            "project": self._named,
            "answers": [_row(key, answer) for key, answer in answers.items()],
        }

    def _answers(self, given: object) -> Mapping[Key, Answer]:
        fields = _fields(given, ("version", "project", "answers"))
        if fields["version"] != 1 or fields["project"] != self._named:
            raise ValueError("it is of another version, or of another project")
        rows = _list(fields["answers"])
        if len(rows) > _MOST:
            raise ValueError("it holds too many answers")
        return dict(map(_answer, rows))


def _row(key: Key, answer: Answer) -> dict[str, object]:
    row: dict[str, object] = {"question": list(key), "allow": answer.allow}
    return {**row, "message": answer.message, "by": answer.by}


def _answer(row: object) -> tuple[Key, Answer]:
    fields = _fields(row, ("question", "allow", "message", "by"))
    key = tuple(_text(word) for word in _list(fields["question"]))
    if not isinstance(fields["allow"], bool):
        raise ValueError("an answer is no answer")  # noqa: TRY004 - it is data
    message, by = _text(fields["message"]), _text(fields["by"])
    return key, Answer(fields["allow"], "project", message, by)


def _list(given: object) -> list[object]:
    if not isinstance(given, list):
        raise ValueError("it has something other than a list")  # noqa: TRY004 - data
    return cast("list[object]", given)


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError("it has something other than a text")  # noqa: TRY004 - data
    return given


def _fields(given: object, names: tuple[str, ...]) -> dict[str, object]:
    """Return an object that has these fields, and no others."""
    if not isinstance(given, dict):
        raise ValueError("it has something other than an object")  # noqa: TRY004
    fields = cast("dict[str, object]", given)
    if set(fields) != set(names):
        raise ValueError(f"an object has other fields than {', '.join(names)}")
    return fields
