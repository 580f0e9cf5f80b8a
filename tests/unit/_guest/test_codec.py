"""The codec that host and guest share."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._guest import agent


def encodable(text: str) -> bool:
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return raw.decode("utf-8", "surrogateescape") == text


TEXT = st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.binary()
    | TEXT.filter(encodable)
)
VALUES = st.recursive(
    PLAIN,
    lambda each: (
        st.lists(each, max_size=4)
        | st.dictionaries(TEXT.filter(encodable), each, max_size=4)
    ),
    max_leaves=12,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(VALUES.filter(lambda value: depth(value) <= 8))
def test_what_was_encoded_is_decoded(value):
    assert agent.decode(agent.encode(value)) == value


def test_a_float_that_is_no_number_survives():
    assert math.isnan(agent.decode(agent.encode(math.nan)))


def test_a_tuple_arrives_as_a_list():
    assert agent.decode(agent.encode((1, (2,)))) == [1, [2]]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_none(data):
    try:
        value = agent.decode(data)
    except agent.CodecError:
        return
    assert depth(value) <= 9


@given(
    VALUES.filter(lambda value: depth(value) <= 8),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4),
    st.integers(0, 8),
)
def test_damaged_messages_are_refused_or_read(value, damage, cut):
    raw = bytearray(agent.encode(value))
    for at, byte in damage:
        raw[at % len(raw)] = byte
    try:
        agent.decode(bytes(raw[: len(raw) - cut]))
    except agent.CodecError:
        return


@given(VALUES.filter(lambda value: depth(value) <= 8), st.binary(min_size=1))
def test_nothing_may_follow_a_message(value, more):
    with pytest.raises(agent.CodecError):
        agent.decode(agent.encode(value) + more)


@given(VALUES.filter(lambda value: depth(value) <= 8), st.data())
def test_every_beginning_of_a_message_is_refused(value, data):
    raw = agent.encode(value)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(agent.CodecError):
        agent.decode(raw[:cut])


def nested(levels: int) -> bytes:
    return b"l\0\0\0\1" * levels + b"N"


def test_depth_is_bounded():
    assert depth(agent.decode(nested(8))) == 8
    with pytest.raises(agent.CodecError, match="deep"):
        agent.decode(nested(9))
    with pytest.raises(agent.CodecError, match="deep"):
        agent.decode(nested(100_000))


@pytest.mark.parametrize("tag", [b"b", b"s", b"l", b"d"])
def test_a_size_beyond_the_frame_is_refused_at_once(tag):
    with pytest.raises(agent.CodecError, match="longer"):
        agent.decode(tag + b"\xff\xff\xff\xff" + b"N" * 10)


def test_a_key_is_text():
    with pytest.raises(agent.CodecError, match="key"):
        agent.decode(b"d\0\0\0\1" + agent.encode(1) + agent.encode(2))
    with pytest.raises(agent.CodecError, match="key"):
        agent.decode(b"d\0\0\0\1" + agent.encode([]) + agent.encode(2))


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j, range(3)])
def test_what_has_no_form_is_refused(value):
    with pytest.raises(agent.CodecError, match="cannot encode"):
        agent.encode({"value": value})
