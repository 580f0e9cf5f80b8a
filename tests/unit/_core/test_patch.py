"""Patches, read and applied: any two texts, any damage."""

from __future__ import annotations

import difflib
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isobox._core import patch
from isobox._core.patch import FileChange, Hunk, parse
from isobox._guest import agent
from isobox.errors import InvalidArgumentError

LINES = st.sampled_from(
    [
        "",
        " ",
        "a",
        "b",
        "c",
        "--- a",
        "+++ b",
        "-- ",
        "@@",
        "\\",
        "*** x",
        "\tq",
        "é",
        "d\x0ce",
    ]
)
TEXTS = st.lists(LINES, max_size=12)


def applied(text: str, change: FileChange) -> str:
    fields = [
        {
            "body": "\n".join(hunk.body),
            "line": hunk.line,
            "anchors": list(hunk.anchors),
            "at_end": hunk.at_end,
            "newline": hunk.newline,
        }
        for hunk in change.hunks
    ]
    return agent.apply_hunks(text, fields)


def whole(lines: list[str], ended: bool) -> str:
    return "\n".join(lines) + ("\n" if ended and lines else "")


def unified(old: str, new: str, context: int) -> str:
    """A diff as git writes it, of texts whose last line may have no end."""
    lines = [text.split("\n") for text in (old, new)]
    kept = [
        [f"{line}\n" for line in each[:-1]] + ([each[-1]] if each[-1] else [])
        for each in lines
    ]
    marked = difflib.unified_diff(kept[0], kept[1], "a/file", "b/file", n=context)
    bare = "\n\\ No newline at end of file\n"
    return "".join(line if line.endswith("\n") else f"{line}{bare}" for line in marked)


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS, st.booleans(), st.booleans(), st.integers(0, 3))
def test_a_diff_of_two_texts_makes_one_of_the_other(
    old, new, old_ended, new_ended, context
):
    before, after = whole(old, old_ended), whole(new, new_ended)
    text = unified(before, after, context)
    if not text:
        return
    (change,) = parse(text)
    assert (change.path, change.kind, change.target) == ("file", "update", None)
    assert applied(before, change) == after


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS, st.integers(0, 3))
def test_codex_patches_say_the_same(old, new, context):
    marked = list(difflib.unified_diff(old, new, n=len(old) + context, lineterm=""))
    body = [line for line in marked[3:] if not line.startswith("@@ ")]
    if not body or any(line.startswith(("@@", "***")) for line in body):
        return
    text = "\n".join(
        ["*** Begin Patch", "*** Update File: f", "@@", *body, "*** End Patch"]
    )
    (change,) = parse(text)
    assert applied(whole(old, True), change) == whole(new, True)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "*** Begin Patch",
                "*** End Patch",
                "*** Add File: a",
                "*** Update File: b",
                "*** Delete File: c",
                "*** Move to: d",
                "@@",
                "@@ x",
                "+y",
                "-z",
                " w",
                "",
                "?",
                "*** End of File",
                "--- a/x",
                "+++ b/x",
                "--- /dev/null",
                "+++ /dev/null",
                "diff --git a/q b/q",
                "new file mode 100755",
                "rename from q",
                "rename to r",
                "@@ -1,2 +1,2 @@",
                "@@ -0,0 +1 @@",
                "\\ No newline at end of file",
                '--- "a/\\',
            ]
        ),
        max_size=14,
    )
)
def test_any_text_is_a_patch_or_refused(lines):
    try:
        changes = parse("\n".join(lines))
    except InvalidArgumentError:
        return
    for change in changes:
        assert change.path
        for hunk in change.hunks:
            assert hunk.body
            assert {line[0] for line in hunk.body} <= set(" +-")


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(TEXTS, TEXTS, st.booleans(), st.booleans())
def test_what_git_writes_is_applied(tmp_path, old, new, old_ended, new_ended):
    before, after = whole(old, old_ended), whole(new, new_ended)
    (tmp_path / "ä").write_text(before, newline="")
    (tmp_path / "b").write_text(after, newline="")
    done = subprocess.run(
        ["git", "diff", "--no-index", "--no-color", "--text", "ä", "b"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    text = done.stdout.decode()
    if "@@" not in text:
        return
    (change,) = parse(text)
    assert (change.path, change.kind) == ("b", "update")
    assert applied(before, change) == after


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("--- a/x\n+++ b/x\n", ("x", "update", None, None)),
        ("--- x\t2020-01-01\n+++ x\t2020-01-02\n", ("x", "update", None, None)),
        ("--- x.orig\n+++ x\n", ("x", "update", None, None)),
        ("--- a/x\n+++ /dev/null\n", ("x", "delete", None, None)),
        ("--- /dev/null\n+++ b/x\n", ("x", "add", None, None)),
        (
            '--- "a/q\\"\\303\\251"\n+++ "b/q\\"\\303\\251"\n',
            ('q"é', "update", None, None),
        ),
        (
            "diff --git a/x b/y z\nrename from x\nrename to y z\n--- a/x\n+++ b/y z\n",
            ("x", "update", "y z", None),
        ),
        (
            "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n--- a/x\n+++ b/x\n",
            ("x", "update", None, 0o755),
        ),
    ],
)
def test_headers_name_files(header, expected):
    (change,) = parse(f"{header}@@ -1 +1 @@\n-a\n+b\n")
    assert (change.path, change.kind, change.target, change.mode) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("diff --git a/x b/x\ndeleted file mode 100644\n", ("x", "delete")),
        ("diff --git a/a b b/a b\nnew file mode 100644\n", ("a b", "add")),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", ("x", "update")),
    ],
)
def test_a_change_may_have_no_hunk(header, expected):
    (change,) = parse(header)
    assert (change.path, change.kind) == expected
    assert change.hunks == ()


@pytest.mark.parametrize(("old", "new"), [(1, 1), (9, 9), (0, 0), (2, 5)])
def test_counts_that_are_wrong_do_no_harm(old, new):
    (change, other) = parse(
        f"--- a/x\n+++ b/x\n@@ -1,{old} +1,{new} @@\n a\n-b\n+c\n"
        "--- a/y\n+++ b/y\n@@ -1 +1 @@\n-d\n+e\n"
    )
    assert applied("a\nb\n", change) == "a\nc\n"
    assert other.path == "y"


def test_a_patch_from_a_form_is_read():
    (change,) = parse("--- a/x\r\n+++ b/x\r\n@@ -1 +1 @@\r\n-a\r\n+b\r\n")
    assert change.hunks == (Hunk(("-a", "+b"), 1),)


def test_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(patch, "_LONGEST", 10)
    with pytest.raises(InvalidArgumentError, match="8 MiB"):
        parse("x" * 11)
    monkeypatch.setattr(patch, "_LONGEST", 10_000)
    monkeypatch.setattr(patch, "_MOST_FILES", 2)
    with pytest.raises(InvalidArgumentError, match="over 2 files"):
        parse("*** Begin Patch\n" + "*** Delete File: x\n" * 3 + "*** End Patch")


def test_paths_are_resolved():
    change = FileChange("a", "update", (), "b").resolved(lambda path: f"/root/{path}")
    assert (change.path, change.target) == ("/root/a", "/root/b")
