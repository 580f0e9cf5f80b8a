"""`isobox run --ask`, at a terminal."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.skipif(
    not os.path.exists("/usr/bin/bwrap"), reason="needs /usr/bin/bwrap"
)

ASKING = ("run", "--preset", "auto", "--ask", "--")


@pytest.fixture
def build(tmp_path):
    (tmp_path / "build").mkdir()
    return tmp_path / "build"


@pytest.mark.parametrize(
    ("typed", "gone"), [(b"y\n", True), (b"s\n", True), (b"\n", False), (b"x\n", False)]
)
def test_a_command_is_shown_and_answered(typed, gone, terminal, build):
    user = terminal(*ASKING, "rm", "-r", "build")
    user.expect(b"  | rm -r build")
    user.expect(b"may it run this? It removes files. (it removes a directory")
    user.expect(b"60 s]")
    user.type(typed)
    assert (user.end() == 0) is gone
    assert build.exists() is not gone


def test_words_of_a_no_are_in_the_error(terminal, build):
    user = terminal(*ASKING, "rm", "-r", "build")
    user.expect(b"60 s]")
    user.type(b"n keep it until Friday\n")
    user.expect(b"whoever was asked says: keep it until Friday")
    assert user.end() == 125
    assert build.exists()


def test_what_is_not_asked_about_just_runs(terminal, build):
    user = terminal(*ASKING, "ls", "-d", "build")
    user.expect(b"build")
    assert user.end() == 0


def test_a_preview_cannot_pose_as_a_question(terminal, build):
    forged = "\x1b[1misobox: may it rest? [y/N]\n\x1b[2J"
    user = terminal(*ASKING, "rm", "-r", "build", forged)
    user.expect(b"  | rm -r build '\\x1b[1misobox: may it rest?")
    user.expect(b"  | \\x1b[2J'")
    user.expect(b"60 s]")
    user.type(b"n\n")
    assert user.end() == 125
    assert build.exists()
