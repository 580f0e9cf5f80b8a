"""The person who is asked at the terminal."""

from __future__ import annotations

import os

import anyio
import pytest
from rich.cells import cell_len

from isobox._approval.question import NOBODY, Answer, Question
from isobox.cli import person
from isobox.cli.person import Person
from isobox.cli.status import printable

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def terminal():
    user, ours = os.openpty()
    yield user, ours
    os.close(user)
    os.close(ours)


def question(**facts):
    known = {"host": "a.test", "port": 443, **facts}
    return Question("connect", known, "otherwise", "no rule is about it", 60.0)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (b"y\n", True),
        (b"YES\n", True),
        (b" y \n", True),
        (b"n\n", False),
        (b"\n", False),
        (b"yesterday\n", False),
        (b"y n\n", False),
        (b"yes please\n", False),
        (b"s\n", Answer(True, "session")),
        (b"Session\n", Answer(True, "session")),
        (b"p\n", Answer(True, "project")),
        (b"project x\n", False),
        (b"no\n", False),
        (b"n use \xff main\n", Answer(False, message="use \ufffd main")),
        (b"no \xc2\x9b2J\n", Answer(False, message="\\x9b2J")),
        (b"\xff\n", False),
        (b"\x04", False),
    ],
)
async def test_answer(typed, answer, terminal):
    user, ours = terminal

    async def reply():
        await anyio.wait_readable(user)
        assert b"may it?" in os.read(user, 1000)
        os.write(user, typed)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(reply)
            assert await person._answered(ours, "may it?") == answer


async def test_what_was_typed_before_is_no_answer(terminal):
    user, ours = terminal
    os.write(user, b"y\n")
    await anyio.wait_readable(ours)
    with anyio.move_on_after(0.2) as waiting:
        await person._answered(ours, "may it?")
    assert waiting.cancelled_caught


async def test_a_question_without_an_answer_leaves_a_new_line(terminal):
    user, ours = terminal
    with anyio.move_on_after(0.05):
        await person._answered(ours, "may it?")
    seen = b""
    while not seen.endswith(b"\x1b[0m \r\n"):
        await anyio.wait_readable(user)
        seen += os.read(user, 1000)


def test_question():
    assert person._text(question(), 12.3) == (
        "isobox: may it connect to a.test:443? "
        "(no rule is about it; rule 'otherwise') "
        "[y/N, s session, p project, n WORDS, 12 s]"
    )


def test_question_about_a_request():
    text = person._what(
        question(method="GET", target="/a b\n\x1b[2K\u202e" + "c" * 999)
    )
    assert text.startswith("send GET /a b\\n\\x1b[2K\\u202eccc")
    assert text.endswith("ccc[... 609 characters more] to a.test:443")
    assert len(text) < 500


@pytest.mark.parametrize(
    ("op", "facts", "words"),
    [
        ("spawn", {"script": "x"}, "run this"),
        ("script", {"script": "x"}, "run this"),
        ("write", {"path": "/w/a\x1b"}, "write /w/a\\x1b"),
        ("patch", {"paths": ["/a", "/b"]}, "patch ['/a', '/b']"),
        ("remove", {"path": "/w/" + "a" * 999}, None),
        ("checkpoint", {"stage": "plan"}, "go on at the stage 'plan'"),
        ("apply", {}, "bring these changes to the directory"),
        ("listen", {"port": 80}, "reach the host from port 80 inside"),
        ("restore", {"snapshot": "s"}, "restore"),
        ("dance", {}, "dance"),
    ],
)
def test_what_else_is_asked(op, facts, words):
    asked = Question(op, facts, "rule", "why", 60.0, risk="removes files")
    text = person._text(asked, 60)
    assert text.startswith("isobox: may it ")
    assert "? It removes files. (why; rule 'rule')" in text
    assert text.isprintable()
    assert len(text) < 700
    assert words is None or person._what(asked) == words


def test_a_preview_never_looks_like_a_question():
    forged = "isobox: may it rest? [y/N]\n" + "x" * 35 + "isobox: may it\n"
    wide = "\u754c" * 30 + "\t\te\u0301"
    shown = person._preview(forged + wide + "\n." * 50, 40)
    lines = shown.splitlines()
    assert len(lines) == 41
    assert all(line.startswith("  ") and cell_len(line) < 40 for line in lines)
    assert lines[1:4] == [
        "  | " + "x" * 34,
        "  |> xisobox: may it",
        "  | " + "\u754c" * 17,
    ]
    assert lines[-4:] == ["  [... 15 rows left out ...]", *["  | ."] * 3]
    assert person._preview("", 40) == ""
    assert person._preview("\x1b[1mx", 40) == "  | \\x1b[1mx\n"


@pytest.mark.parametrize("columns", [20, 40, 80, 81])
@pytest.mark.parametrize("blanks", [1, 14, 70, 75, 200, 3000])
def test_blanks_hide_nothing(columns, blanks):
    script = "git push origin main" + " " * blanks + "; echo EVIL > evil"
    rows = person._preview(script, columns).splitlines()
    assert all(len(row) < columns for row in rows)
    assert "EVIL" in "".join(row[5:] for row in rows)
    counted = f"  [{blanks} blanks]" in rows
    assert counted or script == _joined(rows)
    assert [row[:4] for row in rows].count("  | ") == 1
    assert person._preview("a" + "\t" * 50 + "EVIL", 80) == (
        "  | a\n  [199 blanks]\n  |> EVIL\n"
    )


def test_blank_lines_hide_nothing():
    assert person._preview("a" + "\n \n" * 500 + "EVIL\n\nx", 80) == (
        "  | a\n  [999 blank lines]\n  | EVIL\n  | \n  | x\n"
    )


@pytest.mark.parametrize("text", ["\u754c", "\u0301", "\u754c\u0301a", "x", "\u200b"])
def test_every_character_of_a_long_line_is_in_a_row(text):
    rows = person._preview(text * 300, 80).splitlines()
    assert _joined(rows) == printable(text * 300)
    assert all(cell_len(row) < 80 and len(row) < 80 for row in rows)


def test_what_is_left_out_is_counted_and_a_cut_before_stays_told():
    text = "\n".join(map(str, range(100))) + "\n[... 3616 characters more]"
    rows = person._preview(text, 80).splitlines()
    assert rows[:37] == [f"  | {n}" for n in range(37)]
    assert rows[37:] == [
        "  [... 61 rows left out ...]",
        "  | 98",
        "  | 99",
        "  | [... 3616 characters more]",
    ]
    long = person._preview("x" * 74 * 100, 80).splitlines()
    assert long[37] == "  [... 60 rows left out ...]"
    assert len(person._preview("x\n" * 39 + "x", 80).splitlines()) == 40


def test_nothing_that_is_shown_passes_for_what_is_said_of_it():
    forged = "  [9 blanks]\n[... 9 rows left out ...]\n> x\n|> x"
    rows = person._preview(forged, 80).splitlines()
    assert [row[:4] for row in rows] == ["  | "] * 4


def _joined(rows):
    """Return the line that is shown in rows."""
    assert rows[0].startswith("  | ")
    assert all(row.startswith("  |> ") for row in rows[1:])
    return rows[0][4:] + "".join(row[5:] for row in rows[1:])


async def test_a_preview_is_above_the_question(terminal):
    user, ours = terminal
    asked = Question("spawn", {}, "r", "why", 60.0, preview="git push\nrm x")

    async def reply():
        seen = b""
        while b"s]" not in seen:
            await anyio.wait_readable(user)
            seen += os.read(user, 1000)
        assert (
            b"\r\n  | git push\r\n  | rm x\r\n\x1b[1misobox: may it run this?" in seen
        )
        os.write(user, b"s\n")

    shown = person._preview(asked.preview, person._columns(ours))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(reply)
            said = await person._answered(ours, person._text(asked, 60), shown)
    assert said == Answer(True, "session")


async def test_nobody_is_a_no(monkeypatch, capsys):
    def missing(*_):
        raise OSError

    monkeypatch.setattr(os, "open", missing)
    assert await Person().approve(question()) is NOBODY
    assert capsys.readouterr().err == (
        "isobox: no terminal to ask whether it may connect to a.test:443\n"
    )
