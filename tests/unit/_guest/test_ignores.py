"""What ignore files leave out, as git has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from isobox._guest import agent

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

_PIECES = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "x.c",
        "*",
        "**",
        "***",
        "?",
        "/",
        "/",
        "[ab]",
        "[!a]",
        "[a-c]",
        "[^b]",
        "\\",
        " ",
        ".",
        "!",
        "#",
        "[]a]",
        "[",
        "]",
        "-",
        "[[:alpha:]]",
        "[[:nope:]]",
        "\\*",
        "\\ ",
        "[\\]]",
        "[a\\-c]",
        "[z-a]",
        "{a,b}",
        "[a-",
        "[:]",
    ]
)
_LINES = st.lists(_PIECES, min_size=1, max_size=6).map("".join)
_FILES = st.lists(_LINES, min_size=1, max_size=4).map("\n".join)
_NAMES = ["a", "b", "ab", "x.c", "c", "aa", "b ", "!", "#", "*", "{a,b}", "-", "[", "]"]
_PATHS = [
    *_NAMES,
    *(f"{folder}/{name}" for folder in ("d", "a", "ab") for name in _NAMES),
    *(f"d/a/{name}" for name in _NAMES),
    *(f"b/b/a/{name}" for name in ("a", "b", "ab", "x.c")),
]


@pytest.fixture(scope="module")
def repository():
    with tempfile.TemporaryDirectory() as folder:
        for path in _PATHS:
            Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
        for path in _PATHS:
            if not Path(folder, path).exists():
                Path(folder, path).touch()
        env = {"PATH": os.environ["PATH"], "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", "init", "-q", folder], check=True, env=env)
        yield folder


def _files(folder: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(above, name), folder)
        for above, folders, names in os.walk(folder)
        if ".git" not in above.split(os.sep)
        for name in names
        if name != ".gitignore"
    ]


def _by_git(folder: str) -> set[str]:
    done = subprocess.run(
        ["git", "-C", folder, "check-ignore", "--no-index", "-z", "--stdin"],
        input="\0".join(_files(folder)).encode(),
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1"},
    )
    assert done.returncode in (0, 1), done.stderr
    return {name for name in done.stdout.decode().split("\0") if name}


def _by_us(folder: str) -> set[str]:
    top = os.path.realpath(folder).encode()
    walk = agent.Walk(top, ignored=False, root=top)
    shown = {os.path.relpath(item.path, top).decode() for item in walk.entries()}
    return {name for name in _files(folder) if name not in shown}


@needs_git
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rules=_FILES, nested=_FILES)
@example("*\n!d/\n!d/a", "")
@example("foo**/b\na**/b\n**/a/**", "!a")
@example("/a\nd/*\n!d/b", "/a\n!/a/a")
@example("\\!\n\\#\nb\\ ", "")
@example("a/\n!a/b", "*.c\n!x.c")
def test_git_agrees(repository, rules, nested):
    Path(repository, ".gitignore").write_text(rules)
    Path(repository, "d/.gitignore").write_text(nested)
    assert _by_us(repository) == _by_git(repository)


_DEEP = b"/".join([b"a"] * 60)


@pytest.mark.parametrize(
    ("rule", "path", "left_out"),
    [
        (b"**/a/" * 30 + b"b", _DEEP, None),
        (b"**/a/" * 30 + b"b", _DEEP + b"/b", True),
        (b"**/a*/" * 30 + b"b", _DEEP + b"/b", True),
        (b"**/*a*a*/" * 30 + b"b", _DEEP + b"/c", None),
        (b"a**/a/**/" + b"**/a/" * 30 + b"b", _DEEP + b"/c", None),
        (b"**/**/" * 30 + b"b", _DEEP + b"/b", True),
    ],
)
def test_a_rule_that_would_take_years_has_its_answer(rule, path, left_out):
    rules = agent.Rules(rule)
    assert rules.verdict(path, path.rpartition(b"/")[2], folder=False) is left_out


def test_very_many_names_are_all_heeded():
    lines = [b"name%d" % each for each in range(100_000)]
    rules = agent.Rules(b"\n".join([*lines, b"!name7", b"d/e", b"f/"]))
    told = [
        rules.verdict(path, path.rpartition(b"/")[2], folder=False)
        for path in (b"name0", b"d/name99999", b"name7", b"name", b"d/e", b"e", b"f")
    ]
    assert told == [True, True, False, None, True, None, None]
    assert rules.verdict(b"g/f", b"f", folder=True) is True


def test_patterns_are_heeded_up_to_a_number():
    most = agent._MOST_PATTERNS
    lines = [b"x%d*" % each for each in range(most)]
    rules = agent.Rules(b"\n".join([*lines, b"*.late", b"plain"]))
    names = (b"x%d.c" % (most - 1), b"a.late", b"plain")
    assert [rules.verdict(n, n, folder=False) for n in names] == [True, None, True]


def test_the_last_rule_wins_with_and_without_wildcards():
    rules = agent.Rules(b"*.c\n!a.c\n[ab].d\n!*.d\nb.d\nd/\n!d*")
    names = (b"a.c", b"b.c", b"a.d", b"b.d", b"d")
    told = [rules.verdict(name, name, folder=True) for name in names]
    assert told == [False, True, False, True, False]
