# ruff: noqa: INP001, PT009, PT027 - a unittest suite, for `isobox demo`
"""Tests of the Roman numerals."""

from __future__ import annotations

import unittest

from roman import from_roman, to_roman  # type: ignore[import-not-found]


class RomanTest(unittest.TestCase):
    """Writing and reading numbers."""

    def test_every_number_survives_the_round_trip(self) -> None:
        """Each is read back as what was written."""
        for number in range(1, 4000):
            self.assertEqual(from_roman(to_roman(number)), number)

    def test_known_numbers(self) -> None:
        """Some that everybody knows."""
        for number, letters in ((4, "IV"), (1994, "MCMXCIV"), (2026, "MMXXVI")):
            self.assertEqual(to_roman(number), letters)

    def test_numbers_out_of_range(self) -> None:
        """There is no zero, and nothing from 4000 on."""
        for number in (0, -1, 4000):
            with self.assertRaises(ValueError):
                to_roman(number)

    def test_what_is_no_numeral(self) -> None:
        """Unusual ways to write a number are refused."""
        for letters in ("", "IIII", "VX", "IM", "abc", "MMMM"):
            with self.assertRaises(ValueError):
                from_roman(letters)


if __name__ == "__main__":
    unittest.main()
