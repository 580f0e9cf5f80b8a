"""DNS queries, right and wrong, and the answers to them."""

from __future__ import annotations

import re
import struct
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._egress import dns
from isobox._egress.parsing import ParseError

OPT = b"\0\0\x29\x04\xd0\0\0\0\0\0\0"
NAME = b"\3wWw\7eXample\3Org\0"


def query(
    name: bytes = NAME,
    kind: int = dns.A,
    class_: int = 1,
    flags: int = 0x0100,
    counts: tuple[int, ...] = (1, 0, 0, 0),
    tail: bytes = b"",
) -> bytes:
    header = struct.pack("!6H", 0xBEEF, flags, *counts)
    return header + name + struct.pack("!HH", kind, class_) + tail


def with_opt(opt: bytes = OPT) -> bytes:
    return query(counts=(1, 0, 0, 1), tail=opt)


def test_a_question():
    asked = dns.parse(query())
    assert asked.id == 0xBEEF
    assert asked.name == "wWw.eXample.Org"
    assert (asked.type, asked.class_) == (dns.A, dns.INTERNET)
    assert asked.recursion_desired
    assert not asked.edns


def test_other_questions():
    assert dns.parse(query(b"\0")).name == "."
    assert dns.parse(query(kind=65)).type == 65
    assert dns.parse(query(class_=3)).class_ == 3
    assert not dns.parse(query(flags=0)).recursion_desired
    assert dns.parse(query(flags=0x0130)).recursion_desired
    assert dns.parse(query(b"\4_dmp\1_\2a-\0")).name == "_dmp._.a-"
    longest = (b"\x3f" + b"a" * 63) * 3 + b"\x3d" + b"b" * 61 + b"\0"
    assert len(longest) == 255
    assert len(dns.parse(query(longest)).name) == 253


def test_edns():
    assert dns.parse(with_opt()).edns
    cookie = b"\0\x0a\0\x08" + bytes(8)
    assert dns.parse(with_opt(OPT[:-1] + b"\x0c" + cookie)).edns


def refused(data: bytes) -> tuple[str, bytes]:
    with pytest.raises(ParseError) as caught:
        dns.parse(data)
    assert re.fullmatch(r"[ -~]{1,2000}", str(caught.value))
    return str(caught.value), caught.value.reply


MALFORMED = b"\xbe\xef\x81\x81" + bytes(8)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (query()[:12], "cut short"),
        (query()[:-1], "cut short"),
        (query() + b"\0", "1 bytes too many"),
        (query(counts=(0, 0, 0, 0)), "one question"),
        (query(counts=(2, 0, 0, 0)), "one question"),
        (query(counts=(1, 1, 0, 0)), "one question"),
        (query(counts=(1, 0, 1, 0)), "one question"),
        (query(counts=(1, 0, 0, 2)), "one question"),
        (query(flags=0x0300), "says that it is cut short"),
        (query(b"\xc0\x0c"), "pointer"),
        (query(b"\3www\xc0\x0c"), "pointer"),
        (query(b"\x40" + b"a" * 64 + b"\0"), "pointer"),
        (query(b"\x80a\0"), "pointer"),
        (query((b"\x3f" + b"a" * 63) * 4 + b"\0"), "over 255 bytes"),
        (query(b"\x12attacker\0.example\0"), "holds a byte"),
        (query(b"\x09attacker\0\7example\0"), "holds a byte"),
        (query(b"\7a.b.org\0"), "holds a byte"),
        (query(b"\2a \0"), "holds a byte"),
        (query(b"\2a\n\0"), "holds a byte"),
        (query(b"\2\xc3\xa4\0"), "holds a byte"),
        (with_opt(b""), "cut short"),
        (with_opt(OPT[:-1]), "cut short"),
        (with_opt(OPT + b"\0"), "too many"),
        (with_opt(b"\1a" + OPT), "other than OPT"),
        (with_opt(b"\0\0\1" + OPT[3:]), "other than OPT"),
        (with_opt(OPT[:-1] + b"\3abc"), "cut short"),
        (with_opt(OPT[:-1] + b"\5\0\1\0\2a"), "cut short"),
        (query(tail=bytes(512)), "512 at most"),
    ],
)
def test_what_is_malformed_is_refused(data, words):
    said, answer = refused(data)
    assert words in said
    kept = data[2] & 1
    assert answer == MALFORMED[:2] + bytes((0x80 | kept,)) + MALFORMED[3:]


def test_what_gets_no_answer():
    assert refused(b"")[1] == b""
    assert refused(query()[:11])[1] == b""
    words, answer = refused(query(flags=0x8180))
    assert "an answer, not a query" in words
    assert answer == b""
    assert refused(query(flags=0xA900))[1] == b""
    assert dns.formerr(query()) == MALFORMED


@pytest.mark.parametrize("opcode", [1, 2, 4, 5, 15])
def test_other_operations_are_not_implemented(opcode):
    words, answer = refused(query(flags=opcode << 11 | 0x0100))
    assert f"operation {opcode}" in words
    flags = 0x8184 | opcode << 11
    assert answer == struct.pack("!6H", 0xBEEF, flags, 0, 0, 0, 0)


def test_a_newer_edns_is_told_the_version():
    words, answer = refused(with_opt(OPT[:6] + b"\1" + OPT[7:]))
    assert "version 1 of EDNS" in words
    assert answer[:12] == struct.pack("!6H", 0xBEEF, 0x8180, 1, 0, 0, 1)
    assert answer.endswith(b"\0\0\x29\x04\xd0\1\0\0\0\0\0")


def test_an_answer():
    asked = dns.parse(query())
    address = ip_address("198.18.0.7")
    assert dns.answer(asked, [address], 60) == (
        struct.pack("!6H", 0xBEEF, 0x8180, 1, 1, 0, 0)
        + NAME
        + b"\0\1\0\1"
        + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc6\x12\0\7"
    )


def test_an_answer_has_only_what_was_asked_for():
    addresses = [ip_address("198.18.0.7"), ip_address("2001:db8::1")]
    asked = dns.parse(query(kind=dns.AAAA))
    answer = dns.answer(asked, addresses, 1)
    assert answer.endswith(b"\0\x10" + addresses[1].packed)
    assert answer[6:8] == b"\0\1"
    other = dns.parse(query(kind=65))
    assert dns.answer(other, addresses, 1) == dns.empty(other)


def test_the_largest_answer_fits():
    longest = (b"\x3f" + b"a" * 63) * 3 + b"\x3d" + b"b" * 61 + b"\0"
    asked = dns.parse(query(longest, dns.AAAA, counts=(1, 0, 0, 1), tail=OPT))
    answer = dns.answer(asked, [ip_address(n) for n in [1 << 64] * 8], 1)
    assert len(answer) <= dns.LARGEST


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (dns.empty, 0),
        (dns.servfail, 2),
        (dns.nxdomain, 3),
        (dns.notimp, 4),
        (dns.refused, 5),
    ],
)
def test_answers_without_records(build, code):
    plain = struct.pack("!6H", 0xBEEF, 0x8180 | code, 1, 0, 0, 0)
    assert build(dns.parse(query())) == plain + NAME + b"\0\1\0\1"
    extended = struct.pack("!6H", 0xBEEF, 0x8180 | code, 1, 0, 0, 1)
    assert build(dns.parse(with_opt())) == extended + NAME + b"\0\1\0\1" + OPT
    iterative = dns.parse(query(flags=0))
    assert build(iterative)[2:4] == struct.pack("!H", 0x8080 | code)


LABELS = st.lists(
    st.text("abcXYZ019-_", min_size=1, max_size=63), min_size=1, max_size=3
)


@given(LABELS, st.integers(0, 65535), st.integers(0, 65535), st.booleans())
def test_every_name_comes_back_as_it_was_asked(labels, kind, class_, edns):
    wire = b"".join(bytes((len(label),)) + label.encode() for label in labels)
    tail, counts = (OPT, (1, 0, 0, 1)) if edns else (b"", (1, 0, 0, 0))
    asked = dns.parse(query(wire + b"\0", kind, class_, counts=counts, tail=tail))
    assert asked.name == ".".join(labels)
    assert (asked.type, asked.class_, asked.edns) == (kind, class_, edns)
    assert dns.nxdomain(asked)[12:].startswith(query(wire + b"\0", kind, class_)[12:])


def reply_to(data: bytes) -> bytes:
    try:
        return dns.empty(dns.parse(data))
    except ParseError as error:
        return error.reply


@settings(max_examples=500, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=600),
        st.binary(max_size=100).map(query),
        st.binary(max_size=40).map(with_opt),
        st.tuples(st.integers(0, len(with_opt()) - 1), st.binary(max_size=1)).map(
            lambda pair: with_opt()[: pair[0]] + pair[1] + with_opt()[pair[0] + 1 :]
        ),
    )
)
def test_nothing_but_a_question_or_a_refusal_comes_out(data):
    said = reply_to(data)
    assert said == b"" or (said[:2] == data[:2] and said[2] & 0x80)
    assert reply_to(said) == b""
