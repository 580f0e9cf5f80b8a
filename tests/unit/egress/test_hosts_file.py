"""What the host's own file of names says."""

from __future__ import annotations

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
    return path


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
