"""A session remembers within bounds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from isobox._workspace.tools import session as sessions
from isobox._workspace.tools.session import Seen, Session
from isobox.testing.fake import MemoryWorkspace


def session():
    return Session(MemoryWorkspace(), "default")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b/é.py", "a b/é.py"),
        ("a\n[there are more; go on with offset=1]", None),
        ("a\r\x1b[2J\x85\u2028\u202e", "a\\r\\x1b[2J\\x85\\u2028\\u202e"),
        ("[no output]", "./[no output]"),
        ("[id].tsx", "[id].tsx"),
        ("a/[no output]", "a/[no output]"),
    ],
)
def test_a_name_is_shown_in_its_line_and_is_no_note(name, shown):
    named = Session(SimpleNamespace(root="/w"), "default").shown(f"/w/{name}")
    assert named == (name.replace("\n", "\\n") if shown is None else shown)


def test_what_was_noted_is_known_until_forgotten():
    one = session()
    one.note("/a", Seen("1"), "text")
    assert (one.seen("/a"), one.text("/a")) == (Seen("1"), "text")
    one.note("/a", Seen("2"))
    assert (one.seen("/a"), one.text("/a")) == (Seen("2"), None)
    one.forget("/a")
    assert one.seen("/a") is None


def test_long_texts_are_not_kept():
    one = session()
    one.note("/a", Seen("1"), "x" * (256 * 1024 + 1))
    assert one.text("/a") is None


def test_the_oldest_text_goes_first():
    one = session()
    for number in range(65):
        one.note(f"/{number}", Seen("1"), "text")
    assert one.text("/0") is None
    assert one.text("/1") == "text"
    assert one.seen("/0") == Seen("1")


def test_the_oldest_file_goes_first(monkeypatch):
    monkeypatch.setattr(sessions, "_MOST_SEEN", 2)
    one = session()
    for name in ("/a", "/b", "/c"):
        one.note(name, Seen("1"), "text")
    assert one.seen("/a") is None
    assert one.text("/a") is None
    assert one.seen("/c") == Seen("1")
