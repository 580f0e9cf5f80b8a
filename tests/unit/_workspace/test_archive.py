"""Trees as tar streams, between a directory and another."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import stat
import subprocess
import tarfile
import tempfile
import threading
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.descriptors import none_left_open, opened

from isobox._workspace import archive
from isobox.errors import (
    ArchiveError,
    IsoboxError,
    PathAccessError,
    StorageError,
)

if TYPE_CHECKING:
    from pathlib import Path

NAMES = st.sampled_from(
    [
        b"a",
        b"b",
        b"\xff",
        b"new\nline",
        b"-rf",
        b" ",
        b"x" * 255,
        "é".encode(),
        b"...",
        b"c.d",
    ]
)
SIZES = st.sampled_from([0, 1, 511, 512, 70_000])
LEAVES = (
    st.tuples(st.just("file"), SIZES, st.sampled_from([0o600, 0o644, 0o755]))
    | st.tuples(st.just("link"), NAMES)
    | st.just(("fifo",))
)
TREES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=3),
    lambda below: st.dictionaries(NAMES, LEAVES | below, max_size=3),
    max_leaves=8,
)


def build(folder: bytes, tree: dict) -> None:
    os.makedirs(folder, exist_ok=True)
    for name, what in tree.items():
        path = folder + b"/" + name
        if isinstance(what, dict):
            build(path, what)
        elif what[0] == "file":
            with open(path, "wb") as file:
                file.write(b"x" * what[1])
            os.chmod(path, what[2])
        elif what[0] == "link":
            os.symlink(what[1], path)
        else:
            os.mkfifo(path)


def described(folder: bytes, base: int | None = None) -> dict[bytes, tuple]:
    """Map what is below a directory to all that an archive keeps of it."""
    found: dict[bytes, tuple] = {}
    base = len(folder) if base is None else base
    for item in os.scandir(folder):
        st_ = item.stat(follow_symlinks=False)
        mode = st_.st_mode
        if stat.S_ISDIR(mode):
            found[item.path[base:]] = ("directory", stat.S_IMODE(mode))
            found |= described(item.path, base)
        elif stat.S_ISREG(mode):
            with open(item.path, "rb") as file:
                times = int(st_.st_mtime * 1000)
                found[item.path[base:]] = (file.read(), stat.S_IMODE(mode), times)
        elif stat.S_ISLNK(mode):
            found[item.path[base:]] = ("link", os.readlink(item.path))
    return found


def packed(root: bytes | str | os.PathLike[str]) -> bytes:
    async def gathered() -> bytes:
        async with archive.Source(os.fsdecode(root)) as source:
            return b"".join([piece async for piece in source])

    return anyio.run(gathered)


@given(TREES)
@settings(deadline=None, max_examples=60)
def test_what_is_packed_is_unpacked(tree):
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.fsencode(folder) + b"/from", os.fsencode(folder) + b"/to"
        build(source, tree)
        count = archive.unpack(io.BytesIO(packed(source)), os.fsdecode(target))
        assert described(target) == described(source)
        assert count == len(described(source)) + 1


@given(TREES)
@settings(deadline=None, max_examples=30)
def test_what_is_packed_is_an_archive_for_others(tree):
    with tempfile.TemporaryDirectory() as folder:
        build(os.fsencode(folder), tree)
        raw = packed(folder)
        assert len(raw) % 512 == 0
        with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
            assert len(tar.getnames()) == len(described(os.fsencode(folder))) + 1


@given(st.binary(max_size=3000), st.integers(0, 2000))
@settings(deadline=None, max_examples=60)
def test_any_bytes_are_unpacked_or_refused(noise, at):
    info = tarfile.TarInfo("file")
    info.size = 700
    raw = bytearray(info.tobuf() + bytes(1024) + info.tobuf() + bytes(2048))
    raw[at : at + len(noise)] = noise
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(IsoboxError):
            archive.unpack(io.BytesIO(raw), folder + "/to")
        assert os.listdir(folder) == ["to"]


def test_what_is_there_already_stays_or_is_replaced(tmp_path):
    source, target = tmp_path / "from", tmp_path / "to"
    (source / "d").mkdir(parents=True)
    (source / "d/f").write_text("new")
    (target / "d").mkdir(parents=True)
    (target / "d/f").write_text("old")
    (target / "d/kept").write_text("kept")
    held = open(target / "d/f")  # noqa: SIM115
    archive.unpack(io.BytesIO(packed(source)), str(target))
    with held:
        assert held.read() == "old"
    assert (target / "d/f").read_text() == "new"
    assert (target / "d/kept").read_text() == "kept"


def test_a_file_where_a_directory_is_cannot_come(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from/x").write_text("file")
    (tmp_path / "to/x").mkdir(parents=True)
    with pytest.raises(StorageError):
        archive.unpack(io.BytesIO(packed(tmp_path / "from")), str(tmp_path / "to"))


def test_a_file_that_shrinks_does_not_shift_what_follows(tmp_path):
    (tmp_path / "a").write_bytes(bytes(5_000_000))
    (tmp_path / "b").write_text("after")

    async def shrunk() -> bytes:
        pieces = []
        async with archive.Source(str(tmp_path)) as source:
            async for piece in source:
                pieces.append(piece)
                os.truncate(tmp_path / "a", 1000)
        return b"".join(pieces)

    with tarfile.open(fileobj=io.BytesIO(anyio.run(shrunk))) as tar:
        after = tar.extractfile("./b")
        assert after is not None
        assert after.read() == b"after"


def test_times_of_directories_are_set_after_their_content(tmp_path):
    (tmp_path / "from/d").mkdir(parents=True)
    (tmp_path / "from/d/f").touch()
    os.utime(tmp_path / "from/d", (1_000_000, 1_000_000))
    archive.unpack(io.BytesIO(packed(tmp_path / "from")), str(tmp_path / "to"))
    assert (tmp_path / "to/d").stat().st_mtime == 1_000_000


def test_a_directory_that_cannot_be_entered_is_unpacked_all_the_same(tmp_path):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        folder = tarfile.TarInfo("d")
        folder.type, folder.mode = tarfile.DIRTYPE, 0
        tar.addfile(folder)
        tar.addfile(tarfile.TarInfo("d/f"))
    file.seek(0)
    archive.unpack(file, str(tmp_path))
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700


def names(raw: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        return tar.getnames()


DEPTH = 2100


@pytest.fixture
def deep(tmp_path):
    """A tree whose lowest path is longer than the system takes one."""
    top = tmp_path / "deep"
    top.mkdir()
    try:
        fd = os.open(top, os.O_RDONLY)
        for _ in range(DEPTH):
            os.mkdir("d", dir_fd=fd)
            os.close(os.open("z", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
            below = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.close(fd)
        yield top
    finally:
        # Python's own way of removing it would exhaust the stack.
        subprocess.run(["rm", "-rf", top], check=True)


def test_a_very_deep_tree_is_packed_with_few_descriptors(deep):
    before, most = len(opened()), 0

    async def gathered() -> bytes:
        nonlocal most
        pieces = []
        async with archive.Source(str(deep)) as source:
            async for piece in source:
                pieces.append(piece)
                most = max(most, len(opened()))
        return b"".join(pieces)

    with none_left_open():
        packed_names = names(anyio.run(gathered))
    assert most < before + 100
    assert len(packed_names) == 2 * DEPTH + 1
    assert packed_names[-1] == "./z"
    assert packed_names[DEPTH] == "./" + "/".join("d" * DEPTH)


def test_an_archive_that_nobody_reads_to_its_end_leaves_nothing_open(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_bytes(bytes(3 << 20))

    async def begun() -> None:
        async with archive.Source(str(tmp_path)) as source:
            async for _ in source:
                break

    with none_left_open():
        anyio.run(begun)


@pytest.mark.anyio
async def test_a_read_that_is_cancelled_leaves_nothing_open(tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(b"x")
    began, go_on = threading.Event(), threading.Event()
    read = os.read

    def slow(fd: int, size: int) -> bytes:
        began.set()
        assert go_on.wait(10)
        return read(fd, size)

    async def reading() -> None:
        async with archive.Source(str(tmp_path / "f")) as source:
            with monkeypatch.context() as patched:
                patched.setattr("isobox._workspace.archive.os.read", slow)
                await anext(source)

    with none_left_open():
        task = asyncio.ensure_future(reading())
        await anyio.to_thread.run_sync(began.wait)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's place")
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_may_not_be_read_says_so(tmp_path, kind):
    path = tmp_path / "d/secret"
    path.parent.mkdir()
    path.touch() if kind == "file" else path.mkdir()
    path.chmod(0)
    for folder in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        folder.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(PathAccessError, match="secret") as error:
            packed(tmp_path)
    finally:
        os.seteuid(0)
    assert error.value.path == str(path)


# -- what was there already -------------------------------------------------------


def tar_of(*members: tuple[str, bytes, int]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind, mode in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = kind, mode, 1
            tar.addfile(info)
    file.seek(0)
    return file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


D, F = tarfile.DIRTYPE, tarfile.REGTYPE


def test_directories_that_were_there_keep_their_modes_and_times(tmp_path):
    into = tmp_path / "into"
    for folder in (into, into / "d", into / "d/e"):
        folder.mkdir(mode=0o700)
    raw = tar_of((".", D, 0o777), ("d", D, 0o777), ("d/e", D, 0o777))
    archive.unpack(raw, str(into))
    for folder in (into, into / "d", into / "d/e"):
        assert mode_of(folder) == 0o700
        assert folder.stat().st_mtime != 1


def test_nothing_comes_that_others_may_write(tmp_path):
    into = tmp_path / "into"
    raw = tar_of((".", D, 0o777), ("d", D, 0o777), ("f", F, 0o666), ("x", F, 0o777))
    archive.unpack(raw, str(into))
    assert [mode_of(into / name) for name in (".", "d", "f", "x")] == [
        0o755, 0o755, 0o644, 0o755,
    ]  # fmt: skip
    with archive.Replaced(str(into / "one"), 0o666, 0) as file:
        file.write(b"x")
    assert mode_of(into / "one") == 0o644


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (".git/hooks/x", ".git"),
        ("deep/.vscode/tasks.json", ".vscode"),
        ("./.ENVRC", ".envrc"),
    ],
)
def test_protected_names_do_not_join_what_is_there(tmp_path, name, rule):
    (tmp_path / "mine").touch()
    with pytest.raises(ArchiveError, match=re.escape(rule)) as error:
        archive.unpack(tar_of((name, F, 0o755)), str(tmp_path))
    assert error.value.path == name
    assert os.listdir(tmp_path) == ["mine"]


def test_a_hard_link_makes_no_protected_directory(tmp_path):
    (tmp_path / "mine").touch()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.LNKTYPE, ".git/hooks/x"
        tar.addfile(info)
    file.seek(0)
    with pytest.raises(ArchiveError, match="protected"):
        archive.unpack(file, str(tmp_path))
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize("there", [True, False])
def test_protected_names_come_into_a_new_or_an_empty_directory(tmp_path, there):
    into = tmp_path / "into"
    if there:
        into.mkdir()
    archive.unpack(tar_of((".git/hooks/x", F, 0o755)), str(into))
    assert (into / ".git/hooks/x").exists()


def test_a_place_that_is_a_file_is_an_error_of_the_tree(tmp_path):
    (tmp_path / "f").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        archive.unpack(tar_of(("x", F, 0o644)), str(tmp_path / "f"))


# -- holes ------------------------------------------------------------------------

HOLES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 4096, 65535, 65536, 65537, 200_000]), st.booleans()
    ),
    max_size=6,
)


@given(HOLES, st.sampled_from([1000, 65536, 1 << 18]))
@settings(deadline=None, max_examples=60)
def test_a_file_with_holes_has_the_same_content(stretches, cut):
    data = b"".join(bytes((solid,)) * size for size, solid in stretches)
    with tempfile.TemporaryDirectory() as folder:
        with archive.Replaced(folder + "/f", 0o644, 0) as file:
            for at in range(0, len(data), cut):
                file.write(data[at : at + cut])
        with open(folder + "/f", "rb") as read:
            assert read.read() == data


def test_what_is_empty_takes_no_room(tmp_path):
    size = 32 << 20
    (tmp_path / "from").mkdir()
    with open(tmp_path / "from/f", "wb") as file:
        file.write(b"begin")
        file.truncate(size)
    archive.unpack(io.BytesIO(packed(tmp_path / "from")), str(tmp_path / "to"))
    with archive.Replaced(str(tmp_path / "one"), 0o644, 0) as replaced:
        for _ in range(size // 1000):
            replaced.write(bytes(1000))
    assert (tmp_path / "to/f").stat().st_size == size
    assert (tmp_path / "one").stat().st_size == size // 1000 * 1000
    for path in (tmp_path / "to/f", tmp_path / "one"):
        assert path.stat().st_blocks * 512 <= 1 << 18


# -- races ------------------------------------------------------------------------


class Flipping:
    """Somebody who turns a directory into a link and back while it is unpacked."""

    def __init__(self, folder: Path, outside: Path) -> None:
        self._folder = folder
        self._outside = outside
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        aside = self._folder.with_name("aside")
        link = self._folder.with_name("link")
        link.symlink_to(self._outside)
        while not self._ended.is_set():
            for here, there in ((self._folder, aside), (link, self._folder)):
                self._move(here, there)
            for here, there in ((self._folder, link), (aside, self._folder)):
                self._move(here, there)

    @staticmethod
    def _move(here: Path, there: Path) -> None:
        with contextlib.suppress(OSError):
            os.rename(here, there)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.parametrize("kind", ["files", "links", "hard links", "directories"])
def test_nobody_leads_a_member_elsewhere(tmp_path, kind):
    outside, into = tmp_path / "outside", tmp_path / "into"
    (outside / "deep").mkdir(parents=True)
    (outside / "f0").write_text("untouched")
    before = described(os.fsencode(outside))
    (into / "d").mkdir(parents=True)
    (into / "source").write_text("x")
    raw = many(kind)
    met = 0
    with Flipping(into / "d", outside):
        for _ in range(60):
            try:
                archive.unpack(io.BytesIO(raw), str(into))
            except (ArchiveError, StorageError):
                met += 1
    assert described(os.fsencode(outside)) == before


def many(kind: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number in range(40):
            info = tarfile.TarInfo(f"d/f{number}")
            if kind == "links":
                info.type, info.linkname = tarfile.SYMTYPE, "x"
            elif kind == "hard links":
                info.type, info.linkname = tarfile.LNKTYPE, "source"
            elif kind == "directories":
                info.name, info.type = f"d/deep/d{number}", tarfile.DIRTYPE
            tar.addfile(info)
    return file.getvalue()


# -- one file ---------------------------------------------------------------------


def test_a_replaced_file_is_the_old_one_until_it_is_whole(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    with archive.Replaced(str(path), 0o4750, 1_500_000_000_000_000_000) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert path.stat().st_mtime == 1_500_000_000
    assert os.listdir(tmp_path) == ["f"]


def broken_off(path: Path) -> None:
    with archive.Replaced(str(path), 0o644, 0) as file:
        file.write(b"half")
        raise KeyError


def test_a_replacement_that_fails_leaves_nothing(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    with pytest.raises(KeyError):
        broken_off(path)
    assert os.listdir(tmp_path) == ["f"]
    assert path.read_text() == "old"


def test_a_link_is_replaced_not_followed(tmp_path):
    (tmp_path / "target").write_text("target")
    (tmp_path / "link").symlink_to("target")
    with archive.Replaced(str(tmp_path / "link"), 0o644, 0) as file:
        file.write(b"new")
    assert (tmp_path / "target").read_text() == "target"
    assert not (tmp_path / "link").is_symlink()


def test_the_longest_name_is_replaced_too(tmp_path):
    path = tmp_path / ("x" * 255)
    with archive.Replaced(str(path), 0o644, 0) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_name_without_a_directory_is_in_this_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with archive.Replaced("f", 0o644, 0) as file:
        file.write(b"new")
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("name", ["absent/f", "file/f"])
def test_a_place_that_is_none_is_an_error_of_the_tree(tmp_path, name):
    (tmp_path / "file").touch()
    with (
        pytest.raises(StorageError, match="cannot be written"),
        archive.Replaced(str(tmp_path / name), 0o644, 0),
    ):
        pass


def test_a_directory_in_its_place_is_not_replaced(tmp_path):
    (tmp_path / "d").mkdir()
    with (
        pytest.raises(OSError, match="directory"),
        archive.Replaced(str(tmp_path / "d"), 0o644, 0),
    ):
        pass
    assert os.listdir(tmp_path) == ["d"]
