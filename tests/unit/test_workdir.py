"""Host directories that become workspaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
import typing_extensions
from tests.descriptors import none_left_open

from isobox import _workdir, errors
from isobox.errors import (
    InvalidArgumentError,
    PathAccessError,
    PathMissingError,
    PathNotDirectoryError,
)

SYSTEM = "/usr/bin/python3"


@pytest.fixture
def place(tmp_path):
    """A directory that no link leads to, and a check that nothing stays open."""
    with none_left_open():
        yield tmp_path.resolve()


def test_a_directory_is_opened(place):
    fd = _workdir.opened(str(place))
    try:
        assert os.path.samestat(os.fstat(fd), os.stat(place))
        assert not os.get_inheritable(fd)
        assert _workdir.owner(fd) == (os.geteuid(), os.stat(place).st_gid)
    finally:
        os.close(fd)


def test_what_is_missing_says_what_to_do(place):
    with pytest.raises(PathMissingError, match="create it first"):
        _workdir.opened(str(place / "absent"))


@pytest.mark.parametrize("name", ["file", "file/below", "fifo"])
def test_what_is_no_directory_is_refused(place, name):
    (place / "file").touch()
    os.mkfifo(place / "fifo")
    with pytest.raises(PathNotDirectoryError):
        _workdir.opened(str(place / name))


@pytest.mark.parametrize("name", ["link", "link/below"])
def test_a_link_is_not_followed_anywhere_on_the_way(place, name):
    (place / "real/below").mkdir(parents=True)
    (place / "link").symlink_to("real")
    with pytest.raises(InvalidArgumentError, match="symlink") as error:
        _workdir.opened(str(place / name))
    assert str(place / name.replace("link", "real")) in str(error.value)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/usr",
        "/usr/local/x",
        "/etc",
        "/proc/self",
        "/dev/shm",
        "/run/x",
        "/bin",
        "/sys",
    ],
)
def test_the_system_is_no_workspace(path):
    with pytest.raises(InvalidArgumentError, match=r"overlaps|whole"):
        _workdir.opened(path)


@pytest.mark.parametrize("entry", ["{}", "{}/", "{}/../{name}"])
def test_a_directory_on_the_path_is_no_workspace(place, monkeypatch, entry):
    monkeypatch.setenv(
        "PATH", "/usr/bin:" + entry.format(place, name=place.name) + "::x"
    )
    with pytest.raises(InvalidArgumentError, match="on your PATH"):
        _workdir.opened(str(place))
    (place / "below").mkdir()
    with pytest.raises(InvalidArgumentError, match="on your PATH"):
        _workdir.opened(str(place / "below"))


def test_a_neighbour_of_the_path_is_one(place, monkeypatch):
    (place / "bin").mkdir()
    (place / "binary").mkdir()
    monkeypatch.setenv("PATH", str(place / "bin"))
    os.close(_workdir.opened(str(place / "binary")))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another")
@pytest.mark.skipif(not os.access(SYSTEM, os.X_OK), reason="needs a public Python")
def test_what_is_not_writable_says_for_whom(place, tmp_path_factory):
    """Tried by somebody who is not root, with a copy of the source to read."""
    packages = tmp_path_factory.mktemp("packages")
    for folder in (packages, packages.parent, packages.parent.parent):
        folder.chmod(0o755)
    source = os.path.dirname(os.path.abspath(errors.__file__))
    shutil.copytree(
        source, packages / "isobox", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(typing_extensions.__file__, packages)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from isobox import _workdir, errors\n"
        "try: _workdir.opened(sys.argv[2])\n"
        "except errors.PathAccessError as error: print(error)\n"
    )
    locked = packages / "locked"
    locked.mkdir(mode=0o755)
    hidden = packages / "hidden"
    (hidden / "below").mkdir(parents=True)
    hidden.chmod(0o700)
    for path in (locked, hidden / "below"):
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = subprocess.run(
            [*become, SYSTEM, "-c", code, str(packages), str(path)],
            capture_output=True,
            text=True,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            check=True,
        )
        assert "not writable for user 65534" in done.stdout
    assert issubclass(PathAccessError, PermissionError)


# -- removing what a sandbox has left ---------------------------------------------


def test_a_tree_is_removed_and_no_link_is_followed(place):
    (place / "kept").mkdir()
    (place / "kept/file").touch()
    (place / "tree/a/b").mkdir(parents=True)
    (place / "tree/a/b/file").touch()
    (place / "tree/a/link").symlink_to("../../kept")
    (place / "tree/absolute").symlink_to(place / "kept")
    os.mkfifo(place / "tree/fifo")
    (place / "tree/a").chmod(0o000)
    (place / "tree/\udcff\n").touch()
    _workdir.sweep_tree(str(place / "tree"))
    assert os.listdir(place) == ["kept"]
    assert os.listdir(place / "kept") == ["file"]


def test_a_link_at_the_top_is_not_followed(place):
    (place / "kept").mkdir()
    (place / "kept/file").touch()
    (place / "top").symlink_to("kept")
    _workdir.sweep_tree(str(place / "top"))
    assert os.listdir(place / "kept") == ["file"]


def test_nothing_there_is_nothing_to_remove(place):
    _workdir.sweep_tree(str(place / "absent"))


def test_a_tree_of_any_depth_is_removed(place):
    fd = os.open(place, os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() * 2):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    _workdir.sweep_tree(str(place / "d"))
    assert os.listdir(place) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
def test_what_cannot_be_removed_stays_and_the_rest_goes(place):
    """A mount point is busy for everybody, root included."""
    (place / "tree/busy").mkdir(parents=True)
    (place / "tree/file").touch()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "none", place / "tree/busy"],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounts are not to be had here")
    try:
        _workdir.sweep_tree(str(place / "tree"))
        assert os.listdir(place / "tree") == ["busy"]
    finally:
        subprocess.run(["umount", place / "tree/busy"], check=True)
