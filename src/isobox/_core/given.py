"""What callers without a type checker may give, refused in words of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from isobox.errors import InvalidArgumentError

_SHOWN = 200


def texts(what: str, given: object, *, example: str) -> tuple[str, ...]:
    """Return texts of which each is one.

    A single text would pass for a sequence of one-letter ones.

    Args:
        what: What they are, such as `Rule: programs`.
        given: A list, a tuple or another iterable.
        example: One of them, for the message.

    Raises:
        InvalidArgumentError: It is no list, or something in it is no text.
    """
    single = isinstance(given, str | bytes | bytearray | Mapping)
    if single or not isinstance(given, Iterable):
        shown = given if isinstance(given, str) else example
        raise InvalidArgumentError(
            f"{what}={given!r:.{_SHOWN}}: give a list of texts, such as "
            f"[{shown!r:.{_SHOWN}}]"
        )
    return tuple(text(what, each) for each in cast("Iterable[object]", given))


def text(what: str, given: object) -> str:
    """Return a text.

    Raises:
        InvalidArgumentError: It is none.
    """
    if not isinstance(given, str):
        raise InvalidArgumentError(f"{what}: {given!r:.{_SHOWN}} is no text (str)")
    return given


def truth(what: str, given: object) -> bool:
    """Return True or False.

    Raises:
        InvalidArgumentError: It is neither.
    """
    if not isinstance(given, bool):
        raise InvalidArgumentError(f"{what}={given!r:.{_SHOWN}} is not True or False")
    return given


def whole(what: str, given: object, least: int) -> int:
    """Return a whole number.

    Raises:
        InvalidArgumentError: It is none, or less than `least`.
    """
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise InvalidArgumentError(
            f"{what}={given!r:.{_SHOWN}} is no whole number from {least} on"
        )
    return given


def is_number(given: object) -> bool:
    """Whether it is a number; True and False are none."""
    return isinstance(given, int | float) and not isinstance(given, bool)
