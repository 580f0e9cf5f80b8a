"""Archives on their way in and out."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._shell.archives import Incoming, Members, admitted
from isobox.errors import ArchiveError, PathIsDirectoryError

_FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def _member(name, kind=tarfile.REGTYPE, data=b"", target="", mode=0o644):
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, target, mode
    member.size = len(data)
    return member, data


def _archive(*members, kind=tarfile.PAX_FORMAT):
    file = io.BytesIO()
    with tarfile.open(
        fileobj=file, mode="w", format=kind, errors="surrogateescape"
    ) as archive:
        for member, data in members:
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


async def _pieces(data, size=700):
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def _joined(pieces):
    return b"".join([piece async for piece in pieces])


def _checked(data, links=(), folders=()):
    incoming = Incoming(set(links), set(folders))
    return anyio.run(lambda: _joined(incoming.checked(_pieces(data))))


def _read(data):
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        return [
            (
                member.name,
                member.type,
                member.mode,
                archive.extractfile(member).read() if member.isreg() else None,
            )
            for member in archive
        ]


@pytest.mark.parametrize("kind", _FORMATS)
def test_members_go_in_as_they_are(kind):
    long = "d" * 90 if kind == tarfile.USTAR_FORMAT else "ü" * 120
    data = _archive(
        _member("d", tarfile.DIRTYPE, mode=0o500),
        _member(f"d/{long}", data=b"x" * 3000, mode=0o6755),
        _member("d/link", tarfile.SYMTYPE, target="/anywhere"),
        kind=kind,
    )
    found = _read(_checked(data))
    assert found[0][:3] == ("./d", tarfile.DIRTYPE, 0o700)
    assert found[1] == (f"./d/{long}", tarfile.REGTYPE, 0o755, b"x" * 3000)
    assert found[2][:2] == ("./d/link", tarfile.SYMTYPE)
    assert found[3][:3] == ("./d", tarfile.DIRTYPE, 0o500)


@pytest.mark.parametrize("squeeze", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_archive_goes_in(squeeze):
    data = squeeze(_archive(_member("file", data=bytes(5 << 20))))
    assert _read(_checked(data))[0][3] == bytes(5 << 20)


@pytest.mark.parametrize(
    "members",
    [
        [_member("../x")],
        [_member("/x")],
        [_member("a/../../x")],
        [_member("fifo", tarfile.FIFOTYPE)],
        [_member("device", tarfile.CHRTYPE)],
        [_member("l", tarfile.SYMTYPE, target="/"), _member("l/x")],
        [_member("there/x")],
        [_member("there", tarfile.DIRTYPE)],
        [_member("hard", tarfile.LNKTYPE, target="../x")],
        [_member("hard", tarfile.LNKTYPE, target="there/x")],
    ],
    ids=str,
)
def test_what_leads_elsewhere_is_refused(members):
    with pytest.raises(ArchiveError):
        _checked(_archive(*members), links={"there"})


def test_a_file_over_a_directory_is_refused():
    with pytest.raises(PathIsDirectoryError):
        _checked(_archive(_member("d")), folders={"d"})


def test_a_link_that_is_replaced_leads_nowhere():
    members = [_member("there"), _member("new/x")]
    assert len(_read(_checked(_archive(*members), links={"there"}))) == 2


def test_what_is_no_file_does_not_come_out():
    data = _archive(
        _member("fifo", tarfile.FIFOTYPE),
        _member("same", tarfile.LNKTYPE, target="fifo"),
        _member("file", data=b"x"),
    )
    out = anyio.run(lambda: _joined(admitted(_pieces(data))))
    assert [name for name, *_ in _read(out)] == ["file"]


@given(
    st.lists(
        st.tuples(
            st.text("abcäß\n' ", min_size=1, max_size=120), st.binary(max_size=1500)
        ),
        max_size=5,
    ),
    st.sampled_from(_FORMATS[1:]),
    st.integers(1, 2000),
)
@settings(max_examples=60, deadline=None)
def test_contents_come_back_whole(files, kind, size):
    data = _archive(*(_member(name, data=body) for name, body in files), kind=kind)

    async def read():
        members = Members(_pieces(data, size), op="pull")
        return [
            (member.name, await _joined(members.content())) async for member in members
        ]

    expected = [(name.rstrip("/"), body) for name, body in files]
    assert anyio.run(read) == expected


@given(st.binary(max_size=3000), st.integers(0, 3000))
@settings(max_examples=150, deadline=None)
def test_lies_are_refused_and_end(noise, at):
    data = bytearray(_archive(_member("a" * 150, data=b"xyz"), _member("b")))
    data[at : at + len(noise)] = noise

    async def read():
        with anyio.fail_after(10):
            await _joined(Incoming(set(), set()).checked(_pieces(bytes(data))))

    with contextlib.suppress(ArchiveError, PathIsDirectoryError):
        anyio.run(read)


async def _found(members):
    return [(each.name, each.size) async for each in members]


def test_records_that_say_nothing_of_a_member_are_not_kept():
    records = b"".join(b"14 k%05d=abc\n" % number for number in range(40_000))
    said = b"".join((b"12 path=abc\n", b"9 size=0\n", records[: 1000 * 14]))
    members = Members(_pieces(b""), op="pull")
    assert members._pax(records) == {}
    assert members._pax(said + bytes(100)) == {"path": b"abc", "size": b"0"}


def test_a_sparse_member_is_refused_however_it_is_said():
    for name in ("GNU.sparse.map", "GNU.sparse.major"):
        member, data = _member("f")
        member.pax_headers = {name: "1"}
        members = Members(_pieces(_archive((member, data))), op="pull")
        with pytest.raises(ArchiveError, match="sparse"):
            anyio.run(_found, members)
