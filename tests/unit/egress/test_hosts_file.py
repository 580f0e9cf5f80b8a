"""What the host's own file of names says."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from isobox._egress import hosts_file

TEXT = b"""\
# 192.0.2.1 comment.test
127.0.0.1 localhost
192.0.2.2\tOne.Test  two.test # three.test
192.0.2.3 two.test
2001:db8::1 two.test
fe80::1%eth0 zone.test
not-an-address odd.test
\xff.0.2.4 odd.test
192.0.2.5

192.0.2.6 last.test"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    path = tmp_path / "hosts"
    monkeypatch.setattr(hosts_file, "PATH", str(path))
    monkeypatch.setattr(hosts_file, "_KNOWN", {})
    return path


@pytest.fixture
def settled(monkeypatch):
    """Let every change of the file be seen by its time."""
    monkeypatch.setattr(hosts_file, "_SETTLED", -1)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("one.test", ["192.0.2.2"]),
        ("two.test", ["192.0.2.2", "192.0.2.3", "2001:db8::1"]),
        ("last.test", ["192.0.2.6"]),
        ("localhost", ["127.0.0.1"]),
        ("test", []),
        ("e.test", []),
        ("comment.test", []),
        ("three.test", []),
        ("zone.test", []),
        ("odd.test", []),
        ("192.0.2.5", []),
    ],
)
def test_what_a_name_means(own, name, found):
    own.write_bytes(TEXT)
    assert hosts_file.addresses(name) == found


def test_without_a_file_there_are_no_names(own):
    assert hosts_file.addresses("a.test") == []


def test_what_is_no_file_names_nothing(own):
    own.mkdir()
    assert hosts_file.addresses("a.test") == []


def test_so_much_is_read(own, monkeypatch):
    monkeypatch.setattr(hosts_file, "_MOST", 22)
    own.write_bytes(b"192.0.2.1 a.test a.test\n192.0.2.2 a.test\n")
    assert hosts_file.addresses("a.test") == ["192.0.2.1"]


@pytest.mark.usefixtures("settled")
def test_what_was_found_is_known_until_the_file_changes(own):
    own.write_bytes(TEXT)
    assert hosts_file.known("one.test") is None
    assert hosts_file.addresses("one.test") == ["192.0.2.2"]
    assert hosts_file.known("one.test") == ["192.0.2.2"]
    own.write_bytes(TEXT + b"\n192.0.2.7 one.test")
    assert hosts_file.known("one.test") is None
    assert hosts_file.addresses("one.test") == ["192.0.2.2", "192.0.2.7"]


@pytest.mark.usefixtures("settled")
def test_it_is_known_that_a_name_has_none(own):
    own.write_bytes(TEXT)
    assert hosts_file.addresses("a.test") == []
    assert hosts_file.known("a.test") == []


@pytest.mark.usefixtures("settled")
def test_another_file_in_its_place_is_a_change(own, tmp_path):
    own.write_bytes(b"192.0.2.1 a.test")
    assert hosts_file.addresses("a.test") == ["192.0.2.1"]
    other = tmp_path / "other"
    other.write_bytes(b"192.0.2.2 a.test")
    os.utime(other, ns=(own.stat().st_atime_ns, own.stat().st_mtime_ns))
    other.replace(own)
    assert hosts_file.known("a.test") is None


@pytest.mark.usefixtures("settled")
def test_of_a_file_that_is_gone_nothing_is_known(own):
    own.write_bytes(TEXT)
    assert hosts_file.addresses("one.test") == ["192.0.2.2"]
    own.unlink()
    assert hosts_file.known("one.test") is None


def test_of_a_file_that_changed_just_now_nothing_is_known(own, monkeypatch):
    # Another change might leave its time as it is.
    monkeypatch.setattr(hosts_file, "_SETTLED", 1 << 62)
    own.write_bytes(TEXT)
    assert hosts_file.addresses("one.test") == ["192.0.2.2"]
    assert hosts_file.known("one.test") is None


@pytest.mark.usefixtures("settled")
def test_it_is_read_once_for_all_names(own, monkeypatch):
    own.write_bytes(TEXT)
    opened = []

    def opening(path, mode):
        opened.append(path)
        return open(path, mode)

    monkeypatch.setattr(hosts_file, "open", opening, raising=False)
    with ThreadPoolExecutor(8) as threads:
        names = [f"a{number}.test" for number in range(50)] + ["one.test"]
        assert list(threads.map(hosts_file.addresses, names))[-2:] == [
            [],
            ["192.0.2.2"],
        ]
    assert opened == [str(own)]
    own.write_bytes(TEXT + b"\n192.0.2.7 a1.test")
    assert hosts_file.addresses("a1.test") == ["192.0.2.7"]
    assert len(opened) == 2


def test_a_list_of_hosts_is_read_in_pieces(own):
    class Lines(io.BytesIO):
        def read(self, *_):
            raise AssertionError("all of it at once")

    text = b"".join(b"0.0.0.0 x%d.test\n" % number for number in range(1000))
    found = hosts_file._names(Lines(text))
    assert len(found) == 1000
    assert found[b"x999.test"] == ["0.0.0.0"]
