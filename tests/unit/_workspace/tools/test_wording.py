"""Texts for models: bounded, whole, exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._workspace.tools.wording import (
    MOST_TEXT,
    clean,
    count,
    cut,
    difference,
    listed,
    said,
)


@pytest.mark.parametrize(
    ("old", "new", "diff"),
    [
        ("", "", ""),
        ("a\n", "a\n", ""),
        ("", "a\n", "@@ -0,0 +1,1 @@\n+a"),
        ("a\n", "", "@@ -1,1 +0,0 @@\n-a"),
        ("a\n", "b\n", "@@ -1,1 +1,1 @@\n-a\n+b"),
        ("a\nb\n", "a\nc\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c"),
        (
            "".join(f"{n}\n" for n in range(1, 21)),
            "".join(f"{n}\n" if n != 10 else "ten\n" for n in range(1, 21)),
            "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13",
        ),
        (
            "x\n" * 400,
            "y\n" * 300,
            "400 lines from line 1 on gave way to 300 others",
        ),
        ("a\n", "a\nb\n", "@@ -1,1 +1,2 @@\n a\n+b"),
    ],
)
def test_difference(old, new, diff):
    assert difference(old, new) == diff


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_difference_leads_from_one_to_the_other(before, after):
    old, new = "\n".join(before), "\n".join(after)
    assert patched(old.splitlines(), difference(old, new)) == new.splitlines()


def patched(lines, diff):
    result, position = [], 0
    for line in diff.splitlines():
        if line.startswith("@@"):
            start, _, length = line.split(" ")[1][1:].partition(",")
            begin = int(start) - (length != "0")
            result += lines[position:begin]
            position = begin
        elif line[0] == "+":
            result.append(line[1:])
        else:
            assert lines[position] == line[1:]
            position += 1
            result += [line[1:]] if line[0] == " " else []
    return result + lines[position:]


def test_a_long_diff_is_bounded():
    old = "".join(f"{n} {'x' * 200}\n" for n in range(100))
    new = old.replace("x", "y")
    assert len(difference(old, new)) < 5000
    assert difference(old, new).endswith(" lines more]")


def test_a_long_text_keeps_head_and_tail():
    text = "a" * MOST_TEXT + "b" * MOST_TEXT
    half = MOST_TEXT // 2
    assert cut(text, "gap") == "a" * half + "\n[gap]\n" + "b" * half
    assert cut("a" * MOST_TEXT, "gap") == "a" * MOST_TEXT


@given(st.text(st.characters()))
def test_clean_text_can_be_sent(text):
    assert "\0" not in clean(text)
    clean(text).encode()


def test_what_cannot_be_sent_is_escaped():
    assert clean("a\0b\udcff") == "a\\x00b\\udcff"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((1, "line"), "1 line"),
        ((0, "line"), "0 lines"),
        ((1234, "match", "matches"), "1,234 matches"),
    ],
)
def test_count(args, words):
    assert count(*args) == words


def test_listed():
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"


def test_parts_are_joined_by_one_line_end():
    assert said("a\n", "", "b").text == "a\nb"
