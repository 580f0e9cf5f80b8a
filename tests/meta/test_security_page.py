"""Every escape on the security page has a test that exists, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isobox.testing import contract

TESTS = Path(__file__).parents[1]
CONTRACT = Path(contract.__file__).parent
PAGE = TESTS.parent / "docs" / "security.md"
ROWS = re.findall(r"^\| ([a-z]+-\d+) \|.*\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE.read_text())))


def file_of(path: str) -> Path:
    folder, _, name = path.partition("/")
    return CONTRACT / name if folder == "contract" else TESTS / path


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_named_test_exists(path, name):
    assert re.search(rf"def {name}\(", file_of(path).read_text())


@pytest.mark.parametrize(("row", "answer"), ROWS, ids=[row for row, _ in ROWS])
def test_row_has_a_test_or_a_reason(row, answer):
    assert "::test_" in answer or "does not apply: " in answer


def test_rows_are_numbered_once():
    rows = [row for row, _ in ROWS]
    assert len(rows) > 80
    assert len(rows) == len(set(rows))
