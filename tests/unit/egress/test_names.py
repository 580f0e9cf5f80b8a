"""Addresses that stand for names."""

from __future__ import annotations

import ipaddress

import pytest

from isobox._egress import names
from isobox._egress.names import Names


def test_a_name_has_one_address():
    given = Names("198.18.0.0/15")
    first = given.address("a.test")
    assert first == ipaddress.ip_address("198.18.0.1")
    assert given.address("b.test") == ipaddress.ip_address("198.18.0.2")
    assert given.address("a.test") == first
    assert given.host("198.18.0.1") == "a.test"
    assert given.host("198.18.0.2") == "b.test"


@pytest.mark.parametrize(
    ("dialled", "expected"),
    [
        ("93.184.216.34", "93.184.216.34"),
        ("2606:2800:220:1:0:0:0:1", "2606:2800:220:1::1"),
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:198.18.0.1", "a.test"),
        ("::ffff:93.184.216.34", "93.184.216.34"),
        ("198.18.0.0", None),
        ("198.18.0.2", None),
        ("198.19.255.255", None),
        ("127.0.0.1", None),
        ("127.1.2.3", None),
        ("::ffff:127.0.0.1", None),
        ("::1", None),
        ("0.0.0.0", None),
        ("::", None),
        ("a.test", None),
    ],
)
def test_what_was_dialled(dialled, expected):
    given = Names("198.18.0.0/15")
    given.address("a.test")
    assert given.host(dialled) == expected


def test_names_may_be_on_loopback():
    given = Names("127.64.0.0/10")
    given.address("a.test")
    assert given.host("127.64.0.1") == "a.test"
    assert given.host("127.64.0.2") is None
    assert given.host("127.0.0.1") is None


def test_a_network_may_be_used_up():
    given = Names("198.18.0.0/29")
    found = [given.address(f"{number}.test") for number in range(10)]
    assert found == [
        *(ipaddress.ip_address(f"198.18.0.{number}") for number in range(1, 7)),
        *[None] * 4,
    ]
    assert given.address("3.test") == ipaddress.ip_address("198.18.0.4")


def test_so_many_names_have_addresses(monkeypatch):
    monkeypatch.setattr(names, "_MOST", 3)
    given = Names("198.18.0.0/15")
    assert [given.address(f"{number}.test") is None for number in range(5)] == [
        False,
        False,
        False,
        True,
        True,
    ]
