"""What must not stand in the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import isobox

SOURCE = Path(isobox.__file__).parent
FORBIDDEN = {
    "a shell between us and the program": r"shell\s*=\s*True|os\.system\(|os\.popen\(",
    "unpacking without a look at the members": r"\.extractall\(|\.unpack_archive\(",
    "a path of the author's machine": (
        r"/home/(?!(user|agent)\b)[a-z]|/Users/|(?<![\w}])/root/|/tmp/venv"
    ),
    "work that was left": r"\bTODO\b|\bFIXME\b|\bXXX\b",
}
FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("pattern", FORBIDDEN.values(), ids=FORBIDDEN)
def test_source_is_free_of(pattern):
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert found == []


def test_source_was_found():
    assert len(FILES) > 20
