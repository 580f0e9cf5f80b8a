"""Hosts have one form."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._core import hosts
from isobox._policy.network import NetworkRule
from isobox.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("example.org", "example.org"),
        ("EXAMPLE.Org.", "example.org"),
        ("a_b.example", "a_b.example"),
        ("_sip._tcp.example", "_sip._tcp.example"),
        ("a--b.example", "a--b.example"),
        ("host", "host"),
        ("1e100.net", "1e100.net"),
        ("4.example", "4.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("example\u3002org", "example.org"),
        ("\uff45xample.org", "example.org"),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[::FFFF:c000:201]", "192.0.2.1"),
        (".".join(["a" * 63] * 3 + ["b" * 61]), ".".join(["a" * 63] * 3 + ["b" * 61])),
    ],
)
def test_normal(text, expected):
    assert hosts.normal(text) == expected
    assert hosts.normal(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        "a.b..",
        ".a",
        "-a.b",
        "a-.b",
        "a b",
        "a\0b",
        "a\r\nb",
        "a/b",
        "a:80",
        "a@b",
        "*.a",
        "[a]",
        "[192.0.2.1]",
        "[::1",
        "::1]",
        "fe80::1%eth0",
        "[fe80::1%25eth0]",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "1.2.3.04",
        "1.2.3.4.",
        "192.0.2.256",
        "a.0x",
        "a.1",
        "\u2460.0.0.1",
        "192\u30020\u30022\u30021",
        "a\u00adb\ud800",
        "x" * 64,
        ".".join(["a" * 63] * 4),
        "ü" * 5000,
    ],
)
def test_not_a_host(text):
    with pytest.raises(InvalidArgumentError):
        hosts.normal(text)


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [
        ("*", "a.test", True),
        ("a.test", "a.test", True),
        ("a.test", "b.a.test", False),
        ("*.a.test", "b.a.test", True),
        ("*.a.test", "c.b.a.test", True),
        ("*.a.test", "a.test", False),
        ("*.a.test", ".a.test", False),
        ("*.a.test", "evila.test", False),
    ],
)
def test_matches(pattern, host, expected):
    assert hosts.matches(pattern, host) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.test", "a.test", True),
        ("a.test", "b.test", False),
        ("*", "a.test", True),
        ("*", "*.a.test", True),
        ("*.a.test", "*.a.test", True),
        ("*.a.test", "b.a.test", True),
        ("*.a.test", "*.b.a.test", True),
        ("*.a.test", "a.test", False),
        ("*.a.test", "*.b.test", False),
        ("*.a.test", "*.evila.test", False),
    ],
)
def test_overlap(one, other, expected):
    assert hosts.overlap(one, other) is expected
    assert hosts.overlap(other, one) is expected


def test_pattern():
    assert hosts.pattern("*") == "*"
    assert hosts.pattern("*.Bücher.Example.") == "*.xn--bcher-kva.example"
    assert hosts.pattern("A.test") == "a.test"
    for wrong in ("*.", "*.*", "a.*", "*a.test", "*.192.0.2.1", "**"):
        with pytest.raises(InvalidArgumentError):
            hosts.pattern(wrong)


NAMES = st.text(max_size=80) | st.text("aäßAZ0129x.-_*[]:%\u3002\ud800", max_size=20)


@given(NAMES)
@settings(max_examples=1000)
def test_nothing_but_a_refusal_comes_of_any_text(text):
    for read in (hosts.normal, hosts.pattern, hosts.address_of):
        try:
            found = read(text)
        except InvalidArgumentError:
            continue
        if found is not None:
            assert read(str(found)) == found


@given(NAMES)
@settings(max_examples=500)
def test_a_rule_is_about_the_host_that_it_is_written_as(text):
    try:
        host = hosts.normal(text)
        rule = NetworkRule(host=text)
    except InvalidArgumentError:
        return
    assert rule.covers(host, 443)
    assert rule.host == host


@given(st.ip_addresses())
def test_addresses_are_written_as_python_does(address):
    mapped = getattr(address, "ipv4_mapped", None)
    assert hosts.normal(str(address)) == str(mapped or address)
    assert hosts.address_of(str(address)) == (mapped or address)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_the_ipv4_address(address):
    mapped = ipaddress.IPv6Address(f"::ffff:{address}")
    assert hosts.normal(str(mapped)) == str(address)
