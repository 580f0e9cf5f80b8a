"""Pages and patches as a guest describes them, which may lie."""

from __future__ import annotations

import pytest

from isobox._channel import unpack
from isobox._core.patch import FileChange
from isobox._core.results import Entry
from isobox._guest import agent
from isobox.errors import ProtocolError

ENTRY = Entry("/w/f", "file", 1, 0o644, 0)
PAGE = {
    "first": 1,
    "total": 2,
    "count": 2,
    "clipped": [],
    "encoding": "utf-8",
    "newline": "\n",
    "final_newline": True,
    "media_type": "text/plain",
    "image": False,
}


def page(data=b"a\nb", most=10, **fields):
    return unpack.page({**PAGE, **fields}, data, ENTRY, most=most)


def test_a_page_is_what_it_says():
    got = page(clipped=[2])
    assert (got.lines, got.first, got.total, got.clipped) == (("a", "b"), 1, 2, (2,))
    assert page(b"", count=0).lines == ()
    assert page(b"", count=1).lines == ("",)
    assert page(b"\xff", count=1).lines == ("\ufffd",)
    assert page(b"png", count=0, image=True, media_type="image/png").data == b"png"


@pytest.mark.parametrize(
    "fields",
    [
        {"first": 0},
        {"first": -1},
        {"first": "1"},
        {"total": -1},
        {"total": None},
        {"count": 11},
        {"count": -1},
        {"count": 3},
        {"count": 1},
        {"clipped": [1, 2, 3]},
        {"clipped": 5},
        {"encoding": "rot13"},
        {"encoding": None},
        {"newline": "\r"},
        {"media_type": "text"},
        {"media_type": "text/plain\n<script>"},
        {"media_type": "a/" + "b" * 100},
    ],
)
def test_a_page_that_cannot_be_costs_the_sandbox(fields):
    with pytest.raises(ProtocolError):
        page(**fields)


def test_a_difference_is_bounded():
    told = {"diff": "x" * 1_000_000, "line": 5}
    diff, line = unpack.difference(told, "/w/f")
    assert line == 5
    assert len(diff) < 70_000
    assert unpack.difference({"diff": 5, "line": "x"}, "/w/f") == ("", 0)


def packed(path: bytes) -> bytes:
    return agent.ENTRY.pack(b"f", 0o644, 0, 0, 1, 0, 0, len(path), 0) + path


CHANGES = (FileChange("/w/a", "update", (), "/w/b"), FileChange("/w/c", "delete"))


def test_a_patch_did_what_was_asked():
    told = {"entries": packed(b"/w/b"), "removed": [b"/w/a", b"/w/c"]}
    got = unpack.patched(told, CHANGES)
    assert [entry.path for entry in got.written] == ["/w/b"]
    assert got.removed == ("/w/a", "/w/c")


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"entries": b"", "removed": None},
        {"entries": b"x", "removed": []},
        {"entries": packed(b"/etc/passwd"), "removed": []},
        {"entries": b"", "removed": [b"/w/d"]},
    ],
)
def test_a_patch_that_speaks_of_others_costs_the_sandbox(told):
    with pytest.raises(ProtocolError):
        unpack.patched(told, CHANGES)


def test_modes_of_a_search_make_matches_of_files():
    data = agent.MATCH.pack(7, 4, 0, 0, 0) + b"/w/f"
    (counted,) = unpack.matches(data, "/w", cut=False, mode="count")
    assert (counted.line, counted.count) == (0, 7)
    (named,) = unpack.matches(data, "/w", cut=False, mode="files")
    assert (named.line, named.count) == (0, 1)
