"""Searches that look only at the files that hold a text which every match has."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.descriptors import none_left_open, opened
from tests.unit._guest.client import SEARCH, Guest, eventually

from isobox._channel import unpack
from isobox._guest import agent

HEAD = 8192  # what is looked at of every file
PIECE = 1 << 16  # what is read of others at once


def needed(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> bytes:
    return agent.needed_text(
        {"pattern": pattern, "literal": literal, "ignore_case": ignore_case}
    )


def found(pattern: str, folder: Path, **fields) -> tuple[list, dict]:
    """Search in this process: return what was written, and the result."""
    asked = {**SEARCH, "path": bytes(folder), "pattern": pattern, **fields}
    reader, writer = os.pipe()
    with open(reader, "rb") as output:
        try:
            result = agent.search_tree(asked, writer, bytes(folder), b"")
        finally:
            os.close(writer)
        return list(unpack.matches(output.read(), str(folder), cut=False)), result


# -- the text that every match has ---------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("needle", b"needle"),
        (r"def \w+\(", b"def "),
        (r"\bfoo\.bar\b", b"foo.bar"),
        ("abc+", b"abc"),
        ("abc*", b"ab"),
        ("abc?", b"ab"),
        ("(foo)bar", b"foo"),
        ("(foo)+x", b"foo"),
        ("[abc]def", b"def"),
        ("[]a]xy", b"xy"),
        (r"[^]\]a]xy", b"xy"),
        ("^é$", "é".encode()),
        (f"a{chr(0xD800)}bc", b"bc"),
        ("a\ufffdbc", b"bc"),
        (r"\\n", b"\\n"),
        ("a" * 5000, b"a" * 1024),
        ("", b""),
        ("[ab]", b""),
        ("foo|bar", b""),
        ("(foo)?bar", b""),
        ("(foo)*bar", b""),
        ("(?i)foo", b""),
        ("(?:foo)", b""),
        (r"\x41bc", b""),
        (r"(a)\1b", b""),
        ("ab{0}", b""),
        ("needle.*x.*y", b""),
        ("a" * 20_000, b""),
    ],
)
def test_it_is_the_longest_that_is_seen(pattern, text):
    assert needed(pattern) == text


def test_plain_text_is_all_of_it():
    assert needed("a.*(", literal=True) == b"a.*("
    assert needed("a\nlonger", literal=True) == b"longer"


def test_letters_of_either_case_are_none():
    assert needed("needle", ignore_case=True) == b""
    assert needed("needle", literal=True, ignore_case=True) == b""


PARTS = (
    "a b c ab . .* .+ a* b+ c? ^ $ ( ) (a) (b)? (c)* (a|b) | [ab] [^a] []a] [*+?] {2}"
    r" {,1} {a} \. \\ \* \w \S \b \B \A \Z \x61 \141 \1 (?:a) (?i) (?=a) [\]b] é -"
)


@given(
    st.lists(st.sampled_from(PARTS.split()), min_size=1, max_size=6).map("".join),
    st.text(alphabet="aAbBc.\\*[]{}()|-é ", max_size=12),
)
@example("[]a]b", "]b")
@example("a{,1}b", "b")
@example(r"a\x62", "ab")
def test_no_match_is_without_it(pattern, line):
    try:
        expression = re.compile(pattern)
    except re.error:
        return
    if expression.search(line):
        assert needed(pattern) in line.encode()


# -- files ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "holds"),
    [
        (b"", False),
        (b"needl", False),
        (b"a needle", True),
        (b"needle\0", True),
        (b"\0needle", False),
        ("é needle".encode("utf-16"), True),
        (b"\xfe", False),
        (b"\xff\xfe", True),
        (b"x" * (HEAD - 6) + b"needle", True),
        (b"x" * (HEAD - 3) + b"needle", True),
        (b"x" * HEAD + b"needle", True),
        (b"x" * HEAD + b"needl", False),
        (b"\xff\xfe" + b"x" * HEAD, True),
        (b"\0" + b"x" * HEAD + b"needle", False),
        (b"x" * (HEAD + PIECE - 8) + b"needle", True),
        (b"x" * (HEAD + PIECE - 5) + b"needle", True),
        (b"x" * (PIECE - 6) + b"needle", True),
        (b"x" * (PIECE - 3) + b"needle", True),
        (b"x" * PIECE + b"needle", True),
        (b"x" * (2 * PIECE - 3) + b"needle" + b"x" * PIECE, True),
        (b"x" * (5 * PIECE) + b"needle", True),
        (b"x" * (5 * PIECE) + b"needl", False),
        (b"x" * (PIECE - 3) + b"nee" + b"x" * PIECE + b"dle", False),
        (b"\0" + b"x" * PIECE + b"needle", False),
        (b"x" * PIECE + b"\0" + b"x" * PIECE + b"needle", False),
    ],
)
def test_a_file_that_may_hold_it_is_marked(tmp_path, content, holds):
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "other").write_bytes(b"straw")
    shelf = agent.Shelf(bytes(tmp_path) + b"/", [b"file", b"other", b"gone"])
    marks = agent.Finder(b"needle").marks([shelf])
    assert marks == (b"+" if holds else b"-") + b"-!"


def test_a_text_of_one_byte_is_found_behind_the_first_piece(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 2 * PIECE + b"y")
    shelf = agent.Shelf(bytes(tmp_path) + b"/", [b"file"])
    assert agent.Finder(b"y").marks([shelf]) == b"+"
    assert agent.Finder(b"z").marks([shelf]) == b"-"


def test_what_has_gone_or_is_another_thing_now_is_not_readable(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    names = [b"link", b"folder", b"gone", b"file"]
    shelves = [
        agent.Shelf(bytes(tmp_path) + b"/", names),
        agent.Shelf(bytes(tmp_path) + b"/none/", [b"a", b"b"]),
        agent.Shelf(bytes(tmp_path) + b"/", [b"fifo"]),
    ]
    assert agent.Finder(b"needle").marks(shelves) == b"!!!-" + b"!!" + b"-"


def marks_in(folder: Path, text: bytes = b"needle") -> dict[str, str]:
    """Return the mark of each file in a directory, by its name."""
    names = sorted(os.listdir(bytes(folder)))
    marks = agent.Finder(text).marks([agent.Shelf(bytes(folder) + b"/", names)])
    return dict(zip(map(os.fsdecode, names), marks.decode(), strict=True))


def fill(folder: Path, contents: list[bytes]) -> list[str]:
    for number, content in enumerate(contents):
        (folder / f"f{number:02}").write_bytes(content)
    return [f"f{number:02}" for number in range(len(contents))]


HOLDING = ("needle", "needleneedle", "a needle", "needle at", "one needle, two needle")


@given(st.lists(st.sampled_from(("", "x", "need", "le", *HOLDING)), max_size=70))
def test_of_files_that_are_looked_at_together_each_has_its_own_mark(contents):
    with tempfile.TemporaryDirectory() as folder:
        names = fill(Path(folder), [each.encode() for each in contents])
        expected = ["+" if each in HOLDING else "-" for each in contents]
        assert marks_in(Path(folder)) == dict(zip(names, expected, strict=True))


@pytest.mark.parametrize("odd", [b"\0needle", b"\xfe", b"\xff\xfen", b"x" * HEAD])
def test_one_that_is_otherwise_changes_no_mark_of_the_others(tmp_path, odd):
    fill(tmp_path, [b"needle", b"straw", odd, b"straw", b"needle"])
    mark = "+" if odd.startswith(b"\xff\xfe") else "-"
    assert "".join(marks_in(tmp_path).values()) == f"+-{mark}-+"


def test_what_cannot_be_opened_or_read_changes_no_mark_of_the_others(tmp_path):
    fill(tmp_path, [b"needle"] * 5)
    (tmp_path / "f01").unlink()
    (tmp_path / "f01").symlink_to("f00")
    (tmp_path / "f03").unlink()
    (tmp_path / "f03").mkdir()
    with none_left_open():
        assert "".join(marks_in(tmp_path).values()) == "+!+!+"


def test_few_descriptors_are_enough(tmp_path):
    fill(tmp_path, [b"needle", b"straw"] * 30)
    finder, before = agent.Finder(b"needle"), opened()
    names = sorted(os.listdir(bytes(tmp_path)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(before)
    with contextlib.ExitStack() as others:
        while (fd := os.open(os.devnull, os.O_RDONLY)) < highest:
            others.callback(os.close, fd)
        os.close(fd)
        # One for where to return to, and one for a file.
        resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 2, hard))
        try:
            marks = finder.marks([agent.Shelf(bytes(tmp_path) + b"/", names)])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert marks == b"+-" * 30
    assert opened().items() <= before.items()


def test_no_descriptor_between_those_of_files_is_closed():
    first, other, last = (os.open(os.devnull, os.O_RDONLY) for _ in range(3))
    agent._close_all([first, last])
    os.close(other)
    agent._close_all([])
    for fd in (first, last):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_the_process_works_on_where_it_did(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    fill(tmp_path / "folder", [b"needle"])
    assert marks_in(tmp_path / "folder") == {"f00": "+"}
    assert Path.cwd() == tmp_path


# -- searches ------------------------------------------------------------------


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A tree of many small batches."""
    monkeypatch.setattr(agent, "_FILES_AT_A_TIME", 3)
    monkeypatch.setattr(agent, "_other_processors", lambda: 2)
    for number in range(200):
        folder = tmp_path / f"d{number % 7}" / ("a" if number % 2 else "a-b")
        folder.mkdir(parents=True, exist_ok=True)
        text = "needle\n" if number % 5 == 0 else "straw\n"
        (folder / f"f{number}").write_text(text * (1 + number % 3))
    (tmp_path / "d0/a.txt").write_text("needle")
    (tmp_path / "gone").symlink_to("nowhere")
    return tmp_path


OPTIONS = [
    {},
    {"mode": "count"},
    {"mode": "files", "limit": 7, "offset": 2},
    {"limit": 1},
    {"glob": "**/f*0"},
    {"glob": "d?/a/*"},
    {"types": ["*.txt", "f1*"]},
    {"types": ["f[0-4]*"], "glob": "**/f*"},
    {"multiline": True},
    {"ignored": False},
    {"hidden": False},
    {"before": 1, "after": 1},
]


def without(pattern: str, folder: Path, **options) -> tuple[list, dict]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "needed_text", lambda _: b"")
        return found(pattern, folder, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_they_change_no_result(many, options):
    for pattern in ("needle", r"ne+dle$", "straw", "nothing"):
        expected, told = without(pattern, many, **options)
        seen, result = found(pattern, many, **options)
        assert seen == expected
        if not told["truncated"]:
            assert result == told


@pytest.mark.parametrize("lost", ["killed before", "killed between", "never there"])
def test_a_scout_that_is_lost_is_done_without(many, monkeypatch, lost):
    expected = without("needle", many)
    give = agent.Scout.give

    def killed(scout: agent.Scout, batch: agent.Batch) -> bool:
        if lost == "killed before":
            os.kill(scout._pid, 9)
            eventually(lambda: os.waitid(os.P_PID, scout._pid, os.WEXITED | os.WNOWAIT))
        given = give(scout, batch)
        os.kill(scout._pid, 9)
        return given

    def none() -> int:
        raise BlockingIOError

    if lost == "never there":
        monkeypatch.setattr(os, "fork", none)
    else:
        monkeypatch.setattr(agent.Scout, "give", killed)
    assert found("needle", many) == expected


def test_none_is_called_for_a_few_files(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "fork")
    for number in range(100):
        (tmp_path / str(number)).write_text("needle")
    assert len(found("needle", tmp_path)[0]) == 100


def test_a_search_that_has_enough_reads_no_more(many, monkeypatch):
    monkeypatch.setattr(agent, "_FILES_AT_A_TIME", 50)
    monkeypatch.delattr(os, "fork")
    seen, result = found("needle", many, limit=2)
    assert (len(seen), result["truncated"], result["files"]) == (2, True, 50)


def test_a_link_to_a_folder_is_searched(many, tmp_path):
    (tmp_path / "link").symlink_to("d0")
    seen, _ = found("needle", tmp_path / "link")
    assert len(seen) == len(found("needle", tmp_path / "d0")[0]) > 0


def test_no_scout_is_left_over(guest: Guest, tmp_path):
    for number in range(2000):
        (tmp_path / f"{number:04}").write_text("x\n")
    (tmp_path / "1000").write_text("needle " + "a" * 60 + "!")
    before = descendants(guest)
    for pattern, timeout in (("x", 30), ("needle a", 30), ("nothing", 30), ("x", 0.01)):
        asked = {**SEARCH, "pattern": pattern, "limit": 900, "timeout": timeout}
        guest.result(guest.open("search", path=bytes(tmp_path), **asked))
    eventually(lambda: descendants(guest) == before)


def descendants(guest: Guest) -> list[int]:
    """Return the processes below a guest."""
    found = [guest.pid]
    for pid in found:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        found += map(int, children.split())
    return found
