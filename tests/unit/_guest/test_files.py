"""File operations, one round trip each."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import signal
import socket
import stat
from pathlib import Path

import pytest
from tests.unit._guest.client import (
    SCAN,
    SEARCH,
    Answer,
    Guest,
    descriptors,
    eventually,
    sees_descriptors,
)

from isobox._channel import unpack
from isobox._guest import agent

WRITE = {"mode": None, "if_match": None, "parents": True, "body": None}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write(
    guest: Guest, path: Path, data: bytes, *, small: bool = True, **fields
) -> Answer:
    body = data if small else None
    answer = guest.open("write", path=bytes(path), **{**WRITE, "body": body, **fields})
    if not small:
        guest.data(answer, data, agent.BODY)
        guest.end(answer, agent.BODY)
    return guest.wait(answer)


def read(
    guest: Guest, path: Path, offset: int = 0, length: int | None = None
) -> Answer:
    return guest.wait(
        guest.open("read", path=bytes(path), offset=offset, length=length)
    )


def scan(guest: Guest, path: Path, **fields) -> tuple[dict[str, object], bool]:
    answer = guest.open("scan", path=bytes(path), **{**SCAN, **fields})
    result = guest.result(answer)
    found = unpack.entries(answer.bytes(), str(path))
    return {each.path: each for each in found}, result["truncated"]


@pytest.fixture
def special(tmp_path):
    """What is no regular file, by the word that refuses it."""
    os.mkfifo(tmp_path / "fifo")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(tmp_path / "socket"))
    (tmp_path / "directory").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "to_fifo").symlink_to("fifo")
    (tmp_path / "file").write_text("x")
    yield tmp_path
    sock.close()


# -- read ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, agent.PIECE, agent.PIECE + 1, 3_000_000])
def test_a_file_is_read_whole(guest, tmp_path, size):
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    answer = read(guest, tmp_path / "f")
    assert answer.result == {}
    assert answer.bytes() == data


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 0), (0, 10), (5, 3), (99, 5), (100, 1), (10**12, None), (50, None)],
)
def test_a_range_is_read(guest, tmp_path, offset, length):
    data = bytes(range(100))
    (tmp_path / "f").write_bytes(data)
    end = None if length is None else offset + length
    assert read(guest, tmp_path / "f", offset, length).bytes() == data[offset:end]


def test_a_file_whose_size_says_nothing_is_read(guest):
    assert read(guest, Path("/proc/self/status")).bytes().startswith(b"Name:")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("fifo", "not_regular"),
        ("socket", "not_regular"),
        ("to_fifo", "not_regular"),
        ("directory", "is_directory"),
        ("loop", "loop"),
        ("dangling", "missing"),
        ("absent", "missing"),
        ("file/below", "not_directory"),
    ],
)
def test_what_is_no_file_is_not_opened_to_read(guest, special, name, code):
    answer = read(guest, special / name)
    assert answer.error is not None
    assert answer.error["code"] == code
    assert guest.ping() < 5


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "/dev/null"])
def test_a_device_is_not_opened_to_read(guest, path):
    answer = read(guest, Path(path))
    assert answer.error is not None
    assert answer.error["code"] == "not_regular"


@sees_descriptors
def test_a_reader_that_stops_holds_nothing_up_and_is_cancelled(guest, tmp_path):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(1 << 40)
    before = descriptors(guest)
    guest.generous = False
    answer = guest.open("read", path=bytes(tmp_path / "big"), offset=0, length=None)
    guest.until(lambda: len(answer.bytes()) > agent.WINDOW - agent.PIECE)
    assert guest.ping() < 5
    assert len(answer.bytes()) <= agent.WINDOW
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"
    assert descriptors(guest) == before


# -- write --------------------------------------------------------------------


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("size", [0, 5, 100_000])
def test_a_file_is_written_and_described(guest, tmp_path, small, size):
    data = os.urandom(size)
    answer = write(guest, tmp_path / "a/b/f", data, small=small)
    assert answer.result is not None
    (entry,) = unpack.entries(answer.result["entry"], str(tmp_path / "a/b/f"))
    assert (tmp_path / "a/b/f").read_bytes() == data
    assert entry.digest == digest(data)
    assert (entry.kind, entry.size, entry.mode) == ("file", size, 0o644)
    assert os.listdir(tmp_path / "a/b") == ["f"]


def test_mode_and_owner_are_kept_and_set_id_bits_are_not(guest, tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o4755)
    owner = 12345 if os.geteuid() == 0 else os.geteuid()
    if os.geteuid() == 0:
        os.chown(path, owner, owner)
        path.chmod(0o4755)
    write(guest, path, b"new")
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o755
    assert (found.st_uid, found.st_gid) == (
        owner,
        owner if os.geteuid() == 0 else found.st_gid,
    )


def test_a_mode_that_is_given_counts(guest, tmp_path):
    write(guest, tmp_path / "f", b"", mode=0o6750)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o750


def test_a_link_is_written_through(guest, tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "dangling").symlink_to("made")
    write(guest, tmp_path / "link", b"new")
    write(guest, tmp_path / "dangling", b"made")
    assert (tmp_path / "target").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "made").read_bytes() == b"made"


def test_who_reads_sees_the_old_or_the_new_whole(guest, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with open(path, "rb") as old:
        write(guest, path, b"new")
        assert old.read() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("fifo", "not_regular"),
        ("socket", "not_regular"),
        ("directory", "is_directory"),
        ("file/below", "not_directory"),
        ("file/below/deep", "not_directory"),
        ("loop", "loop"),
    ],
)
def test_what_is_no_file_is_not_written(guest, special, name, code):
    names = sorted(os.listdir(special))
    answer = write(guest, special / name, b"x")
    assert answer.error is not None
    assert answer.error["code"] == code
    assert sorted(os.listdir(special)) == names


def test_parents_are_made_only_if_asked(guest, tmp_path):
    answer = write(guest, tmp_path / "a/f", b"", parents=False)
    assert answer.error is not None
    assert answer.error["code"] == "missing"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("small", [True, False])
def test_only_the_named_content_is_replaced(guest, tmp_path, small):
    path = tmp_path / "f"
    assert write(guest, path, b"one", if_match="", small=small).result is not None
    for wrong in ("", digest(b"other")):
        answer = write(guest, path, b"two", if_match=wrong, small=small)
        assert answer.error is not None
        assert answer.error["code"] == "conflict"
        assert path.read_bytes() == b"one"
    assert (
        write(guest, path, b"two", if_match=digest(b"one").upper()).result is not None
    )
    assert path.read_bytes() == b"two"
    answer = write(guest, tmp_path / "absent", b"", if_match=digest(b"one"))
    assert answer.error is not None
    assert answer.error["code"] == "conflict"
    assert os.listdir(tmp_path) == ["f"]


def test_a_change_while_it_is_compared_is_a_conflict(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(bytes(4 * agent.PIECE + 1))
    steps = agent.compare(bytes(path), digest(path.read_bytes()))
    next(steps)
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(agent.Refused) as refusal:
        list(steps)
    assert refusal.value.code == "conflict"


@sees_descriptors
@pytest.mark.parametrize("small", [True, False])
def test_a_full_disk_leaves_nothing_of_it(guest, tmp_path, small):
    (tmp_path / "f").write_text("old")
    before = descriptors(guest)
    resource.prlimit(guest.pid, resource.RLIMIT_FSIZE, (1000, 1000))
    for _ in range(3):
        answer = write(guest, tmp_path / "f", bytes(5000), small=small)
        assert answer.error is not None
        assert answer.error["code"] == "storage"
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_text() == "old"
    assert descriptors(guest) == before


def begun(guest: Guest, path: Path) -> Answer:
    answer = guest.open("write", path=bytes(path), **WRITE)
    guest.data(answer, bytes(100_000), agent.BODY)
    guest.until(lambda: answer.granted == 100_000)
    return answer


def test_killed_in_the_middle_of_a_write_it_leaves_nothing(tmp_path):
    (tmp_path / "f").write_text("old")
    with Guest() as guest:
        begun(guest, tmp_path / "f")
        begun(guest, tmp_path / "new")
        guest.popen.send_signal(signal.SIGKILL)
        guest.popen.wait(10)
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_text() == "old"


def test_hung_up_in_the_middle_of_a_write_it_leaves_nothing(tmp_path):
    with Guest() as guest:
        begun(guest, tmp_path / "new")
        guest.hang_up()
    assert os.listdir(tmp_path) == []


@sees_descriptors
def test_a_cancelled_write_leaves_nothing(guest, tmp_path):
    before = descriptors(guest)
    answer = begun(guest, tmp_path / "new")
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"
    assert os.listdir(tmp_path) == []
    assert descriptors(guest) == before


@pytest.fixture
def named(monkeypatch):
    """As on file systems where no file can be without a name."""
    monkeypatch.delattr(os, "O_TMPFILE")


def test_where_every_file_has_a_name_it_is_the_same(named, tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    draft = agent.Draft(bytes(path), parents=False)
    draft.write(b"new")
    assert len(os.listdir(tmp_path)) == 2
    draft.publish()
    assert os.listdir(tmp_path) == ["f"]
    assert path.read_text() == "new"
    draft = agent.Draft(bytes(path), parents=False)
    draft.discard()
    assert os.listdir(tmp_path) == ["f"]


# -- what was replaced ----------------------------------------------------------


@pytest.fixture
def lingering(monkeypatch):
    """No guest that lets files go runs here."""
    held: list[int] = []
    monkeypatch.setattr(agent, "_lingering", held)
    yield held
    for fd in held:
        os.close(fd)


def test_replaced_files_are_let_go_as_soon_as_nothing_else_is_to_be_done(
    guest, tmp_path
):
    before = descriptors(guest)
    for number in range(40):
        assert not write(guest, tmp_path / "f", b"%d" % number).error
    eventually(lambda: descriptors(guest) == before)
    assert (tmp_path / "f").read_bytes() == b"39"


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="keeps none open")
def test_a_file_that_is_large_or_has_other_names_is_not_kept(lingering, tmp_path):
    for name, size, kept in (("a", 1, 1), ("b", 1 << 20, 1), ("c", 1, 2)):
        path = tmp_path / name
        path.write_bytes(bytes(size))
        agent.let_linger(bytes(path), os.stat(path))
        assert len(lingering) == kept
    os.link(tmp_path / "a", tmp_path / "d")
    agent.let_linger(bytes(tmp_path / "d"), os.stat(tmp_path / "d"))
    assert len(lingering) == 2


def test_a_full_disk_is_one_without_the_files_that_are_kept(
    lingering, tmp_path, monkeypatch
):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    lingering.append(os.open(path, os.O_RDONLY))
    whole = agent._write_all

    def half(fd: int, data: bytes) -> None:
        if lingering:
            whole(fd, data[:3])
            raise OSError(errno.ENOSPC, "no room")
        whole(fd, data)

    monkeypatch.setattr(agent, "_write_all", half)
    draft = agent.Draft(bytes(path), parents=False)
    draft.write(b"one")
    lingering.append(os.open(path, os.O_RDONLY))
    draft.write(b"two and more")
    assert lingering == []
    monkeypatch.setattr(agent, "let_linger", lambda *_: None)
    draft.publish()
    assert path.read_bytes() == b"onetwo and more"


# -- edit ---------------------------------------------------------------------


def edit(
    guest: Guest, path: Path, *pieces: list, if_match: str | None = None
) -> Answer:
    asked = guest.open("edit", path=bytes(path), pieces=list(pieces), if_match=if_match)
    return guest.wait(asked)


def test_pieces_are_replaced_all_or_none(guest, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"one two two\xff")
    answer = edit(guest, path, [b"one", b"1", False], [b"two", b"2", True])
    assert answer.result is not None
    assert answer.result["count"] == 3
    assert path.read_bytes() == b"1 2 2\xff"
    answer = edit(guest, path, [b"1", b"one", False], [b"2", b"two", False])
    assert answer.error is not None
    assert (answer.error["code"], answer.error["message"]) == ("mismatch", "2 2")
    answer = edit(guest, path, [b"absent", b"", True])
    assert answer.error is not None
    assert answer.error["message"] == "1 0"
    assert path.read_bytes() == b"1 2 2\xff"
    assert os.listdir(tmp_path) == ["f"]


def test_an_edit_is_conditional_and_keeps_the_mode(guest, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a")
    path.chmod(0o751)
    answer = edit(guest, path, [b"a", b"b", False], if_match=digest(b"other"))
    assert answer.error is not None
    assert answer.error["code"] == "conflict"
    edit(guest, path, [b"a", b"b", False], if_match=digest(b"a"))
    assert path.read_bytes() == b"b"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751


def test_an_edit_goes_through_a_link_and_refuses_what_is_no_file(guest, special):
    (special / "link").symlink_to("file")
    edit(guest, special / "link", [b"x", b"y", False])
    assert (special / "file").read_bytes() == b"y"
    assert (special / "link").is_symlink()
    for name, code in (("fifo", "not_regular"), ("directory", "is_directory")):
        answer = edit(guest, special / name, [b"x", b"y", False])
        assert answer.error is not None
        assert answer.error["code"] == code


def test_a_file_too_large_to_edit_is_refused(guest, tmp_path):
    with open(tmp_path / "f", "wb") as file:
        file.truncate((64 << 20) + 1)
    answer = edit(guest, tmp_path / "f", [b"\0", b"x", True])
    assert answer.error is not None
    assert answer.error["code"] == "invalid"


# -- scan ---------------------------------------------------------------------


def test_every_kind_is_described(guest, special):
    found, truncated = scan(guest, special)
    kinds = {path.rsplit("/")[-1]: entry.kind for path, entry in found.items()}
    assert kinds == {
        "fifo": "fifo", "socket": "socket", "directory": "directory", "file": "file",
        "loop": "symlink", "dangling": "symlink", "to_fifo": "symlink",
    }  # fmt: skip
    assert found[f"{special}/dangling"].target == "nothing"
    assert not truncated


def test_depth_limit_and_pattern(guest, tmp_path):
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/c/f.py").touch()
    (tmp_path / "f.py").touch()
    top = str(tmp_path)
    assert set(scan(guest, tmp_path, depth=0)[0]) == {top}
    assert set(scan(guest, tmp_path, depth=2)[0]) == {
        top + "/a",
        top + "/f.py",
        top + "/a/b",
    }
    assert len(scan(guest, tmp_path, depth=None)[0]) == 5
    found, _ = scan(guest, tmp_path, depth=None, pattern="**/*.py")
    assert set(found) == {top + "/f.py", top + "/a/b/c/f.py"}
    found, truncated = scan(guest, tmp_path, depth=None, limit=2)
    assert (len(found), truncated) == (2, True)
    found, truncated = scan(guest, tmp_path, depth=None, limit=5)
    assert (len(found), truncated) == (5, False)


def test_links_below_are_not_followed(guest, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/round").symlink_to("..")
    assert len(scan(guest, tmp_path, depth=None)[0]) == 2


def test_the_path_itself_is_followed_or_not(guest, tmp_path):
    (tmp_path / "f").write_text("abc")
    (tmp_path / "link").symlink_to("f")
    path = tmp_path / "link"
    assert scan(guest, path, depth=0)[0][str(path)].kind == "file"
    assert scan(guest, path, depth=0, follow=False)[0][str(path)].kind == "symlink"


def test_digests_are_of_regular_files(guest, special):
    found, _ = scan(guest, special, digest=True)
    digests = {path.rsplit("/")[-1]: entry.digest for path, entry in found.items()}
    assert digests.pop("file") == digest(b"x")
    assert set(digests.values()) == {None}


def test_names_are_bytes(guest, tmp_path):
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b"x" * 255, b"'\"$(id)"):
        (tmp_path / os.fsdecode(name)).touch()
    names = {os.fsencode(path.rsplit("/")[-1]) for path in scan(guest, tmp_path)[0]}
    assert names == set(map(os.fsencode, os.listdir(tmp_path)))


@pytest.mark.parametrize(
    ("name", "code"),
    [("file", "not_directory"), ("absent", "missing"), ("loop", "loop")],
)
def test_what_cannot_be_listed_is_refused(guest, special, name, code):
    answer = guest.open("scan", path=bytes(special / name), **SCAN)
    assert guest.refusal(answer) == code


def test_a_pattern_that_is_none_is_refused(guest, tmp_path):
    answer = guest.open(
        "scan", path=bytes(tmp_path), **{**SCAN, "depth": None, "pattern": "[z-a]"}
    )
    assert guest.refusal(answer) == "invalid"


def test_a_large_directory_comes_within_the_window(guest, tmp_path):
    for number in range(5000):
        (tmp_path / f"{number:0100}").touch()
    guest.generous = False
    answer = guest.open("scan", path=bytes(tmp_path), **{**SCAN, "limit": 10_000})
    answers = []
    while not answer.done:
        have = len(answer.bytes())
        assert guest.ping() < 5
        guest.credit(answer, agent.BODY, len(answer.bytes()) - sum(answers))
        answers.append(len(answer.bytes()) - sum(answers))
        guest.until(lambda have=have: answer.done or len(answer.bytes()) >= have)
    assert len(list(unpack.entries(answer.bytes(), str(tmp_path)))) == 5000


# -- remove -------------------------------------------------------------------


def remove(guest: Guest, path: Path, *, recursive: bool = False) -> Answer:
    return guest.wait(guest.open("remove", path=bytes(path), recursive=recursive))


@pytest.mark.parametrize(
    "name", ["fifo", "socket", "loop", "dangling", "file", "to_fifo"]
)
def test_a_name_is_removed(guest, special, name):
    names = set(os.listdir(special))
    assert remove(guest, special / name).result == {}
    assert set(os.listdir(special)) == names - {name}


def test_a_directory_goes_only_if_asked_and_links_are_not_followed(guest, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/link").symlink_to(outside)
    (tree / "a/b/f").touch()
    (tree / "a").chmod(0o500)
    answer = remove(guest, tree)
    assert answer.error is not None
    assert answer.error["code"] == "is_directory"
    assert remove(guest, tree, recursive=True).result == {}
    assert os.listdir(tmp_path) == ["outside"]
    assert os.listdir(outside) == ["kept"]


def test_a_link_to_a_directory_is_only_a_link(guest, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").touch()
    (tmp_path / "link").symlink_to("d")
    assert remove(guest, tmp_path / "link", recursive=True).result == {}
    assert (tmp_path / "d/f").exists()


def test_a_tree_of_any_depth_is_removed(guest, tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    assert remove(guest, tmp_path / "d", recursive=True).result == {}
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "path", ["/", "/nowhere", "/nowhere/.", "/nowhere/x/..", "//nowhere"]
)
def test_the_root_is_not_removed(guest, path):
    # The root of the fixture's guest is /nowhere, which is not there at all.
    answer = guest.wait(guest.open("remove", path=path.encode(), recursive=True))
    assert answer.error is not None
    assert answer.error["code"] == "invalid"


def test_what_is_not_there_is_missing(guest, tmp_path):
    answer = remove(guest, tmp_path / "absent")
    assert answer.error is not None
    assert answer.error["code"] == "missing"


# -- search -------------------------------------------------------------------


def search(guest: Guest, path: Path, pattern: str, **fields):
    asked = {**SEARCH, "pattern": pattern, **fields}
    answer = guest.open("search", path=bytes(path), **asked)
    result = guest.result(answer)
    late = result.get("late") is True
    return list(unpack.matches(answer.bytes(), str(path), cut=late)), result


def test_lines_are_found_with_what_is_around_them(guest, tmp_path):
    (tmp_path / "b.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "a.py").write_text("TWO\n")
    (tmp_path / "binary").write_bytes(b"two\0")
    found, result = search(guest, tmp_path, "^t", before=1, after=1)
    assert [(each.line, each.text, each.before, each.after) for each in found] == [
        (2, "two", ("one",), ("three",)),
        (3, "three", ("two",), ()),
    ]
    assert result["files"] == 3
    assert [
        each.text for each in search(guest, tmp_path, "two", ignore_case=True)[0]
    ] == [
        "TWO",
        "two",
    ]
    assert [each.text for each in search(guest, tmp_path, ".", glob="*.py")[0]] == [
        "TWO"
    ]
    assert search(guest, tmp_path, "t.o", literal=True)[0] == []
    found, result = search(guest, tmp_path, ".", limit=2)
    assert (len(found), result["truncated"]) == (2, True)


def test_a_search_meets_no_fifo_and_no_loop(guest, special):
    found, result = search(guest, special, "x")
    assert len(found) == 1
    assert result["files"] == 1


def test_long_lines_are_clipped_and_odd_bytes_replaced(guest, tmp_path):
    (tmp_path / "f").write_bytes(b"\xff" + b"a" * 100_000)
    ((match,), _) = search(guest, tmp_path, "a")
    assert match.text.startswith("\ufffdaaa")
    assert len(match.text) == 16384


def test_an_expression_without_end_is_ended(guest, tmp_path):
    (tmp_path / "a").write_text("match aa\n")
    (tmp_path / "b").write_text("a" * 60)
    answer = guest.open(
        "search",
        path=bytes(tmp_path),
        **{**SEARCH, "pattern": "(a+)+( |$)", "timeout": 0.5},
    )
    (tmp_path / "b").write_text("a" * 60 + "!")
    asked = {**SEARCH, "pattern": "(a+)+$", "timeout": 0.5}
    late = guest.open("search", path=bytes(tmp_path), **asked)
    assert guest.ping() < 5
    guest.result(answer)
    assert guest.result(late)["late"] is True
    found = list(unpack.matches(late.bytes(), str(tmp_path), cut=True))
    assert [each.path for each in found] == [f"{tmp_path}/a"]


def test_a_search_is_cancelled(guest, tmp_path):
    (tmp_path / "b").write_text("a" * 60 + "!")
    answer = guest.open(
        "search", path=bytes(tmp_path), **{**SEARCH, "pattern": "(a+)+$"}
    )
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"


@pytest.mark.parametrize(
    "pattern", ["(", "[", "*", "a{99999999999}", "(" * 3000 + ")" * 3000]
)
def test_an_expression_that_is_none_is_refused(guest, tmp_path, pattern):
    answer = guest.open(
        "search", path=bytes(tmp_path), **{**SEARCH, "pattern": pattern}
    )
    assert guest.refusal(answer) == "invalid"


# -- confined -----------------------------------------------------------------


@pytest.fixture
def confined(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to("../secret")
    (root / "up").symlink_to("..")
    with Guest(config={"root": bytes(root), "confine": bytes(root)}) as guest:
        yield guest, root


@pytest.mark.parametrize("name", ["../new", "up/new", "up/deep/new"])
def test_no_output_is_spooled_outside(confined, tmp_path, name):
    guest, root = confined
    asked = guest.spawn("true", spool=bytes(root / name))
    assert guest.refusal(asked) == "outside"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["root", "secret"]
    within = guest.spawn("true", spool=bytes(root / "deep" / "new"))
    assert guest.result(within)["spooled"] is True


PATHS = ["../secret", "link", "up/secret", "up"]


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    "op", ["read", "write", "edit", "scan", "search", "pull", "push"]
)
def test_what_leads_outside_is_refused(confined, op, name):
    guest, root = confined
    fields = {
        "read": {"offset": 0, "length": None},
        "write": {**WRITE, "body": b"x"},
        "edit": {"pieces": [[b"s", b"S", False]], "if_match": None},
        "scan": SCAN,
        "search": {**SEARCH, "pattern": "s"},
        "pull": {},
        "push": {"clear": True},
    }
    path = os.path.join(bytes(root), name.encode())
    assert guest.refusal(guest.open(op, path=path, **fields[op])) == "outside"
    assert (root.parent / "secret").read_text() == "secret"


def test_a_link_that_leads_outside_is_described_and_removed(confined):
    guest, root = confined
    assert scan(guest, root / "link", depth=0, follow=False)[0]
    remove(guest, root / "link")
    assert not (root / "link").is_symlink()
    assert (root.parent / "secret").exists()
    answer = remove(guest, root / "up/secret")
    assert answer.error is not None
    assert answer.error["code"] == "outside"


def test_a_neighbour_whose_name_begins_alike_is_outside(confined):
    guest, root = confined
    (root.parent / "rooted").mkdir()
    answer = guest.open("scan", path=bytes(root) + b"ed", **SCAN)
    assert guest.refusal(answer) == "outside"


# -- cancel, and what goes wrong ----------------------------------------------


@sees_descriptors
def test_every_operation_is_cancelled_or_done(guest, tmp_path):
    (tmp_path / "f").write_bytes(bytes(5_000_000))
    guest.generous = False
    before = descriptors(guest)
    path = bytes(tmp_path)
    for op, fields in {
        "read": {"path": path + b"/f", "offset": 0, "length": None},
        "write": {"path": path + b"/new", **WRITE},
        "edit": {"path": path + b"/f", "pieces": [[b"x", b"", True]], "if_match": None},
        "scan": {"path": path, **SCAN},
        "search": {"path": path, **SEARCH, "pattern": "x"},
        "remove": {"path": path + b"/absent", "recursive": True},
        "pull": {"path": path},
        "push": {"path": path + b"/to", "clear": False},
        "listen": {"port": 0},
        "datagrams": {"port": 0},
    }.items():
        answer = guest.open(op, **fields)
        guest.control(answer, "cancel")
        guest.wait(answer)
    eventually(lambda: guest.ping() < 5 and descriptors(guest) <= before)
    assert not (tmp_path / "new").exists()


def test_an_unknown_operation_is_refused(guest):
    assert guest.wait(guest.open("dance")).error is not None
    assert guest.ping() < 5


@pytest.mark.parametrize(
    "path", [b"/tmp/a\0b", b"/" + b"x/" * 3000, b"/" + b"y" * 300, b""]
)
def test_an_odd_path_is_refused(guest, path):
    answer = guest.wait(guest.open("read", path=path, offset=0, length=None))
    assert answer.error is not None
    assert guest.ping() < 5
