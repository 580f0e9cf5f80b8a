"""Archives and directories that want to be skills."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import struct
import tarfile
import tempfile
import warnings
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isobox._workspace.skills import members, unpacking
from isobox._workspace.skills.package import packed
from isobox.errors import ArchiveError, InvalidArgumentError, IsoboxError, StorageError
from isobox.testing.contract.skills import directory, manual, tar_of, zip_of

SKILL = ("SKILL.md", manual("sums").encode())


def installed(source):
    """Return what the checked tar holds."""
    package = packed(source)
    with package.tar, tarfile.open(fileobj=package.tar) as archive:
        found = list(archive)
        assert all(each.isreg() or each.isdir() for each in found)
        return {each.name: stat.S_IMODE(each.mode) for each in found}


def refused(source):
    with pytest.raises(ArchiveError) as caught:
        packed(source)
    return caught.value


def zip_entry(name, *, mode=0, flags=0):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    info.flag_bits |= flags
    return info


def test_modes_are_plain(tmp_path):
    source = directory(tmp_path, run="#!/bin/sh\n", data="")
    os.chmod(os.path.join(source, "run"), 0o777)
    os.chmod(os.path.join(source, "data"), 0o600)
    found = installed(source)
    assert found == {".": 0o755, "SKILL.md": 0o644, "data": 0o644, "run": 0o755}


def test_the_only_directory_is_the_skill():
    made = tar_of(
        ("__MACOSX/._SKILL.md", b"x"),
        ("top/.DS_Store", b"x"),
        ("top/SKILL.md", SKILL[1]),
        ("top/a/b", b""),
    )
    assert set(installed(made)) == {".", "SKILL.md", "a/b"}
    with pytest.raises(InvalidArgumentError, match="no SKILL"):
        packed(tar_of(("one/SKILL.md", SKILL[1]), ("two/x", b"")))


def test_a_zip_of_windows_has_no_modes():
    assert installed(zip_of(SKILL, ("dir/", b""), ("dir/a", b"x")))["dir/a"] == 0o644


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../a", "leaves"),
        ("a/../../b", "leaves"),
        ("/etc/cron.d/a", "absolute"),
        ("a\\..\\b", "backslash"),
        ("a\nb", "no text"),
        ("a\x1b[2Jb", "no text"),
        ("a/" + "b" * 201, "over 200 bytes"),
        ("a/" * 600 + "b", "over 1024"),
        ("a/" * 33 + "b", "over 32 directories"),
        ("a\u2028b", "no text"),
        ("a\u202eb", "no text"),
        ("a\u200bb", "no text"),
        ("skill.md", "take it for"),
        ("SKILL.md/a", "a file and a directory"),
        ("SKILL.md", "twice"),
    ],
)
def test_a_name_is_refused(name, why):
    for made in (tar_of(SKILL, (name, b"")), _zip_with(name)):
        error = refused(made)
        assert why in error.message
        assert error.path == name
        assert error.message.isprintable()


def _zip_with(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return zip_of(SKILL, (name, b""))


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "A"), ("é", "e\u0301"), ("ß", "SS"), ("ﬁ", "fi"), ("Dir/x", "dir/y")],
)
def test_names_that_some_take_for_one_are_refused(one, other):
    for made in (
        tar_of(SKILL, (one, b""), (other, b"")),
        zip_of(SKILL, (one, b""), (other, b"")),
    ):
        assert "take it for" in refused(made).message


def test_a_name_in_no_encoding_is_refused():
    made = tar_of(SKILL, ("caf\udce9", b""))
    assert "no text" in refused(made).message
    plain = zip_of(SKILL, ("caf_", b"")).replace(b"caf_", b"caf\xe9")
    assert "no UTF-8" in refused(plain).message


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (stat.S_IFLNK | 0o777, "link"),
        (stat.S_IFCHR | 0o666, "device"),
        (stat.S_IFIFO | 0o666, "FIFO"),
        (stat.S_IFREG | 0o4755, "set-id"),
        (0o2755, "set-id"),
        (stat.S_IFDIR | 0o755, "directory at once"),
    ],
)
def test_a_kind_or_mode_in_a_zip_is_refused(mode, why):
    error = refused(zip_of(SKILL, (zip_entry("odd", mode=mode), b"x")))
    assert (error.path, why in error.message) == ("odd", True)


@pytest.mark.parametrize("bit", [0o4000, 0o2000])
def test_a_set_id_bit_in_a_tar_is_refused(bit):
    info = tarfile.TarInfo("odd")
    info.mode = 0o755 | bit
    assert "odd: it has a set-id bit" in refused(tar_of(SKILL, info)).message


def test_a_set_id_bit_in_a_directory_goes(tmp_path):
    source = directory(tmp_path, run="x")
    os.chmod(os.path.join(source, "run"), 0o4755)
    assert installed(source)["run"] == 0o755


def test_an_encrypted_zip_is_refused():
    made = bytearray(zip_of(SKILL, ("secret", b"x" * 100)))
    at = made.rindex(b"PK\1\2")
    made[at + 8] |= 1
    error = refused(bytes(made))
    assert error.message == "secret: it is encrypted"


def test_another_compression_is_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(*SKILL)
    assert "other than deflate" in refused(buffer.getvalue()).message


def test_a_sparse_member_is_refused():
    info = tarfile.TarInfo("odd")
    info.type = tarfile.GNUTYPE_SPARSE
    made = bytearray(tar_of(SKILL, info))
    assert refused(bytes(made)).path in ("odd", None)


def test_too_many_members_are_refused(monkeypatch):
    monkeypatch.setattr(members, "MOST", 100)
    many = [(f"{number}", b"") for number in range(101)]
    assert "over 100 members" in refused(zip_of(SKILL, *many)).message
    assert "over 100 members" in refused(tar_of(SKILL, *many)).message


def test_a_long_list_of_members_is_not_even_read(monkeypatch):
    made = bytearray(zip_of(SKILL))
    at = made.rindex(b"PK\5\6")
    struct.pack_into("<L", made, at + 12, unpacking._LARGEST_DIRECTORY + 1)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert "members" in refused(bytes(made)).message


def test_too_much_content_is_refused(monkeypatch):
    monkeypatch.setattr(members, "LARGEST", 1000)
    big = ("big", os.urandom(1001))
    for made in (zip_of(SKILL, big), tar_of(SKILL, big), tar_of(SKILL, big, gz=True)):
        assert refused(made).path == "big"


def test_headers_without_end_are_refused(monkeypatch):
    monkeypatch.setattr(unpacking, "_BESIDES", 600_000)
    assert "data" in installed(tar_of(SKILL, ("data", os.urandom(2_000_000))))
    info = tarfile.TarInfo("x")
    info.pax_headers = {"comment": "y" * 700_000}
    assert "600000 bytes of headers" in refused(tar_of(SKILL, info)).message


def test_a_large_archive_is_refused(tmp_path, monkeypatch):
    archive = tmp_path / "a.zip"
    archive.write_bytes(zip_of(SKILL))
    for module in ("package", "unpacking"):
        name = f"isobox._workspace.skills.{module}.LARGEST_ARCHIVE"
        monkeypatch.setattr(name, 10)
    assert "over 10 bytes" in refused(archive).message
    assert "over 10 bytes" in refused(archive.read_bytes()).message


def test_a_tar_in_a_gzip_in_a_gzip_is_no_tar():
    assert "broken" in refused(gzip.compress(tar_of(SKILL, gz=True))).message


@pytest.mark.parametrize("cut", [1, 30, 100, -1, -20])
def test_a_cut_archive_is_refused(cut):
    for made in (zip_of(SKILL), tar_of(SKILL, gz=True)):
        with pytest.raises((ArchiveError, InvalidArgumentError)):
            packed(made[:cut])


@pytest.mark.parametrize("cut", [1024, 1224, 1536, 2048, 2300, 2560])
def test_a_cut_tar_is_no_smaller_skill(cut):
    made = tar_of(SKILL, ("a", b"1" * 600), ("b", b"2"))
    assert "broken" in refused(made[:cut]).message


def test_a_broken_header_is_not_the_end():
    made = bytearray(tar_of(SKILL, ("a", b"1"), ("b", b"2")))
    made[1024 + 200] ^= 1
    assert "broken" in refused(bytes(made)).message


def test_a_sparse_map_is_not_read():
    info = tarfile.TarInfo("odd")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    assert "sparse" in refused(tar_of(SKILL, info)).message


def test_a_deep_name_takes_no_time_and_no_memory(monkeypatch):
    calls = []
    fold = members._folded
    monkeypatch.setattr(
        members, "_folded", lambda part: calls.append(part) or fold(part)
    )
    installed(tar_of(SKILL, ("a/" * 31 + "b", b"")))
    assert len(calls) == 33


def test_names_may_have_joined_characters():
    name = "\U0001f468\u200d\U0001f469.md"
    for made in (tar_of(SKILL, (name, b"")), zip_of(SKILL, (name, b""))):
        assert name in installed(made)


def test_a_wrong_sum_is_refused():
    made = bytearray(zip_of(SKILL, ("data", b"x" * 100)))
    at = made.rindex(b"PK\1\2")
    made[at + 16] ^= 0xFF
    made[made.index(b"PK\3\4", 10) + 14] ^= 0xFF
    assert "broken" in refused(bytes(made)).message


def test_a_manual_that_is_no_text_is_refused():
    for text in (SKILL[1] + b"\xff", SKILL[1] + b"\0"):
        with pytest.raises(InvalidArgumentError, match="not UTF-8"):
            packed(tar_of(("SKILL.md", text)))
    with pytest.raises(InvalidArgumentError, match="at most"):
        packed(tar_of(("SKILL.md", SKILL[1] + b"x" * (1 << 20))))
    info = tarfile.TarInfo("SKILL.md")
    info.type = tarfile.DIRTYPE
    with pytest.raises(InvalidArgumentError, match="no file"):
        packed(tar_of(info))


@pytest.mark.parametrize("kind", ["directory", "zip", "tar"])
def test_a_host_without_room_is_no_broken_archive(tmp_path, monkeypatch, kind):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    made = {"zip": zip_of, "tar": tar_of}.get(kind)
    source = made(SKILL) if made else directory(tmp_path)
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda _: Full())
    with pytest.raises(StorageError, match="No space left") as caught:
        packed(source)
    assert caught.value.errno == errno.ENOSPC


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_no_archive_makes_it_fail(data):
    made = data.draw(
        st.sampled_from([zip_of(SKILL, ("a/b", b"x" * 50)), tar_of(SKILL, gz=True),
                         tar_of(SKILL, ("a/b", b"x" * 50))])
    )  # fmt: skip
    changed = bytearray(made)
    for _ in range(data.draw(st.integers(1, 8))):
        changed[data.draw(st.integers(0, len(made) - 1))] = data.draw(
            st.integers(0, 255)
        )
    try:
        package = packed(bytes(changed))
    except (ArchiveError, InvalidArgumentError):
        return
    package.tar.close()


@given(st.binary(max_size=3000))
def test_no_bytes_make_it_fail(data):
    for head in (b"", b"PK\3\4", b"\x1f\x8b\x08", bytes(257) + b"ustar"):
        with pytest.raises(IsoboxError):
            packed(head + data)
