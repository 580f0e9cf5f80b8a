"""What addresses reach."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._core import addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.8.8.8", "public"),
        ("93.184.216.34", "public"),
        ("172.15.255.255", "public"),
        ("172.32.0.0", "public"),
        ("2606:2800:220:1::1", "public"),
        ("64:ff9b::808:808", "public"),
        ("2002:808:808::1", "public"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "reserved"),
        ("0.1.2.3", "reserved"),
        ("::", "reserved"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("fd12::1", "private"),
        ("fec0::1", "private"),
        ("64:ff9b:1::808:808", "private"),
        ("169.254.1.1", "link_local"),
        ("fe80::1", "link_local"),
        ("169.254.169.254", "metadata"),
        ("169.254.170.2", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("192.0.2.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("224.0.0.1", "reserved"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("2001:db8::1", "reserved"),
        ("2001:2::1", "reserved"),
        ("ff02::1", "reserved"),
        ("4000::1", "reserved"),
        ("5f00::1", "reserved"),
        ("::8.8.8.8", "reserved"),
        ("::127.0.0.1", "reserved"),
        ("::ffff:0:8.8.8.8", "reserved"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("64:ff9b::a00:1", "private"),
        ("2002:7f00:1::1", "loopback"),
        ("2002:a9fe:a9fe::1", "metadata"),
        ("2001:0:808:808::f5ff:fffe", "reserved"),
        ("2606:2800:220:1:0:5efe:10.0.0.1", "private"),
        ("2606:2800:220:1:200:5efe:10.0.0.1", "private"),
        ("2606:2800:220:1:0:5efe:8.8.8.8", "public"),
    ],
)
def test_reach(text, expected):
    assert addresses.reach(ipaddress.ip_address(text)) == expected


@given(st.ip_addresses())
@settings(max_examples=1000)
def test_what_python_knows_not_to_be_global_is_not_public(address):
    # Not every Python looks at what is tunnelled; we do, and below is how.
    tunnelled = address.version == 6 and address.sixtofour is not None
    if not tunnelled and (not address.is_global or address.is_multicast):
        assert addresses.reach(address) != "public"


@given(st.ip_addresses(v=4))
def test_a_gateway_takes_an_address_nowhere_else(address):
    expected = addresses.reach(address)
    number = int(address)
    translated = ipaddress.IPv6Address((0x64FF9B << 96) | number)
    tunnelled = ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1)
    assert addresses.reach(translated) == expected
    assert addresses.reach(tunnelled) == expected
    assert address in addresses.carried(translated)
    assert address in addresses.carried(tunnelled)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.8.8.8", None),
        ("10.1.2.3", "10.0.0.0/8"),
        ("169.254.1.1", "169.254.0.0/16"),
        ("169.254.169.254", "169.254.169.254/32"),
        ("fd00:ec2::254", "fd00:ec2::254/128"),
        ("fd00::1", "fc00::/7"),
        ("64:ff9b::a00:1", None),
        ("4000::1", None),
    ],
)
def test_block(text, expected):
    block = addresses.block_of(ipaddress.ip_address(text))
    assert (block and str(block)) == expected
