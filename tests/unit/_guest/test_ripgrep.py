"""Searches that ripgrep helps with find what they find without it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit._guest.client import SEARCH

from isobox._channel import unpack
from isobox._guest import agent

pytestmark = pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep")

CONTENTS = [
    b"caf\xe9 x\nplain\n",  # Latin-1
    "café x\r\nplain\r\n".encode(),
    "a²\n".encode(),
    "e\u0301z\n".encode(),
    "\u0131 \u0130 K \u212a \u017f\n".encode(),
    "a\u00a0b\u3000c\x1cd\x1fe\x85f\n".encode(),
    b"\xf0\x9f\x98 x\xff\xfe z\n",
    "٣ Ⅷ ½ ‿_\n".encode(),
    b"\xef\xbb\xbfneedle\n",
    "needle é\n".encode("utf-16"),
    b"a\rb\r\n\r\nx\r",
    b"a\tb (needle) [x] {2}\n",
    b"needle no newline",
    "éneedle needleé ²x\n".encode(),
    b"\0needle\n",
    b"",
    b"\n",
]


@pytest.fixture(scope="module")
def tree():
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(CONTENTS):
            Path(folder, f"f{number:02}").write_bytes(content)
        yield Path(folder)


def found(pattern: str, folder: Path, path: str, **fields) -> tuple[list, dict]:
    asked = {**SEARCH, "path": bytes(folder), "pattern": pattern, **fields}
    reader, writer = os.pipe()
    with open(reader, "rb") as output, pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "_WORTH_RIPGREP", 1)
        patch.setattr(agent, "needed_text", lambda _: b"")
        try:
            result = agent.search_tree(asked, writer, bytes(folder), path.encode())
        finally:
            os.close(writer)
        return list(unpack.matches(output.read(), str(folder), cut=False)), result


PIECES = st.sampled_from(
    [
        ".",
        r"\w",
        r"\W",
        r"\d",
        r"\D",
        r"\s",
        r"\S",
        r"\b",
        r"\B",
        "[^z]",
        r"[^\s]",
        r"[\w-]",
        r"[^\W]",
        "[a-k]",
        "[é-ż]",
        "[]x]",
        "x",
        "a",
        "i",
        "k",
        "é",
        "z",
        "_",
        " ",
        "needle",
        "^",
        "$",
        "|",
        "*",
        "+?",
        "{2}",
        r"\(",
        r"\t",
        "(?:x|caf.)",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    pattern=st.lists(PIECES, min_size=1, max_size=5).map("".join),
    ignore_case=st.booleans(),
    literal=st.booleans(),
)
@example(pattern="(x|caf.) x", ignore_case=False, literal=False)
@example(pattern="caf[^z] x", ignore_case=False, literal=False)
@example(pattern=r"e\wz", ignore_case=False, literal=False)
@example(pattern=r"a\b", ignore_case=False, literal=False)
@example(pattern=r"^a\w$", ignore_case=False, literal=False)
@example(pattern=r"\bz", ignore_case=False, literal=False)
@example(pattern=r"\bneedle\b", ignore_case=False, literal=False)
@example(pattern=r"\bx?\b ", ignore_case=False, literal=False)
@example(pattern=r"\x1d", ignore_case=False, literal=False)
@example(pattern=r"c\sd[\s]e", ignore_case=False, literal=False)
@example(pattern="i i k k s", ignore_case=True, literal=True)
@example(pattern="^needle$", ignore_case=False, literal=False)
@example(pattern="plain$", ignore_case=False, literal=False)
@example(pattern="a.b$", ignore_case=False, literal=False)
@example(pattern="^$", ignore_case=False, literal=False)
@example(pattern="(needle) [x] {2}", ignore_case=True, literal=True)
def test_it_changes_no_result(tree, pattern, ignore_case, literal):
    options = {"ignore_case": ignore_case, "literal": literal}
    try:
        expected = found(pattern, tree, "/nonexistent", **options)
    except agent.Refused:
        return  # it is no expression
    assert found(pattern, tree, os.environ["PATH"], **options) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        r"def \w+\(",
        r"^import (\w+)$",
        r"[A-Z][a-z]+Error",
        "needle|straw",
        r"\bword\b",
        r"TODO.*fix",
        "x{2,3}",
    ],
)
def test_ordinary_expressions_are_given_to_it(tree, monkeypatch, pattern):
    started = []
    spawn = agent._spawn_quietly

    def spawned(argv, folder, output):
        started.append(argv)
        return spawn(argv, folder, output)

    monkeypatch.setattr(agent, "_spawn_quietly", spawned)
    found(pattern, tree, os.environ["PATH"])
    assert len(started) == 1  # a second one asks whether it was refused
