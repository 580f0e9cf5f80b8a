# ruff: noqa: INP001 - a project of its own, for `isobox demo`
"""Roman numerals from 1 to 3999."""

from __future__ import annotations

_DIGITS = (
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
)


def to_roman(number: int) -> str:
    """Write a number with letters."""
    if not 0 < number < 4000:
        raise ValueError("out of range")
    letters = ""
    for value, digit in _DIGITS:
        count, number = divmod(number, value)
        letters += digit * count
    return letters


def from_roman(letters: str) -> int:
    """Read a number; only the usual way to write it is taken."""
    number, rest = 0, letters
    for value, digit in _DIGITS:
        while rest.startswith(digit):
            number += value
            rest = rest[len(digit) :]
    if rest or not number or to_roman(number) != letters:
        raise ValueError(f"not a Roman numeral: {letters!r}")
    return number
