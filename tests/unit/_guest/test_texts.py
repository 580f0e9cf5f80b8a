"""Short ways to a page and to a difference: they show what the long ones do."""

from __future__ import annotations

import hashlib
import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit._guest.client import outcome

from isobox._guest import agent

# -- pages ---------------------------------------------------------------------

BYTES = [b"a", b"\n", b"bb", b"\xc3\xa9", b"\r\n", b"\r", b"\0", b"\xff"]
CONTENTS = st.lists(st.sampled_from(BYTES), max_size=20).map(b"".join)


def page(path: bytes, **fields) -> tuple[bytes, dict]:
    asked = {"path": path, "start": 1, "count": 2000, "width": 2000, **fields}
    work = agent.read_lines(asked)
    pieces = []
    while True:
        try:
            pieces.append(next(work) or b"")
        except StopIteration as done:
            return b"".join(pieces), done.value


def pages(path: bytes, **fields) -> list[tuple[bytes, dict]]:
    """Return a page, and what it is when each line is looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "_plain", lambda *_: False)
        expected = page(path, **fields)
    return [page(path, **fields), expected]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("pages") / "file"


@given(
    content=CONTENTS,
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    start=st.sampled_from([1, -100, 2]),
    count=st.sampled_from([0, 1, 5, 100]),
    width=st.sampled_from([0, 1, 2, 4, 100]),
)
@example(content=b"ab\nab\nab", mark=b"", start=1, count=3, width=2)
@example(content=b"\n\n", mark=b"", start=1, count=2, width=0)
def test_a_plain_file_is_shown_as_it_stands(path, content, mark, start, count, width):
    path.write_bytes(mark + content)
    short, long = pages(bytes(path), start=start, count=count, width=width)
    assert short == long


@pytest.mark.parametrize(
    ("content", "plain"),
    [
        (b"a\nb\n", True),
        (b"a\nb", True),
        ("é\n".encode(), True),
        (b"abcdefgh\nabcdefgh\n" * 1000, True),
        (b"a\r\nb\r\n", False),
        (b"\xef\xbb\xbfa\n", False),
        (b"\xffa\n", False),
        (b"a\nabcdefghi\nb\n", False),
        (b"a\n" * 2001, False),
    ],
)
def test_plain_files_are_told_from_others(path, monkeypatch, content, plain):
    path.write_bytes(content)
    told = []
    plainly = agent._plain
    monkeypatch.setattr(
        agent, "_plain", lambda *each: told.append(plainly(*each)) or told[-1]
    )
    page(bytes(path), width=8)
    assert told == [plain]


# -- differences ---------------------------------------------------------------


def plain_difference(before: str, after: str, replaced: int) -> tuple[str, int]:
    """Compare line by line, from the begin and from the end."""
    if before == after:
        return "", 0
    old, new = before.split("\n"), after.split("\n")
    shorter = min(len(old), len(new))
    top = end = 0
    while top < shorter and old[top] == new[top]:
        top += 1
    while end < shorter - top and old[-1 - end] == new[-1 - end]:
        end += 1
    span = (top, len(old) - end, top, len(new) - end)
    changes = list(agent._changes(old, new, span, replaced))
    return "".join(agent._hunks(old, new, changes, 0)), top + 1


TEXTS = st.text(alphabet="ab\n", max_size=12)
LINES = st.integers(0, 7).map("x\n".__mul__)


@given(TEXTS, TEXTS, LINES, LINES, st.sampled_from(["", "\n", "y"]), st.booleans())
@example("a", "a\n", "", "", "", True)
@example("", "x\n", "x\nx\n", "x\nx\n", "", False)
@example("a\nb", "a", "x\n" * 7, "x\n" * 7, "", True)
def test_a_difference_needs_no_look_at_what_is_far(
    old, new, above, below, last, one_change
):
    before, after = above + old + below + last, above + new + below + last
    expected = plain_difference(before, after, 1 if one_change else 2)
    assert agent.difference(before, after, 1 if one_change else 2) == expected


def test_only_what_is_near_is_split_into_lines():
    lines = [f"line {number}\n" for number in range(1000)]
    before = "".join(lines)
    lines[500:502] = ["other\n"]
    cut, near, changed = agent._near_change(before, "".join(lines))
    assert (cut, near.count("\n"), changed.count("\n")) == (497, 9, 8)


# -- digests and replacing ---------------------------------------------------------

STEP = agent.Digests._STEP
LENGTHS = st.sampled_from([0, 1, STEP - 1, STEP, STEP + 1, 3 * STEP, 3 * STEP + 5])


@given(st.lists(st.tuples(LENGTHS, LENGTHS), max_size=5))
@example([(3 * STEP, 0), (3 * STEP, 5), (STEP, 0), (0, 0), (STEP, STEP)])
def test_a_digest_goes_on_where_contents_part(sizes):
    digests = agent.Digests()
    for alike, other in sizes:
        content = bytes(alike) + b"x" * other
        assert digests.of(content) == hashlib.sha256(content).digest()


def edit(path: bytes, old: bytes, new: bytes, **fields) -> dict:
    asked = {"path": path, "pieces": [(old, new, False)], "if_match": None, **fields}
    return outcome(agent.edit_file(asked))


LARGEST = agent._LARGEST_KNOWN
SIZES = st.sampled_from([0, 1, 5, STEP, 2 * STEP, LARGEST - 1, LARGEST, LARGEST + 1])
TURNS = st.tuples(SIZES, st.sampled_from(b"xy\n"), st.booleans(), st.integers(0, 11))


@given(st.lists(TURNS, max_size=8))
@example(
    [(5, 120, False, 0), (5, 121, False, 0), (5, 121, True, 0), (5, 120, False, 0)]
)
@example([(LARGEST, 120, True, 0), (LARGEST, 120, False, 0), (1, 120, False, 0)])
def test_a_file_that_is_known_has_the_digest_of_what_is_in_it_now(path, turns):
    for size, letter, edits, number in turns:
        name = path.with_name(f"known{number}")
        content = bytes((letter,)) * size
        name.write_bytes(content)
        os.utime(name, (1, 1))
        raw = os.fsencode(os.path.realpath(name))
        if edits and size:
            name.write_bytes(b"#" + content[1:])
            answer = edit(raw, b"#", content[:1] * 2)
            content = name.read_bytes()
        else:
            shown, answer = page(raw)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(agent, "_known", {})
                assert page(raw) == (shown, answer)
        assert hashlib.sha256(content).digest() in answer["entry"]
        assert len(agent._known) <= agent._KNOWN
        assert (
            sum(each.size for each in agent._known.values()) <= LARGEST * agent._KNOWN
        )


WORDS = st.text("ab\n", max_size=8)


@given(WORDS, WORDS.filter(bool), WORDS)
def test_one_place_is_replaced_as_all_would_be(text, old, new):
    found = text.count(old)
    if found and text.find(old, text.find(old) + 1) < 0:
        assert agent._replaced(text, (old, new, False), 1, False) == (
            text.replace(old, new),
            1,
        )
    if found:
        assert agent._replaced(text, (old, new, True), 1, False) == (
            text.replace(old, new),
            found,
        )
