"""Overlays and the walks that go with them, against the real kernel."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mounts import host_mounts

from isobox._linux import launch, overlay, trees
from isobox._linux.launching import (
    STAGE,
    IdMap,
    Overlay,
    launch_command,
    launch_spec,
)

USER = 0x70000007
ROOT = os.geteuid() == 0


def memory_file(data: bytes) -> int:
    fd = os.memfd_create("test")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class Laid:
    """A directory with an overlay's state beside it."""

    def __init__(self, folder: Path) -> None:
        self.lower = folder / "lower"
        self.state = folder / "state"
        for path in (self.lower, self.state):
            path.mkdir(mode=0o700)
        for name in ("upper", "work", "stage"):
            (self.state / name).mkdir()
        self.user = USER if ROOT else os.geteuid()
        self.group = USER if ROOT else os.getegid()
        if ROOT:
            os.chown(self.state / "upper", USER, USER)
            Path(STAGE).mkdir(mode=0o700, exist_ok=True)
        self.fds = [os.open(path, os.O_RDONLY) for path in (self.lower, self.state)]
        self.idmaps = [IdMap(self.fds[0], 0, 0)] if ROOT else []

    @property
    def layer(self) -> overlay.Layer:
        lower, state = self.fds
        return overlay.Layer(lower, state, str(self.state), self.user, self.idmaps)

    def run(self, script: str):
        script = f"cd /proc/self/fd/{self.fds[0]}/ && {script}"
        spec = memory_file(
            launch_spec(
                ["/bin/sh", "-c", script],
                uid=self.user,
                gid=self.group,
                parent=os.getpid(),
                idmaps=self.idmaps,
                overlays=[Overlay(*self.fds)],
                stage=self.layer.stage,
            )
        )
        try:
            return subprocess.run(
                launch_command(spec),
                pass_fds=(spec, *self.fds),
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            os.close(spec)


@pytest.fixture
def laid(tmp_path, monkeypatch):
    monkeypatch.setattr(overlay, "_known", {})
    made = Laid(tmp_path)
    yield made
    for fd in made.fds:
        os.close(fd)


@pytest.fixture
def mounted(laid):
    if reason := overlay.refusal(laid.layer):
        pytest.skip(f"no overlay here: {reason}")
    return laid


def test_what_is_written_goes_to_the_layer(mounted):
    (mounted.lower / "file").write_text("old\n")
    result = mounted.run("cat file && echo new > file && echo x > made && ls")
    assert (result.stderr, result.stdout) == ("", "old\nfile\nmade\n")
    assert (mounted.lower / "file").read_text() == "old\n"
    assert os.listdir(mounted.lower) == ["file"]
    assert (mounted.state / "upper/file").read_text() == "new\n"


def test_the_host_sees_no_mount(mounted):
    before = host_mounts()
    result = mounted.run("grep -c overlay.*lowerdir /proc/self/mountinfo")
    assert int(result.stdout) == before.count("lowerdir") + 1
    assert host_mounts() == before
    assert os.listdir(mounted.state / "stage") == []


def test_the_mount_is_nosuid_and_nodev(mounted):
    result = mounted.run("grep -o 'rw,nosuid,nodev.*isobox' /proc/self/mountinfo")
    assert "overlay" in result.stdout


def test_the_state_is_closed_to_what_runs(mounted):
    result = mounted.run(f"ls /proc/self/fd/{mounted.fds[1]}/")
    assert result.returncode != 0


def test_whiteouts_and_opaque_directories_are_known(mounted):
    (mounted.lower / "gone").write_text("")
    (mounted.lower / "anew").mkdir()
    (mounted.lower / "anew/gone").write_text("")
    (mounted.lower / "merged").mkdir()
    mounted.run("rm gone; rm -r anew; mkdir anew; echo > merged/new")
    upper = os.open(mounted.state / "upper", os.O_RDONLY)
    found = trees.entries(upper)
    assert overlay.is_whiteout(found["gone"])
    assert not overlay.is_whiteout(found["anew"])
    for name, opaque in (("anew", True), ("merged", False)):
        folder = trees.directory(upper, name)
        assert overlay.is_opaque(folder) == opaque
        os.close(folder)
    os.close(upper)


def test_a_refusal_says_what_the_kernel_said(laid):
    os.rmdir(laid.state / "upper")
    reason = overlay.refusal(laid.layer)
    assert reason is not None
    assert "overlay descriptor" in reason
    assert "No such file or directory" in reason


def test_trying_leaves_no_trace(mounted):
    assert os.listdir(mounted.state / "work") == []
    assert os.listdir(mounted.state / "upper") == []


def test_another_directory_at_the_path_is_refused(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    os.close(launch.reopen(fd))
    folder.rmdir()
    # So the kernel calls a directory that is gone.
    folder.with_name("folder (deleted)").mkdir()
    with pytest.raises(ValueError, match="is something else now"):
        launch.reopen(fd)
    os.close(fd)


# -- walks ---------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    for name in ("a/b/file", "a/other", "top"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "up").symlink_to("..")
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_walk_follows_no_link(tree):
    assert sorted(path for path, _ in trees.walk(tree)) == [
        "a",
        "a/b",
        "a/b/file",
        "a/other",
        "top",
        "up",
    ]
    assert [path for path, _ in trees.walk(tree, "up")] == []


@pytest.mark.parametrize("path", ["up", "../x", "/etc", "up/x", "top", "none"])
def test_only_directories_below_open(tree, path):
    with pytest.raises(OSError, match=r"^\[Errno"):
        trees.directory(tree, path)


def test_only_regular_files_open_and_a_fifo_does_not_wait(tree):
    os.mkfifo("pipe", dir_fd=tree)
    os.symlink("top", "alias", dir_fd=tree)
    for path in ("pipe", "alias", "a", "up/top", "none"):
        with pytest.raises(OSError, match=r"^\[Errno"):
            trees.regular(tree, path)
    fd = trees.regular(tree, "a/b/file")
    assert os.read(fd, 100) == b"a/b/file"
    os.close(fd)


@pytest.mark.parametrize("reflink", [True, False])
def test_a_copy_has_the_holes(tmp_path, reflink):
    with open(tmp_path / "old", "wb") as file:
        file.seek(1 << 30)
        file.write(b"x" * 5000)
        file.truncate(2 << 30)
    with open(tmp_path / "old", "rb") as old, open(tmp_path / "new", "w+b") as new:
        trees.copy_content(old.fileno(), new.fileno(), reflink=reflink)
        found = os.fstat(new.fileno())
        assert found.st_size == 2 << 30
        assert found.st_blocks * 512 < 1 << 20
        assert os.pread(new.fileno(), 5001, 1 << 30) == b"x" * 5000 + b"\0"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"", b"", True),
        (b"abc", b"abc", True),
        (b"abc", b"abd", False),
        (b"abc", b"abcd", False),
        (b"x" * 3_000_000, b"x" * 2_999_999 + b"y", False),
    ],
)
def test_content_is_compared(one, other, same):
    fds = [memory_file(content) for content in (one, other)]
    assert trees.same_content(*fds) == same
    for fd in fds:
        os.close(fd)


def test_names_are_exchanged_and_new_ones_do_not_replace(tmp_path, tree):
    (tmp_path / "x").write_text("x")
    if trees.exchange((tree, "x"), (tree, "top")):
        assert (tmp_path / "x").read_text() == "top"
    with pytest.raises(FileExistsError):
        trees.rename_new((tree, "x"), (tree, "top"))
    trees.rename_new((tree, "x"), (tree, "free"))
    assert not (tmp_path / "x").exists()


def test_trees_of_any_depth_are_removed(tmp_path):
    os.mkdir(tmp_path / "deep")
    here = os.getcwd()
    os.chdir(tmp_path / "deep")
    try:
        for _ in range(sys.getrecursionlimit() + 2000):
            os.mkdir("d")
            os.chdir("d")
        with open("file", "w"):
            pass
        os.mkdir("closed", 0)
    finally:
        os.chdir(here)
    parent = os.open(tmp_path, os.O_RDONLY)
    trees.remove(parent, "deep")
    trees.remove(parent, "none")
    os.close(parent)
    assert os.listdir(tmp_path) == []


def test_removing_follows_no_link(tmp_path):
    (tmp_path / "kept").mkdir(mode=0o755)
    (tmp_path / "kept/file").write_text("kept")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone/link").symlink_to("../kept")
    (tmp_path / "link").symlink_to("kept")
    parent = os.open(tmp_path, os.O_RDONLY)
    trees.remove(parent, "gone")
    trees.remove(parent, "link")
    os.close(parent)
    assert (tmp_path / "kept/file").read_text() == "kept"
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o755
    assert not (tmp_path / "gone").exists()


def test_kinds(tree, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    kinds = {name: trees.kind_of(found.st_mode) for name, found in trees.walk(tree)}
    assert kinds["top"] == "file"
    assert kinds["a"] == "directory"
    assert kinds["up"] == "symlink"
    assert kinds["pipe"] == "fifo"
    assert trees.kind_of(os.stat("/dev/null").st_mode) == "device"
