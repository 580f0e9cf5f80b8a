"""Archives of directories: no link leads out, and nothing hangs."""

from __future__ import annotations

import os
import tarfile

import pytest
from tests.descriptors import none_left_open

from isobox._images import tree
from isobox.errors import (
    NotRegularFileError,
    PathMissingError,
    PathNotDirectoryError,
    StorageError,
)


def names(archive):
    with archive.file, tarfile.open(fileobj=archive.file) as opened:
        return opened.getnames()


def test_the_same_contents_are_the_same_archive(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for each in ("b", "a"):
            (tmp_path / name / each).write_text(each)
            os.utime(tmp_path / name / each, (5, 5))
        os.utime(tmp_path / name, (5, 5))
    first, second = (tree.of_tree(str(tmp_path / n)) for n in ("one", "two"))
    assert first.digest == second.digest
    assert names(first) == names(second) == [".", "./a", "./b"]


def test_a_link_is_a_link_and_not_what_it_leads_to(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to("/etc")
    assert names(tree.of_tree(str(tmp_path / "root"))) == [".", "./link"]


@pytest.mark.parametrize("way", ["link", "link/inner", "inner/link"])
def test_a_link_on_the_way_is_not_followed(tmp_path, way):
    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "inner" / "link").symlink_to("/etc")
    with pytest.raises(PathNotDirectoryError):
        tree.of_tree(way, below=str(tmp_path))
    with pytest.raises((PathNotDirectoryError, PathMissingError)):
        tree.read_below(way, str(tmp_path))


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NotRegularFileError):
        tree.read_below("fifo", str(tmp_path))
    with pytest.raises(NotRegularFileError):
        tree.read_below("null", "/dev")


def test_a_directory_without_end_is_refused(tmp_path):
    deep = tmp_path
    for _ in range(260):
        deep = deep / "d"
        deep.mkdir()
    with none_left_open(), pytest.raises(StorageError, match="deep"):
        tree.of_tree(str(tmp_path))


def test_what_is_not_there_is_missing(tmp_path):
    with pytest.raises(PathMissingError):
        tree.of_tree(str(tmp_path / "none"))
