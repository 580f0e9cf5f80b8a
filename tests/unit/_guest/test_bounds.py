"""What would take hours is done in few steps, or refused."""

from __future__ import annotations

import difflib
import hashlib
import os
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit._guest.client import outcome

from isobox._guest import agent

has_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")

# -- the closest lines -----------------------------------------------------------

LONG = "a" * 300


def test_lines_that_are_long_and_alike_are_found():
    wanted = [LONG] * 39 + ["a" * 150 + "b" + "a" * 149]
    told = agent._closest("\n".join([LONG] * 40), wanted).splitlines()
    assert told[0] == "The closest lines are:"
    assert told[1] == f"     1\t{'a' * 200}"


def test_words_that_are_nowhere_are_not_sought_without_end():
    told = agent._closest("(" * 300 + "\n" + "x\n" * 20_000, [")" * 300] * 40)
    assert told == "Nothing in the file is like it."


def test_no_more_words_are_compared_than_there_is_time_for(monkeypatch):
    monkeypatch.setattr(agent, "_COMPARED_WORDS", 10)
    assert agent._alike(["a b"] * 4 + ["a c", "x y"], "a c") == [4, 0, 1]
    assert agent._alike(["a b"] * 5 + ["a c", "x y"], "a c") == [0, 1, 2]


def test_many_empty_lines_are_passed_over():
    assert "1\tx" in agent._closest("x y\n", [""] * 1_000_000 + ["x z"])


ROWS = st.lists(st.text("ab =(", max_size=8), min_size=1, max_size=4)


@settings(deadline=None)
@given(ROWS, ROWS)
def test_few_lines_are_compared_letter_by_letter(there, wanted):
    pieces = "\n".join(there), "\n".join(wanted)
    expected = difflib.SequenceMatcher(None, *pieces, autojunk=False).ratio()
    assert agent._likeness(there, wanted) == expected


@settings(deadline=None)
@given(ROWS, ROWS)
def test_about_how_much_lines_are_alike(there, wanted):
    assert 0 <= agent._likeness_of_lines(there, wanted) <= 1
    if any(wanted):
        assert agent._likeness_of_lines(wanted, wanted) == 1


# -- replacing -------------------------------------------------------------------


def refused(content: bytes, *pieces: tuple[bytes, bytes, bool]) -> str:
    with pytest.raises(agent.Refused) as caught:
        agent.edited(content, list(pieces), True)
    return caught.value.message


def test_doubling_ends_where_a_file_is_too_large(monkeypatch):
    monkeypatch.setattr(agent, "_LARGEST_EDIT", 1 << 20)
    told = refused(b"a\n", *[(b"a", b"aa", True)] * 40)
    assert told == "the file would become too large to edit"


@pytest.mark.parametrize(
    ("content", "piece"),
    [
        (b"x" + b"a" * 9, (b"x", b"yy", False)),
        (b"aaaaa", (b"a", b"bbb", True)),
        (b"a\nb\r\nc\r\n", (b"b\nc", b"b\nc++", False)),
        (b"axyz", (b"a", "éééé".encode(), False)),
    ],
)
def test_what_would_be_too_large_is_refused(monkeypatch, content, piece):
    monkeypatch.setattr(agent, "_LARGEST_EDIT", 10)
    assert refused(content, piece) == "the file would become too large to edit"
    old, _, every = piece
    agent.edited(content, [(old, b"", every)], True)


def test_a_text_that_overlaps_itself_stands_more_than_once():
    braces = (b"}\n}\n", b"END\n", False)
    assert refused(b"}\n}\n}\n", braces) == "1 2\n (lines 1, 2)"
    assert refused(b"a\n}\r\n}\r\n}\r\n", braces) == "1 2"
    assert agent.edited(b"}\n}\n}\n", [(b"}\n}\n", b"", True)], True)[0] == b"}\n"


def test_places_in_one_line_are_not_looked_at_one_by_one():
    told = refused(b"a" * (8 << 20) + b"\na\n", (b"a", b"b", False))
    assert told == f"1 {(8 << 20) + 1}\n (lines 1, 2)"
    assert refused(b"a" * (8 << 20), (b"a" * 1000, b"b", False)).endswith(" (line 1)")


MIXED = st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), max_size=12).map("".join)


@settings(deadline=None)
@given(MIXED, MIXED.filter(lambda text: "\n" in text), MIXED)
@example("a\r\nb\na\nb\r\n", "a\nb", "x\ny")
def test_mixed_line_ends_are_kept_at_each_place(text, old, new):
    parts = old.replace("\r\n", "\n").split("\n")
    expression = re.compile("\r?\n".join(map(re.escape, parts)))
    plain = new.replace("\r\n", "\n")
    expected, count = expression.subn(
        lambda match: plain.replace("\n", "\r\n") if "\r\n" in match[0] else plain,
        text,
    )
    if count:
        piece = (old, new, True)
        assert agent._replaced_across(text, piece, 1) == (expected, count)


def test_lines_that_almost_match_everywhere_are_sought_once():
    content = b"a\n" * 200_000 + b"a\r\n"
    told = refused(content, (b"a\n" * 50_000 + b"b", b"", False))
    assert told.startswith("1 0\n")


def test_a_long_edit_lets_others_have_their_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(agent, "_LARGEST_COMPARED", 10)
    (tmp_path / "f").write_text("a" * 20)
    fields = {
        "path": bytes(tmp_path / "f"),
        "pieces": [(b"a", b"b", True), (b"b", b"c", True)],
        "if_match": None,
    }
    assert list(agent.edit_file(fields)) == [None] * 3
    assert (tmp_path / "f").read_text() == "c" * 20


# -- patches ---------------------------------------------------------------------

STANDS = st.sampled_from(["a", "b", "", "a\r", "a\r\r", "\r", " a ", "\rb"])


def plainly(lines, wanted, expected, first, last):
    """Look at each place, the nearest first."""
    places = sorted(range(first, last + 1), key=lambda place: abs(place - expected))
    return next((p for p in places if agent._stands(lines, wanted, p)), None)


@settings(deadline=None)
@given(
    st.lists(STANDS, max_size=12),
    st.lists(STANDS, min_size=1, max_size=4),
    st.integers(0, 12),
    st.integers(0, 12),
)
@example(["a", "a", "b", "a", "a"], ["a"], 2, 0)
def test_lines_stand_where_each_place_would_be_looked_at(lines, wanted, expected, at):
    last = len(lines) - len(wanted)
    found = outcome(agent.Lines(lines, []).nearest(wanted, expected, at, last))
    assert found == plainly(lines, wanted, expected, at, last)


def plain_anchor(lines, anchor, at):
    for strict in (True, False):
        for number in range(at, len(lines)):
            line = lines[number].rstrip("\r")
            if line == anchor or (not strict and line.strip() == anchor.strip()):
                return number
    return None


@settings(deadline=None)
@given(st.lists(STANDS, max_size=8), st.lists(STANDS, max_size=3), st.integers(0, 8))
def test_anchors_are_where_each_line_would_be_looked_at(lines, anchors, at):
    among = agent.Lines(lines, [{"anchors": anchors}])
    for anchor in anchors:
        expected = plain_anchor(lines, anchor, at)
        assert outcome(among.anchor(anchor, at)) == expected


class Counted(str):
    """A line that counts how often it is compared."""

    __slots__ = ()
    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.times += 1
        return str.__eq__(self, other)

    def __ne__(self, other):
        Counted.times += 1
        return str.__ne__(self, other)


@pytest.mark.parametrize("expected", [0, 5000, 10_000])
def test_no_line_is_compared_often(monkeypatch, expected):
    monkeypatch.setattr(Counted, "times", 0)
    lines = [Counted("a")] * 10_000
    among = agent.Lines(lines, [])
    wanted = ["a"] * 3000 + ["b"]
    assert outcome(among.nearest(wanted, expected, 0, 10_000 - 3001)) is None
    assert Counted.times <= 3 * len(lines)


def hunk(body, **more):
    return {"line": None, "anchors": [], "at_end": False, "newline": None} | {
        "body": body,
        **more,
    }


@pytest.mark.parametrize("line", [None, 100_000])
@pytest.mark.parametrize("cr", ["", "\r"])
def test_a_long_hunk_that_almost_stands_everywhere_is_refused(line, cr):
    body = "\n".join([f" a{cr}"] * 3000 + ["-b"])
    with pytest.raises(agent.Refused, match="not there"):
        agent.apply_hunks(f"a{cr}\n" * 200_000, [hunk(body, line=line)])


def test_many_anchors_are_found_at_one_look(monkeypatch):
    looks = []
    anchored = agent._anchored
    monkeypatch.setattr(
        agent, "_anchored", lambda *each: looks.append(1) or anchored(*each)
    )
    text = "".join(f"l{n}\n" for n in range(20_000))
    hunks = [hunk("+y", anchors=[f" l{n} "]) for n in range(0, 20_000, 10)]
    lines = agent.apply_hunks(text, hunks).splitlines()
    assert [lines.index("l0"), lines.index("l10"), len(lines)] == [0, 11, 22_000]
    assert lines[12] == "y"
    assert len(looks) <= 3 * 20_000


def test_a_long_search_lets_others_have_their_turn(monkeypatch):
    monkeypatch.setattr(agent, "_LINES_AT_ONCE", 100)
    work = agent._applied("a\n" * 1000, [hunk("-b", anchors=["a"])])
    assert [next(work) for _ in range(20)] == [None] * 20
    with pytest.raises(agent.Refused):
        next(work)


def test_many_hunks_let_others_have_their_turn():
    hunks = [hunk("-a\n+b") for _ in range(200)]
    work = agent._applied("a\n" * 200, hunks)
    assert [next(work) for _ in range(3)] == [None] * 3
    assert outcome(work) == "b\n" * 200


# -- files without an end ----------------------------------------------------------


@pytest.fixture
def growing(tmp_path, monkeypatch):
    """A file that has grown since its size was asked."""
    path = tmp_path / "f"
    path.write_bytes(b"before")
    opened = agent._open_regular

    def then_grown(name):
        found = opened(name)
        with open(path, "ab") as file:
            file.write(b", and after")
        return found

    monkeypatch.setattr(agent, "_open_regular", then_grown)
    return bytes(path)


def test_what_grows_is_not_edited_beyond_the_largest_size(growing, monkeypatch):
    assert agent._whole(growing)[0] == b"before, and after"
    monkeypatch.setattr(agent, "_LARGEST_EDIT", 20)
    with pytest.raises(agent.Refused, match="too large to edit"):
        agent._whole(growing)


def test_what_grows_is_another_content(growing):
    with pytest.raises(agent.Refused, match="just changed"):
        outcome(agent.compare(growing, hashlib.sha256(b"before").hexdigest()))


def test_what_grows_has_the_digest_of_what_was_there(growing):
    assert outcome(agent._digest_of(growing)) == hashlib.sha256(b"before").digest()


@has_proc
def test_a_file_of_proc_is_not_read_without_end(monkeypatch):
    for name in ("_LARGEST_EDIT", "_LARGEST_SURVEYED"):
        monkeypatch.setattr(agent, name, 20)
    path = b"/proc/self/status"
    assert os.stat(path).st_size == 0
    with pytest.raises(agent.Refused, match="too large to edit"):
        agent._whole(path)
    with pytest.raises(agent.Refused, match="just changed"):
        outcome(agent.compare(path, "00"))
    with pytest.raises(agent.Refused, match="over 4 GiB"):
        read(path)
    assert outcome(agent._digest_of(path)) == b""


@has_proc
def test_a_small_file_of_proc_is_read_as_before():
    content = b"Linux version"
    assert agent._whole(b"/proc/version")[0].startswith(content)
    assert len(outcome(agent._digest_of(b"/proc/version"))) == 32
    assert read(b"/proc/version")["total"] == 1


def read(path, **more):
    asked = {"path": path, "start": 1, "count": 10, "width": 100, **more}
    return outcome(agent.read_lines(asked))


@pytest.fixture
def endless(tmp_path):
    """A file of a terabyte that takes no room."""
    path = tmp_path / "endless"
    path.touch()
    os.truncate(path, 1 << 40)
    return path


def test_a_large_file_that_is_no_text_is_not_read_to_its_end(endless):
    told = read(bytes(endless))
    assert (told["media_type"], told["total"]) == ("application/octet-stream", 0)
    assert not told["image"]


def test_a_large_text_is_looked_at_no_further_once_it_is_none(endless):
    with open(endless, "r+b") as file:
        file.write(b"text\n" * 1_000_000)
    with pytest.raises(agent.Refused, match="over 4 GiB"):
        read(bytes(endless))
    os.truncate(endless, 4 << 30)
    assert read(bytes(endless))["media_type"] == "application/octet-stream"


def test_a_large_file_is_not_compared(endless):
    with pytest.raises(agent.Refused, match="too large"):
        outcome(agent.compare(bytes(endless), "00"))
