"""Patterns for names."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import marshal
import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit._guest.client import SCAN, Guest

from isobox._guest import agent, bundle

ALPHABET = "ab/-"
NAMES = [
    "".join(each)
    for length in range(5)
    for each in itertools.product(ALPHABET, repeat=length)
]
PIECES = st.sampled_from(
    [
        "a",
        "b",
        "/",
        "-",
        "?",
        "*",
        "**",
        "**/",
        "[ab]",
        "[!a]",
        "[a-b]",
        "[]a]",
        "[!]a]",
        "[!-a]",
        "[-a]",
        "\\*",
        "\\a",
        "{a,b}",
        "{a?,b}",
        "{a,{b,-}}",
    ]
)


def alternatives(pattern: str) -> list[str]:
    """Write braces out, the first pair of them first."""
    depth = start = 0
    commas: list[int] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "[":
            end = pattern.find("]", at + (3 if pattern[at + 1 : at + 2] == "!" else 2))
            at = max(at, end)
        elif char == "{":
            depth += 1
            if depth == 1:
                start, commas = at, [at]
        elif char == "," and depth == 1:
            commas.append(at)
        elif char == "}":
            depth -= 1
            if depth == 0:
                ends = [*commas[1:], at]
                parts = [pattern[a + 1 : b] for a, b in zip(commas, ends, strict=True)]
                return [
                    whole
                    for part in parts
                    for whole in alternatives(
                        pattern[:start] + part + pattern[at + 1 :]
                    )
                ]
        at += 1
    return [pattern]


def naive(pattern: str, name: str) -> bool:
    """Match by trying every way; for patterns without braces."""
    if not pattern:
        return not name
    if pattern.startswith("**/"):
        rest = pattern[3:]
        ways = [0, *(at + 1 for at, char in enumerate(name) if char == "/")]
        return any(naive(rest, name[at:]) for at in ways)
    if pattern.startswith("**"):
        return any(naive(pattern[2:], name[at:]) for at in range(len(name) + 1))
    if pattern[0] == "*":
        end = name.find("/")
        reach = len(name) if end < 0 else end
        return any(naive(pattern[1:], name[at:]) for at in range(reach + 1))
    if not name:
        return False
    if pattern[0] == "?":
        return name[0] != "/" and naive(pattern[1:], name[1:])
    if pattern[0] == "[":
        return naive_bracket(pattern, name)
    if pattern[0] == "\\":
        return name[0] == pattern[1] and naive(pattern[2:], name[1:])
    return name[0] == pattern[0] and naive(pattern[1:], name[1:])


def naive_bracket(pattern: str, name: str) -> bool:
    negated = pattern[1] == "!"
    begin = 2 if negated else 1
    end = pattern.index("]", begin + 1)
    inside = pattern[begin:end]
    allowed = set(inside)
    if len(inside) == 3 and inside[1] == "-":
        allowed = set(map(chr, range(ord(inside[0]), ord(inside[2]) + 1)))
    fits = name[0] != "/" and (name[0] in allowed) != negated
    return fits and naive(pattern[end + 1 :], name[1:])


def matches(pattern: str, name: str) -> bool:
    return bool(re.match(agent.translate_glob(pattern), name))


@settings(deadline=None)
@given(st.lists(PIECES, max_size=5).map("".join))
@example("**/*")
@example("a/**/b")
@example("{a,b}/**")
@example("[!]a]")
@example("[!-a]")
def test_it_agrees_with_trying_every_way(pattern):
    expression = re.compile(agent.translate_glob(pattern))
    plain = alternatives(pattern)
    ways = agent.Ways(pattern)
    for name in NAMES:
        expected = any(naive(each, name) for each in plain)
        assert bool(expression.match(name)) == expected, (pattern, name)
        assert ways.match(name) == expected, (pattern, name)


@given(st.text(alphabet="ab/*?[]{},!^\\-.", max_size=30))
@example("[z-a]")
@example("[a--]")
@example("[a&&b]")
@example("[a||b~~c]")
@example("{{{{")
@example("[")
@example("\\")
@example("}{")
def test_any_text_is_a_pattern_or_refused_as_one(pattern):
    with contextlib.suppress(agent.Refused):
        matcher = agent._matcher(pattern)
        assert matcher is not None
        matcher("a/b")


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("a.b", "axb", False),
        ("[!]]", "]", False),
        ("[!]]", "a", True),
        ("[!a]", "/", False),
        ("[[]", "[", True),
        ("[a&&b]", "&", True),
        ("[+--]", ",", True),
        ("[+--]", ".", False),
        ("[a-]", "-", True),
        ("[a-]", "b", False),
        ("[a^]", "^", True),
        ("[\\]", "\\", True),
        ("a\nb", "a\nb", True),
        ("*", "a\nb", True),
        ("a", "a\n", False),
        ("[", "[", True),
        ("{a,b", "{a,b", True),
        ("a}", "a}", True),
        ("\\*", "*", True),
        ("\\*", "a", False),
        ("{a,b}.{c,d}", "b.c", True),
        ("*.{py,p[xy]d}", "m.pxd", True),
    ],
)
def test_a_pattern(pattern, name, expected):
    assert matches(pattern, name) is expected


def test_deep_braces_are_refused_not_a_crash():
    deep = "{" * 5000 + "}" * 5000
    with contextlib.suppress(agent.Refused):
        agent._matcher(deep)


def test_no_pattern_matches_all():
    assert agent._matcher(None) is None


DEEP = "/".join("a" * 60)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("**/a/" * 30 + "b", DEEP, False),
        ("**/a/" * 30 + "b", DEEP + "/b", True),
        ("**/a/" * 61 + "b", DEEP + "/b", False),
        ("a**/" * 30 + "b", DEEP, False),
        ("a**/" * 30 + "b", DEEP + "/b", True),
        ("**a*a" * 20 + "b", "a" * 200, False),
        ("**a*a" * 20 + "b", "a" * 200 + "b", True),
        ("{a,b,}" * 60 + "c", "a" * 60, False),
        ("{a,b,}" * 60 + "c", "a" * 60 + "c", True),
        ("{a,a,{a,a}}" * 60, "a" * 59 + "b", False),
        ("*{a,b}" * 40 + "*c", "a" * 200, False),
        ("*{a,b}" * 40 + "*c", "a" * 200 + "c", True),
        ("{**/,a}" * 40 + "b", DEEP + "/c", False),
    ],
)
def test_what_would_take_years_has_its_answer(pattern, name, expected):
    match = agent._matcher(pattern)
    assert match is not None
    assert bool(match(name)) is expected
    assert bool(match(name)) is expected
    assert agent.Ways(pattern).match(name) is expected


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 12 + "*b", "*{a,b}" * 12 + "*c", "**/" * 12 + "b", "**a" * 12 + "b"],
)
def test_a_pattern_without_end_is_bounded(guest, tmp_path, pattern):
    """What a model may ask for and a workload may name must not stop the guest."""
    (tmp_path / ("a" * 100)).touch()
    (tmp_path / "/".join("a" * 60)).mkdir(parents=True)
    asked = {**SCAN, "pattern": pattern, "depth": None}
    began = time.monotonic()
    answer = guest.open("scan", path=bytes(tmp_path), **asked)
    guest.wait(answer, patience=15.0)
    assert answer.error is None or answer.error["code"] == "invalid"
    assert answer.bytes() == b""
    assert time.monotonic() - began < 15.0
    assert guest.ping() < 5.0


@pytest.fixture
def hurried(monkeypatch):
    """A guest that has less time for a walk."""
    limit = b"_LONGEST_SCAN = 0.1, 60.0"
    text = bundle.source("agent")
    assert limit in text
    code = compile(text.replace(limit, b"_LONGEST_SCAN = 0.1, 0.5"), "guest", "exec")
    whole = importlib.util.MAGIC_NUMBER + bundle.STAMP + marshal.dumps(code)
    monkeypatch.setattr(bundle, "program", lambda _: whole)
    with Guest() as guest:
        yield guest


def test_a_walk_that_takes_too_long_is_ended_and_says_what_to_do(hurried, tmp_path):
    folder = tmp_path.joinpath(*["a" * 250] * 8)
    folder.mkdir(parents=True)
    for number in range(100):
        (folder / f"{number}").touch()
    pattern = "{a,b,/,}" * 4000 + "c"
    asked = {**SCAN, "pattern": pattern, "depth": None, "files_only": True}
    answer = hurried.open("scan", path=bytes(tmp_path), **asked)
    hurried.wait(answer)
    assert answer.error is not None
    assert answer.error["code"] == "invalid"
    assert answer.error["message"] == (
        "looking for names took longer than 0.5 s; look below a directory further "
        "down, or, if files such as .gitignore hold very many patterns, include "
        "ignored files"
    )
