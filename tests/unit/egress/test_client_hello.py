"""The first message of a TLS client, whole, in pieces and wrong."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.egress.hellos import (
    NAME,
    alpn,
    block,
    ech,
    extension,
    hello,
    message,
    names,
    openssl,
    record,
    records,
)

from isobox._egress.client_hello import LARGEST, MOST_RECORDS, ClientHello, parse
from isobox._egress.parsing import ParseError

FULL = message(names(NAME), alpn(b"h2", b"http/1.1"), ech(), extension(43, b"\2\3\4"))


def test_openssl_is_understood():
    assert parse(openssl()) == ClientHello("www.example.org")
    assert parse(openssl("a.example.org", "h2", "http/1.1")) == ClientHello(
        "a.example.org", ("h2", "http/1.1")
    )
    assert parse(openssl(None)) == ClientHello()


def test_what_the_extensions_say():
    assert parse(record(FULL)) == ClientHello(
        "www.example.org", ("h2", "http/1.1"), encrypted=True
    )
    assert parse(hello()) == ClientHello()
    assert parse(hello(extension(0xFFCE, b"?"))) == ClientHello(encrypted=True)
    assert parse(hello(alpn(b"\x0a\xfa"))) == ClientHello(protocols=("\x0a\xfa",))


@pytest.mark.parametrize(
    "name", [b"WWW.Example.ORG", b"www.example.org.", b"192.0.2.1", b"a_b", b"a" * 253]
)
def test_the_name_is_returned_as_it_was_sent(name):
    found = parse(hello(names(name)))
    assert found is not None
    assert found.server_name == name.decode()


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"attacker\0.example.org",
        b"\0",
        b"example.org\r\nHost: other.test",
        b"example .org",
        b"example.org\x7f",
        "exämple.org".encode(),
        b"a" * 254,
        b"a" * 60000,
    ],
    ids=range(9),
)
def test_a_name_that_no_host_has_is_refused(name):
    with pytest.raises(ParseError, match="the host name"):
        parse(records(message(names(name)), [1 << 14] * 4))


@pytest.mark.parametrize("record_version", [b"\3\0", b"\3\1", b"\3\3", b"\3\4"])
@pytest.mark.parametrize("version", [b"\3\0", b"\3\1", b"\3\3"])
def test_every_version_of_tls_is_understood(record_version, version):
    data = hello(names(NAME), version=version)
    assert parse(data[:1] + record_version + data[3:]) == ClientHello("www.example.org")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "not a TLS handshake record"),
        (b"\x80\x2e\x01\x03\x01", "not a TLS handshake record"),
        (b"\x15\3\1\0\2\2\x28", "not a TLS handshake record"),
        (b"\x16\2\0", "not a record of TLS 1"),
        (b"\x16\xfe\xff", "not a record of TLS 1"),
        (b"\x16\3\1\0\0", "claims to have 0 bytes"),
        (b"\x16\3\1\x40\1", "claims to have 16385 bytes"),
        (record(b"\2"), "starts with message 2"),
        (record(b"\1\1\0\1"), "has 65537 bytes"),
        (record(b"\1\0\0\0"), "cut short"),
        (record(b"\1\0") + b"\x14\3\1\0\1\1", "not a TLS handshake record"),
        (record(message() + b"\1"), "follows the ClientHello in its record"),
        (record(message() * 2), "follows the ClientHello in its record"),
        (hello(version=b"\2\0"), "unknown version"),
        (hello(version=b"\xfe\xfd"), "unknown version"),
        (hello(session=bytes(33)), "session id"),
        (hello(suites=b""), "cipher suites"),
        (hello(suites=b"\x13\1\x13"), "cipher suites"),
        (hello(compression=b""), "compression"),
        (hello(tail=b"\0"), "cut short"),
        (hello(tail=b"\0\1"), "cut short"),
        (hello(names(NAME), tail=b"\0"), "1 bytes too many"),
        (hello(b"\0"), "cut short"),
        (hello(extension(43, b"")[:-1]), "cut short"),
        (hello(b"\0\x2b\0\4\0"), "cut short"),
        (hello(names(NAME), names(NAME)), "extension 0 twice"),
        (hello(names(NAME), names(b"other.test")), "extension 0 twice"),
        (hello(extension(43, b""), extension(43, b"")), "extension 43 twice"),
        (hello(*(extension(300 + n, b"") for n in range(257))), "than 256 ext"),
        (hello(names(NAME, b"other.test")), "list of server names has"),
        (hello(names(NAME, NAME)), "list of server names has"),
        (hello(names(NAME, kind=1)), "unknown type 1"),
        (hello(names()), "cut short"),
        (hello(extension(0, b"")), "cut short"),
        (hello(extension(0, block(b"\0" + block(NAME, 2), 2) + b"\0")), "too many"),
        (hello(extension(0, block(b"\0\0\4abc", 2))), "cut short"),
        (hello(extension(0, b"\0\x20\0" + block(NAME, 2))), "cut short"),
        (hello(alpn()), "protocols"),
        (hello(alpn(b"h2", b"")), "protocols"),
        (hello(alpn(*[b"h2"] * 257)), "protocols"),
        (hello(extension(16, b"")), "cut short"),
        (hello(extension(16, block(b"\2h2", 2) + b"\0")), "too many"),
        (hello(extension(16, block(b"\3h2", 2))), "cut short"),
        (hello(ech(kind=1)), "inner half"),
        (hello(ech(b"")), "is empty"),
        (hello(extension(0xFE0D, b"")), "cut short"),
        (hello(extension(0xFE0D, ech()[4:] + b"\0")), "too many"),
    ],
    ids=lambda value: value.hex()[:24] if isinstance(value, bytes) else None,
)
def test_what_is_malformed_is_refused(data, words):
    with pytest.raises(ParseError, match=words) as caught:
        parse(data)
    assert re.fullmatch(r"[ -~]{1,2000}", str(caught.value))


@pytest.mark.parametrize("sizes", [[], [1], [3, 1], [4], [1] * 60, [100, 1, 100]])
def test_a_hello_may_be_spread_over_records(sizes):
    assert parse(records(FULL, sizes)) == parse(record(FULL))


def test_a_hello_in_too_many_records_is_refused():
    most = [1] * (MOST_RECORDS - 1)
    assert parse(records(FULL, most)) == parse(record(FULL))
    with pytest.raises(ParseError, match="more than 64 records"):
        parse(records(FULL, [*most, 1]))
    with pytest.raises(ParseError, match="more than 64 records"):
        parse(record(b"\1\0\1\0") + record(b"\0") * 63)


def test_the_largest_hello_is_taken():
    padding = LARGEST - len(message(extension(21, b""))) + 4
    large = message(extension(21, bytes(padding)))
    assert len(large) == 4 + LARGEST
    assert parse(records(large, [1 << 14] * 4)) == ClientHello()
    with pytest.raises(ParseError, match="65537 bytes; 65536 at most"):
        parse(record(message(extension(21, bytes(padding + 1)))[: 1 << 14]))


def outcome(data: bytes) -> object:
    try:
        return parse(data)
    except ParseError as error:
        return str(error)


@pytest.mark.parametrize(
    "data",
    [
        record(FULL) + b"\x17\3\3\0\1x",
        records(FULL, [1, 2, 3, 40]) + b"GET /",
        record(message() + b"\1"),
        records(message(names(NAME), names(NAME)), [9]),
    ],
)
def test_more_bytes_change_nothing_that_was_said(data):
    said = [outcome(data[:end]) for end in range(len(data) + 1)]
    first = next(index for index, value in enumerate(said) if value is not None)
    assert len({str(value) for value in said[first:]}) == 1
    assert said[0] is None


@settings(max_examples=500, deadline=None)
@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=200).map(record),
        st.binary(max_size=200).map(lambda body: record(b"\1" + block(body, 3))),
        st.lists(
            st.tuples(st.sampled_from([0, 16, 43, 0xFE0D]), st.binary(max_size=40)),
            max_size=4,
        ).map(lambda items: hello(*(extension(*item) for item in items))),
    ),
    sizes=st.lists(st.integers(1, 50), max_size=5),
)
def test_nothing_but_a_hello_or_a_refusal_comes_out(data, sizes):
    said = [outcome(data[:end]) for end in range(len(data) + 1)]
    first = next((i for i, value in enumerate(said) if value is not None), len(said))
    assert len({str(value) for value in said[first:]}) <= 1
    if isinstance(said[-1], ClientHello):
        whole = data[5 : 5 + int.from_bytes(data[3:5])]
        assert parse(records(whole, sizes)) == said[-1]


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(FULL) + 4), byte=st.integers(0, 255), cut=st.booleans())
def test_one_wrong_byte_does_no_harm(at, byte, cut):
    good = record(FULL)
    bad = good[:at] + bytes((byte,)) * (not cut) + good[at + 1 :]
    assert isinstance(outcome(bad), ClientHello | str | None)


def test_many_hellos_are_quick():
    data = openssl("a.example.org", "h2")
    start = time.perf_counter()
    for _ in range(20_000):
        parse(data)
    assert time.perf_counter() - start < 10


def test_a_hello_byte_by_byte_costs_little():
    # The worst there is: as many records as may be, none of them the last.
    data = records(message(extension(21, bytes(60000))), [900] * 63)
    start = time.perf_counter()
    for end in range(0, len(data), 16):
        parse(data[:end])
    assert time.perf_counter() - start < 10
