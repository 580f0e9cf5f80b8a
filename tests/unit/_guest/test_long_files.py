"""Searches of files that are too long to be taken at once."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit._guest.test_scouts import found

from isobox._guest import agent

LINES = st.lists(
    st.sampled_from(["needle", "straw", "é needle", "", "x" * 9, "needle\r"]),
    max_size=30,
)
OPTIONS = [
    {},
    {"mode": "count"},
    {"mode": "files"},
    {"before": 2},
    {"after": 3},
    {"before": 3, "after": 1, "limit": 4, "offset": 1},
]


@pytest.fixture
def small(monkeypatch):
    """Take files to pieces that are small enough to make."""
    monkeypatch.setattr(agent, "_SAMPLE", 16)
    monkeypatch.setattr(agent, "_LARGEST_SEARCHED", 64)
    monkeypatch.setattr(agent, "_FURTHER", 16)
    # What is read at first is then more than that, unless it is read in steps.
    monkeypatch.setattr(agent, "_rest", lambda fd, data: data + os.read(fd, 48))


@pytest.mark.usefixtures("small")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=LINES,
    ended=st.booleans(),
    mark=st.booleans(),
    options=st.sampled_from(OPTIONS),
    pattern=st.sampled_from(["needle", "e+dle$", r"[^w]$", "^$"]),
)
@example(
    lines=["x" * 9] * 20 + ["needle"],
    ended=False,
    mark=True,
    options={},
    pattern="^n",
)
def test_parts_change_no_result(tmp_path, lines, ended, mark, options, pattern):
    path = tmp_path / "f"
    text = "\ufeff" * mark + "\n".join(lines) + "\n" * ended
    path.write_bytes(text.encode())
    seen, result = found(pattern, path, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "_LARGEST_SEARCHED", 1 << 20)
        patch.setattr(agent, "_rest", lambda fd, data: data + os.read(fd, 1 << 20))
        expected, told = found(pattern, path, **options)
    assert seen == expected
    assert result == {**told, "partial": []}


@pytest.mark.parametrize("pattern", ["NEEDLE here", "N[E]+DLE", "(?i)needle h"])
def test_what_comes_late_in_a_long_file_is_found(tmp_path, pattern):
    line = "x" * 99 + "\n"
    text = line * 700_000 + "NEEDLE here\n"
    (tmp_path / "big.log").write_text(text)
    matches, result = found(pattern, tmp_path)
    assert [(each.line, each.text) for each in matches] == [(700_001, "NEEDLE here")]
    assert result["partial"] == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"straw\n" * 40, {"multiline": True}),
        ("straw\n".encode("utf-16") * 40, {}),
        (b"straw\n" * 40 + b"\0", {}),
        (b"x" * 300 + b"\nneedle", {}),
    ],
)
def test_what_is_not_searched_to_the_end_is_named(tmp_path, content, options):
    path = tmp_path / "f"
    path.write_bytes(content)
    matches, result = found("nee+dle", path, **options)
    assert matches == []
    assert result["partial"] == [bytes(path)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("options", [{"multiline": True}, {"mode": "files"}])
def test_a_short_text_is_searched_to_its_end(tmp_path, options):
    path = tmp_path / "f"
    path.write_bytes(b"straw\n" * 10 + b"need")
    assert found("nee+dle", path, **options)[1]["partial"] == []


@pytest.mark.usefixtures("small")
def test_a_long_binary_is_passed_over(tmp_path):
    (tmp_path / "f").write_bytes(b"\0needle\n" * 40)
    assert found("needle", tmp_path) == (
        [],
        {"files": 1, "skipped": [], "partial": [], "truncated": False},
    )
