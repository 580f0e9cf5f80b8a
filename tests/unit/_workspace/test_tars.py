"""Tar streams: what is read of them, and what is refused without much work."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._workspace import archive
from isobox._workspace.tars import Tar
from isobox.errors import ArchiveError


def block(name, data, kind=tarfile.REGTYPE):
    """Return a member as it stands in a tar."""
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data), kind
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def record(name, value):
    """Return a record of a PAX header."""
    length = len(name) + len(value) + 3
    size = next(
        size for size in range(length, length + 9) if length + len(str(size)) == size
    )
    return f"{size} {name}={value}\n".encode()


def pax(*records, kind=tarfile.XHDTYPE):
    return block("x", b"".join(records), kind)


def read(data):
    tar = Tar(io.BytesIO(data + bytes(1024)))
    return [(member.name, whole(content)) for member, content in tar]


def whole(content):
    pieces = []
    while piece := content.read(100):
        pieces.append(piece)
    return b"".join(pieces)


NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0/"),
    min_size=1,
    max_size=150,
)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@given(files=st.dictionaries(NAMES, st.binary(max_size=1100), max_size=5))
def test_what_was_packed_is_read(form, files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert dict(read(buffer.getvalue())) == files


def test_what_is_not_read_is_passed_over():
    data = block("a", b"1" * 2000) + block("b", b"2") + bytes(1024)
    names = [member.name for member, _ in Tar(io.BytesIO(data))]
    assert names == ["a", "b"]


def test_the_last_of_several_headers_holds():
    said = pax(record("path", "one")) + pax(record("path", "two"), record("x", "y"))
    assert read(said * 500 + block("a", b"1")) == [("two", b"1")]
    assert read(said + block("a", b"1") + block("b", b"")) == [
        ("two", b"1"),
        ("b", b""),
    ]


def test_a_header_for_all_may_say_what_is_no_ones_own():
    comment = pax(record("comment", "c" * 40), kind=tarfile.XGLTYPE)
    assert read(comment * 500 + block("a", b"1")) == [("a", b"1")]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pax(b"1" * 100_000), "broken header"),
        (pax(b"9 a=b\n"), "broken header"),
        (pax(b"6 abc\n"), "broken header"),
        (pax(b"3 a=b\n"), "broken header"),
        (pax(b"0 a=b\n"), "broken header"),
        (pax(record("size", "-5")), "size that is none"),
        (pax(record("size", "9" * 5000)), "size that is none"),
        (pax(record("GNU.sparse.map", "0,1")), "sparse"),
        (pax(record("path", "a"), kind=tarfile.XGLTYPE), "all members"),
        (block("L", b"a\0", tarfile.GNUTYPE_LONGNAME), "too early"),
        (pax(b" " * ((1 << 20) + 1)), "too long"),
        (block("s", b"", tarfile.GNUTYPE_SPARSE), "sparse"),
    ],
)
def test_a_header_is_refused(data, why):
    after = b"" if "early" in why else block("a", b"1")
    with pytest.raises(tarfile.TarError, match=why):
        read(data + after)


def test_a_size_below_nothing_is_refused():
    made = bytearray(block("a", b""))
    made[124:136] = b"\xff" * 12
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(made[:512])
    with pytest.raises(tarfile.TarError, match="below 0"):
        read(bytes(made))


@pytest.mark.parametrize("length", [0, 1, 511, 512, 900, 1024, 1500])
def test_what_ends_too_early_is_refused(length):
    data = block("a", b"1" * 700) + block("b", b"2")
    with pytest.raises(tarfile.TarError):
        list(Tar(io.BytesIO(data[:length])))


@pytest.mark.parametrize(
    "data", [pax(b"1" * 500_000), block("a", b"1" * 700)[:1024], block("a", b"")]
)
def test_what_a_sandbox_sends_is_read_with_the_same_suspicion(tmp_path, data):
    with pytest.raises(ArchiveError):
        archive.unpack(io.BytesIO(data), str(tmp_path / "to"))
