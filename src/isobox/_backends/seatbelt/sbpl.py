"""The language of Seatbelt's profiles: as much of it as is written here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

_ESCAPES = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)
#: The reader of profiles knows no way to write these that is sure to be right,
#: and no file of macOS has a name that is not UTF-8.
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def string(text: str) -> str:
    """Return a text as a string literal; nothing in it can end the string.

    Raises:
        InvalidArgumentError: It holds a control character, or is not UTF-8.
    """
    if _UNWRITABLE.search(text):
        raise InvalidArgumentError(
            f"{text!r} holds characters that a Seatbelt profile cannot name; "
            "choose another path"
        )
    return f'"{text.translate(_ESCAPES)}"'


def named(filter_name: str, *values: str) -> list[str]:
    """Return one filter for each value, such as `(literal "/dev/null")`."""
    return [f"({filter_name} {string(value)})" for value in values]


def both(*filters: str) -> str:
    """Return a filter that matches what all of `filters` match."""
    return f"(require-all {' '.join(filters)})"


def allow(operations: str, filters: Iterable[str] | None = None) -> str:
    """Return a rule that allows operations, where any of the filters matches.

    Without filters it allows them everywhere; with none left, nowhere.
    """
    return _rule("allow", operations, filters)


def deny(operations: str, filters: Iterable[str] | None = None) -> str:
    """Return a rule that denies operations, where any of the filters matches."""
    return _rule("deny", operations, filters)


def _rule(action: str, operations: str, filters: Iterable[str] | None) -> str:
    if filters is None:
        return f"({action} {operations})\n"
    # A rule without filters holds everywhere: an empty list must make no rule.
    lines = "".join(f"\n  {each}" for each in filters)
    return f"({action} {operations}{lines})\n" if lines else ""
