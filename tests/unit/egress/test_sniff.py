"""What a client speaks, by its first bytes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.egress.hellos import openssl

from isobox._egress.sniff import ENOUGH, kind

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", None),
        (b"\x16", None),
        (b"\x16\3", "tls"),
        (b"\x16\2", "other"),
        (openssl(), "tls"),
        (b"\x80\x2e", None),
        (b"\x80\x2e\1\3\1", "sslv2"),
        (b"\x80\x01\0\1", "other"),
        (b"G", None),
        (b"GET", None),
        (b"GET ", "http"),
        (b"GET /", "http"),
        (b"get / HTTP/1.1", "http"),
        (b"UPDATEREDIRECTREF /", "http"),
        (b"a" * 20, None),
        (b"a" * 20 + b" ", "http"),
        (b"a" * 21, "other"),
        (b"GET\t/", "other"),
        (b"GET\r\n", "other"),
        (b"GET\0 /", "other"),
        (b"G\xc3\x89T /", "other"),
        (b" GET /", "other"),
        (b"\r\nGET / HTTP/1.1", "other"),
        (b"PRI", None),
        (PREFACE[:-1], None),
        (PREFACE, "http2"),
        (PREFACE + b"\0\0\0\4", "http2"),
        (b"PRI * HTTP/2.0\r\n\r\nSX", "http"),
        (b"PRI /", "http"),
        (b"SSH", None),
        (b"SSH-2.0-OpenSSH_9.6", "other"),
        (b"SSH-2.0-OpenSSH_9.6 Ubuntu-3\r\n", "other"),
        (b"SSHX /", "http"),
        (b"\5\1\0", "other"),
        (b"\0\0\0\x08\4\xd2\x16\x2f", "other"),
        (b"\x13BitTorrent protocol", "other"),
    ],
)
def test_kind(data, expected):
    assert kind(data) == expected


BYTES = st.one_of(
    st.binary(max_size=40),
    st.text("ABZaz-! \r/*\x16\3", max_size=40).map(str.encode),
    st.tuples(st.integers(0, 24), st.binary(max_size=20)).map(
        lambda pair: PREFACE[: pair[0]] + pair[1]
    ),
)


@settings(max_examples=500, deadline=None)
@given(BYTES)
def test_it_is_decided_early_and_once(data):
    said = [kind(data[:end]) for end in range(len(data) + 1)]
    first = next((i for i, value in enumerate(said) if value), len(said))
    assert first <= ENOUGH or len(data) < ENOUGH
    assert len(set(said[first:])) <= 1


def test_only_the_start_of_much_is_looked_at():
    data = b"a" * (1 << 24)
    start = time.perf_counter()
    for _ in range(1000):
        kind(data)
    assert time.perf_counter() - start < 1
