"""What a person is told could come of an operation."""

from __future__ import annotations

import pytest
from tests.meta.test_ops import example

from isobox import abc
from isobox._approval.risk import risk
from isobox._core.patch import FileChange

ROOT = "/workspace"


def of(script):
    return risk(abc.Spawn(script=script, cwd=ROOT), ROOT)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("ls -l", "runs a command"),
        ("rm -rf build", "removes files"),
        ("cd x && find . -name '*.o' -delete", "removes files"),
        ("xargs rm < list", "removes files"),
        ("git push origin main", "publishes"),
        ("npm publish && git push", "publishes"),
        ("git clean -fd; cargo publish", "removes files; publishes"),
        ("sudo ls", "runs with other rights"),
        ("sudo rm x", "runs with other rights; removes files"),
        ("git reset --hard", "throws changes away"),
        ("$X y", "cannot be understood"),
        ("gh pr merge 3", "acts in the user's name elsewhere"),
        ("echo x > .git/hooks/pre-commit",
         "changes what programs on the host run or obey"),
        ("kill -9 1", "ends processes"),
    ],
)  # fmt: skip
def test_commands(script, words):
    assert of(script) == words
    turn = abc.Script(process=None, session_id="a", script=script)
    assert risk(turn, ROOT) == words


def test_files():
    write = abc.Write(path="/workspace/a", body=b"")
    assert risk(write, ROOT) == "changes files"
    for path in (".git/config", "sub/.vscode/tasks.json", ".github/workflows/x.yml"):
        hooked = abc.Write(path=f"/workspace/{path}", body=b"")
        assert risk(hooked, ROOT) == (
            "changes what programs on the host run or obey; changes files"
        )
    assert risk(abc.Remove(path="/workspace/a"), ROOT) == "removes files"
    for change in (
        FileChange(path="/workspace/a", kind="delete"),
        FileChange(path="/workspace/a", kind="update", target="/workspace/b"),
    ):
        assert risk(abc.Patch(changes=(change,)), ROOT) == "removes files"


@pytest.mark.parametrize(
    "op", [example(kind) for kind in abc.OPS], ids=lambda op: op.name
)
def test_every_operation_has_one_in_one_line(op):
    words = risk(op, ROOT)
    assert words
    assert words.isprintable()
    assert len(words) < 200


def test_what_is_hostile_is_said_in_words_of_our_own():
    assert of("\x1b[2J'\x00;(((" + "a" * 9999).isprintable()
