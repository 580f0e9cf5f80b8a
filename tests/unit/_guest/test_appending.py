"""Whole lines at the end of a file, and directories made whole."""

from __future__ import annotations

import fcntl
import io
import os
import tarfile
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._guest.client import descriptors, eventually, sees_descriptors

from isobox._channel import unpack
from isobox._guest import agent

APPEND = {"mode": None, "if_match": None, "parents": True, "append": True}


def append(guest, path, data, *, small=True, **fields):
    body = data if small else None
    given = {**APPEND, "body": body, **fields}
    answer = guest.open("write", path=bytes(path), **given)
    if not small:
        guest.data(answer, data, agent.BODY)
        guest.end(answer, agent.BODY)
    return guest.wait(answer)


def push(guest, path, body, whole):
    fields = {"path": bytes(path), "clear": False, "whole": whole}
    answer = guest.open("push", **fields)
    guest.data(answer, body, agent.BODY)
    guest.end(answer, agent.BODY)
    return guest.wait(answer)


def tar_of(**files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("small", [True, False])
def test_lines_are_added_to_what_is_there(guest, tmp_path, small):
    path = tmp_path / "below" / "file"
    for data in (b"one\n", b"two\nthree\n"):
        answer = append(guest, path, data, small=small)
    [entry] = unpack.entries(answer.result["entry"], str(path))
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    assert (entry.size, entry.mode, entry.digest) == (14, 0o644, None)


@given(data=st.binary(max_size=300))
def test_what_is_left_are_whole_lines(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDWR)
    for _ in agent.append_lines(fd, b"next\n"):
        pass
    os.close(fd)
    assert path.read_bytes() == data[: data.rfind(b"\n") + 1] + b"next\n"


def test_a_torn_line_longer_than_one_look_is_cut_off(guest, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\n" + b"x" * (3 * agent.PIECE))
    append(guest, path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_what_has_no_lines_is_refused(guest, tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    answer = append(guest, path, b"one\n")
    assert answer.error["code"] == "invalid"
    assert path.stat().st_size == 1 << 40


def test_too_much_at_once_is_refused(guest, tmp_path):
    path = tmp_path / "file"
    answer = append(guest, path, bytes(agent.LARGEST_APPEND + 1), small=False)
    assert answer.error["code"] == "invalid"
    assert not path.exists()


@pytest.mark.parametrize("kind", ["fifo", "link", "dangling", "directory", "device"])
def test_what_is_no_regular_file_is_refused(guest, tmp_path, kind):
    path, target = tmp_path / "file", tmp_path / "target"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/null")
    else:
        path.symlink_to(target)
    if kind == "link":
        target.write_bytes(b"one\n")
    code = append(guest, path, b"two\n").error["code"]
    assert code == ("is_directory" if kind == "directory" else "not_regular")
    assert not target.exists() or target.read_bytes() == b"one\n"


@sees_descriptors
def test_a_lock_is_waited_for_and_then_is_free(guest, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\n")
    before = descriptors(guest)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        answer = guest.open("write", path=bytes(path), **APPEND, body=b"two\n")
        time.sleep(0.1)
        assert path.read_bytes() == b"one\n"
    guest.wait(answer)
    assert path.read_bytes() == b"one\ntwo\n"
    assert descriptors(guest) == before
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@sees_descriptors
def test_a_lock_that_stays_ends_in_an_error(guest, tmp_path):
    path = tmp_path / "file"
    before = descriptors(guest)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        error = append(guest, path, b"one\n").error
    assert (error["code"], error["errno"]) == ("storage", 16)
    assert descriptors(guest) == before


def test_who_waits_sees_that_the_file_was_replaced(guest, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old\n")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        answer = guest.open("write", path=bytes(path), **APPEND, body=b"two\n")
        time.sleep(0.05)
        path.rename(tmp_path / "moved")
        path.write_bytes(b"new\n")
    guest.wait(answer)
    assert path.read_bytes() == b"new\ntwo\n"


def test_a_full_disk_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\n")
    fd = os.open(path, os.O_RDWR)
    work = agent.append_lines(fd, b"x" * (3 << 20) + b"\n")
    next(work)
    assert path.stat().st_size > 4
    work.close()
    os.close(fd)
    assert path.read_bytes() == b"one\n"


def test_a_directory_is_made_whole(guest, tmp_path):
    place = tmp_path / "above" / "made"
    assert push(guest, place, tar_of(a=b"1", b=b"2"), "new").result["count"] == 2
    assert sorted(os.listdir(place)) == ["a", "b"]
    assert os.listdir(place.parent) == ["made"]
    assert push(guest, place, tar_of(c=b"3"), "new").error["code"] == "exists"
    assert sorted(os.listdir(place)) == ["a", "b"]
    push(guest, place, tar_of(c=b"3"), "replace")
    assert os.listdir(place) == ["c"]
    assert os.listdir(place.parent) == ["made"]


def test_a_file_or_a_link_gives_way(guest, tmp_path):
    place, other = tmp_path / "made", tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    place.symlink_to(other)
    assert push(guest, place, tar_of(a=b"1"), "new").error["code"] == "exists"
    push(guest, place, tar_of(a=b"1"), "replace")
    assert not place.is_symlink()
    assert os.listdir(place) == ["a"]
    assert os.listdir(other) == ["kept"]


@pytest.mark.parametrize("whole", ["new", "replace"])
def test_what_breaks_off_leaves_nothing(guest, tmp_path, whole):
    place = tmp_path / "made"
    if whole == "replace":
        place.mkdir()
        (place / "old").touch()
    before = list(tmp_path.rglob("*"))
    broken = tar_of(a=b"1", b=b"2" * 5000)[:3000]
    assert push(guest, place, broken, whole).error["code"] == "archive"
    assert list(tmp_path.rglob("*")) == before


def test_a_cancelled_push_leaves_nothing(guest, tmp_path):
    place = tmp_path / "made"
    answer = guest.open("push", path=bytes(place), clear=False, whole="new")
    guest.data(answer, tar_of(a=b"1", b=b"2" * 50_000)[:20_000], agent.BODY)
    eventually(lambda: any(tmp_path.rglob("a")))
    guest.control(answer, "cancel")
    guest.wait(answer)
    eventually(lambda: not any(tmp_path.iterdir()))
