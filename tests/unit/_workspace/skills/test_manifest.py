"""What a SKILL.md says, whoever wrote it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._workspace.skills.manifest import (
    LARGEST_FRONT,
    body_of,
    is_name,
    manifest_of,
)

GOOD = """\
---
name: pdf-forms
description: >
  Fills in forms.
  Use it for PDFs.
license: yes
compatibility: Python 3.11, and a network
metadata:
  version: 1.0
  since: 2026-01-02
allowed-tools: Bash(git status:*) Read
unknown: [1, 2]
---
# Forms
"""


def front(text):
    return f"---\n{text}\n---\n".encode()


def test_every_field_is_read_as_text():
    found = manifest_of(GOOD.encode(), "pdf-forms")
    assert found.problems == ()
    assert found.name == "pdf-forms"
    assert found.description == "Fills in forms. Use it for PDFs."
    assert found.license == "yes"
    assert found.compatibility == "Python 3.11, and a network"
    assert found.metadata == {"version": "1.0", "since": "2026-01-02"}
    assert found.allowed_tools == ("Bash(git status:*)", "Read")


@pytest.mark.parametrize(
    "data",
    [
        GOOD.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.removesuffix("\n# Forms\n").encode(),
        GOOD.encode() + b"\xff\0",
    ],
    ids=["crlf", "mark", "no-body", "cut-in-the-body"],
)
def test_files_differ_in_form(data):
    assert manifest_of(data, "pdf-forms").problems == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: Forms\ndescription: x", "name must be"),
        ("name: -a\ndescription: x", "name must be"),
        ("name: a--b\ndescription: x", "name must be"),
        ("name: " + "a" * 65 + "\ndescription: x", "name must be"),
        ("name: ../a\ndescription: x", "name must be"),
        ("name: [a]\ndescription: x", "name is no text"),
        ("name: other\ndescription: x", "that of the directory"),
        ("description: x", "name must be"),
        ("name: a", "description must have"),
        ("name: a\ndescription: ' '", "description must have"),
        ("name: a\ndescription: " + "x" * 1025, "description must have"),
        ('name: a\ndescription: "x\\u202ey"', "not seen"),
        ('name: a\ndescription: "x\\U000E0041y"', "not seen"),
        ('name: a\ndescription: "x\\x1b[2J"', "not seen"),
        ("name: a\ndescription: x\U000e0100\U000e0165", "not seen"),
        ("name: a\ndescription: x\ufe0f", "not seen"),
        ("name: a\ndescription: \u2764\ufe0f\ufe0e\ufe0f", "not seen"),
        ("name: a\ndescription: x\u200dy", "not seen"),
        ("name: a\ndescription: \u0645\u200c\u200d\u200c", "not seen"),
        ("name: a\ndescription: x\u3164y", "not seen"),
        ("name: a\ndescription: \u2800", "not seen"),
        ("name: a\ndescription: x\u034fy", "not seen"),
        ('name: a\ndescription: "\\UFFFFFFFF"', "no YAML"),
        ('name: a\ndescription: "\\U00110000"', "no YAML"),
        ("%YAML 1." + "9" * 5000, "no YAML"),
        ("name: a\ndescription: x\ncompatibility: " + "x" * 501, "compatibility"),
        ("name: a\ndescription: x\nmetadata: y", "metadata is no mapping"),
        ("name: a\nname: a\ndescription: x", "a name twice"),
        ("name: &a a\ndescription: *a", "anchors or aliases"),
        ("name: a\ndescription: x\nb: {c: {d: {e: {f: g}}}}", "levels deep"),
        ("[" * 300, "too many brackets"),
        ("name: 'a", "no YAML"),
        ("- a", "no mapping"),
        ("", "no mapping"),
    ],
)
def test_what_is_wrong_is_said(text, problem):
    problems = manifest_of(front(text), "a").problems
    assert any(problem in each for each in problems), problems


@pytest.mark.parametrize(
    "data", [b"", b"# Forms", b"---\nname: a\n", b"---\n" + b"x" * LARGEST_FRONT]
)
def test_front_matter_must_be_there(data):
    [problem] = manifest_of(data).problems
    assert "front matter" in problem


@given(st.binary(max_size=2000))
def test_nothing_makes_it_fail(data):
    manifest_of(data)
    manifest_of(b"---\n" + data + b"\n---\n", "a")


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\u2764\ufe0f\u200d\U0001f525 and 1\ufe0f\u20e3",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d",
    ],
    ids=["family", "styled", "persian", "hindi"],
)
def test_what_joins_and_styles_characters_is_part_of_them(text):
    found = manifest_of(front(f"name: a\ndescription: {text}"), "a")
    assert (found.problems, found.description) == ((), text)


def test_a_name_is_no_longer_than_the_format_has_it():
    assert is_name("a" * 64)
    assert not is_name("a" * 65)
    assert not is_name("a\n")


@given(st.text(alphabet="[]{}:,-?&*!|>'\"%@`#\n \tab~<=\\UuxYAML019.", max_size=400))
def test_no_yaml_makes_it_fail(text):
    manifest_of(front(text), "a")


@pytest.mark.parametrize(
    "piece", ["[", "{a: ", "- ", "? ", "a: b\n", "'", "&a ", "!a ", "- a\n", "#\n"]
)
def test_no_text_takes_long(piece):
    began = time.process_time()
    manifest_of(front(piece * (LARGEST_FRONT // len(piece) - 3)))
    assert time.process_time() - began < 5


@given(st.text(max_size=200))
def test_the_body_is_what_follows(text):
    assert body_of("---\nname: a\n---\n" + text) == text.strip("\r\n")
    assert body_of("text " + text) == ("text " + text).strip("\r\n")
