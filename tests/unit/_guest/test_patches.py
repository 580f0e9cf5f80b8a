"""Patches are applied whole, or what was done of them is undone."""

from __future__ import annotations

import os

import pytest
from tests.unit._guest.client import outcome

from isobox._guest import agent


def change(path, body="", *, kind="update", target=None, mode=None):
    hunk = {"body": body, "line": None, "anchors": [], "at_end": False, "newline": None}
    return {
        "path": os.fsencode(path),
        "kind": kind,
        "target": None if target is None else os.fsencode(target),
        "mode": mode,
        "hunks": [hunk] if body else [],
    }


def run(changes):
    return outcome(agent.patch_files(changes))


def contents(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def changes(tmp_path):
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("two\n")
    (tmp_path / "c").write_text("three\n")
    os.chmod(tmp_path / "a", 0o755)
    return [
        change(tmp_path / "a", "-one\n+1"),
        change(tmp_path / "new/deep/file", "+new", kind="add"),
        change(tmp_path / "b", kind="delete"),
        change(tmp_path / "c", "-three\n+3", target=tmp_path / "moved"),
    ]


def test_all_is_done(changes, tmp_path):
    result = run(changes)
    assert contents(tmp_path) == {
        "a": b"1\n",
        "moved": b"3\n",
        "new/deep/file": b"new\n",
    }
    assert {os.path.basename(path) for path in result["removed"]} == {b"b", b"c"}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("failing", range(1, 9))
@pytest.mark.parametrize("links", [True, False])
def test_what_fails_late_is_undone(changes, tmp_path, monkeypatch, failing, links):
    before, folders = contents(tmp_path), sorted(os.listdir(tmp_path))
    rename, calls = os.rename, []

    def failing_rename(source, target, **options):
        calls.append(target)
        if len(calls) == failing:
            raise OSError(28, "no space")
        rename(source, target, **options)

    if not links:
        link = os.link

        def no_hard_links(source, target, **options):
            if not options:
                raise OSError(1, "not permitted")
            link(source, target, **options)

        monkeypatch.setattr(agent.os, "link", no_hard_links)
    monkeypatch.setattr(agent.os, "rename", failing_rename)
    try:
        run(changes)
    except OSError:
        monkeypatch.undo()
        assert contents(tmp_path) == before
        assert sorted(os.listdir(tmp_path)) == folders
    else:
        assert len(calls) < failing


def test_a_file_that_changes_meanwhile_is_not_overwritten(changes, tmp_path):
    work = agent.patch_files(changes)
    for _ in changes:
        next(work)
    (tmp_path / "c").write_text("somebody else's\n")
    with pytest.raises(agent.Refused) as caught:
        next(work)
    assert (caught.value.code, caught.value.path) == ("conflict", bytes(tmp_path / "c"))
    assert (tmp_path / "a").read_text() == "one\n"
    assert not (tmp_path / "new").exists()


def test_a_deleted_link_leaves_its_target(tmp_path):
    (tmp_path / "target").write_text("kept\n")
    (tmp_path / "link").symlink_to("target")
    run([change(tmp_path / "link", kind="delete")])
    assert contents(tmp_path) == {"target": b"kept\n"}


def test_nothing_is_made_through_a_dangling_link(tmp_path):
    (tmp_path / "link").symlink_to("outside")
    with pytest.raises(agent.Refused):
        run([change(tmp_path / "link", "+x", kind="add")])
    assert os.listdir(tmp_path) == ["link"]


def test_all_of_a_deleted_file_must_be_named(tmp_path):
    (tmp_path / "a").write_text("one\ntwo\n")
    with pytest.raises(agent.Refused, match="more than"):
        run([change(tmp_path / "a", "-one", kind="delete")])
    assert (tmp_path / "a").exists()
