"""Masks on values, in every form and however a stream is cut."""

from __future__ import annotations

import base64
import json
import random
import time
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from isobox._egress.forms import written
from isobox._egress.redact import Redactor

VALUE = b's3cr3t/+%\\"1 \xc3\xa9&=#?~>'

VALUES = st.lists(
    st.one_of(
        st.binary(min_size=8, max_size=24),
        st.text(alphabet="ab", min_size=8, max_size=12).map(str.encode),
        st.text(min_size=8, max_size=20).map(lambda text: text.encode()),
    ),
    min_size=1,
    max_size=3,
)


def redact(values, *pieces: bytes) -> bytes:
    redactor = Redactor(values)
    return b"".join([*map(redactor.feed, pieces), redactor.flush()])


def plainly(values, data: bytes) -> bytes:
    """Mask the values as they are: what is right, without any cleverness."""
    masked = bytearray(data)
    for value in values:
        for at in range(len(data)):
            if data.startswith(value, at):
                masked[at : at + len(value)] = b"*" * len(value)
    return bytes(masked)


def cut(data: bytes, places) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


FORMS = {
    "as it is": VALUE,
    "quoted": quote(VALUE).encode(),
    "quoted whole": quote(VALUE, safe="").encode(),
    "quoted in lower case": b"s3cr3t%2f%2b%25%5c%221%20%c3%a9%26%3d%23%3f~%3e",
    "in a form": quote_plus(VALUE).encode(),
    "in JSON": json.dumps(VALUE.decode())[1:-1].encode(),
    "in JSON as UTF-8": json.dumps(VALUE.decode(), ensure_ascii=False)[1:-1].encode(),
    "in JSON of PHP": json.dumps(VALUE.decode())[1:-1].replace("/", "\\/").encode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_is_masked_whole(form):
    assert redact([VALUE], b"a=" + form + b";") == b"a=" + b"*" * len(form) + b";"


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", [b"", b"u", b"us", b"use", b"user:"])
@pytest.mark.parametrize("after", [b"", b"x", b"xy", b"xyz"])
def test_base64_is_masked_so_that_at_most_two_bytes_at_an_end_are_left(
    encode, before, after
):
    data = encode(before + VALUE + after)
    masked = redact([VALUE], data)
    assert len(masked) == len(data)
    start = masked.index(b"*")
    end = masked.rindex(b"*") + 1
    assert masked[start:end] == b"*" * (end - start)
    # 6 bits a character: what is before and after tells at most 2 bytes of it.
    assert start * 6 // 8 <= len(before) + 2
    assert end * 6 // 8 >= len(before + VALUE) - 2


@settings(deadline=None)
@given(
    values=VALUES,
    noise=st.lists(st.binary(max_size=8), min_size=1, max_size=5),
    places=st.lists(st.integers(0, 400), max_size=12),
    form=st.sampled_from([bytes, base64.b64encode, lambda v: quote(v).encode()]),
)
def test_a_stream_is_masked_alike_however_it_is_cut(values, noise, places, form):
    data = b"".join(
        piece + form(values[i % len(values)]) for i, piece in enumerate(noise)
    )
    whole = redact(values, data)
    assert redact(values, *cut(data, places)) == whole
    assert redact(values, *(data[i : i + 1] for i in range(len(data)))) == whole
    assert len(whole) == len(data)


@settings(deadline=None)
@given(
    values=st.lists(
        st.text(alphabet="ab", min_size=8, max_size=10).map(str.encode),
        min_size=1,
        max_size=4,
    ),
    data=st.text(alphabet="ab-", max_size=60).map(str.encode),
    places=st.lists(st.integers(0, 60), max_size=8),
)
def test_values_that_overlap_are_masked_as_one(values, data, places):
    assert redact(values, *cut(data, places)) == plainly(values, data)


@settings(deadline=None)
@given(
    data=st.binary(max_size=400), values=VALUES, places=st.lists(st.integers(0, 400))
)
def test_what_holds_no_value_stays(data, values, places):
    assume(not any(form in data for value in values for form in written(value)))
    assert redact(values, *cut(data, places)) == data


@settings(deadline=None)
@given(st.binary(min_size=8, max_size=40), st.binary(max_size=60), st.integers(0, 60))
def test_nothing_is_held_back_but_a_beginning(value, data, more):
    data += value[: more % len(value)]
    redactor = Redactor([value])
    shown = redactor.feed(data)
    held = redactor.flush()
    assert len(held) < 3 * len(value)
    end = data[len(data) - len(held) :]
    assert not held or any(form.startswith(end) for form in redactor._wanted.forms)
    assert len(shown) + len(held) == len(data)


def test_a_prompt_does_not_lag():
    redactor = Redactor([b"sk-live-0123456789"])
    assert redactor.feed(b"user@sandbox:/work$ ") == b"user@sandbox:/work$ "
    assert redactor.feed(b"task") == b"ta"
    assert redactor.feed(b"\n") == b"sk\n"


def test_a_value_that_another_begins_with_is_masked_before_the_other_ends():
    redactor = Redactor([b"abcdefgh", b"efghijk!"])
    assert redactor.feed(b"abcdefgh") == b"****"
    assert redactor.feed(b"x") == b"****x"
    assert redactor.feed(b"abcdefghijk") == b"****"
    assert redactor.feed(b"!") == b"*" * 8
    assert redactor.flush() == b""


@pytest.mark.parametrize("value", [b"", b"1", b"1234567"])
def test_short_values_are_not_looked_for(value):
    assert redact([value], b"1234567 1 1") == b"1234567 1 1"


def test_nothing_known_holds_nothing_back():
    data = b"anything"
    redactor = Redactor([])
    assert redactor.feed(data) is data
    assert redactor.flush() == b""


def test_a_text_is_masked_apart_from_the_stream():
    redactor = Redactor([b"sk-live-0123456789"])
    redactor.feed(b"sk-live-")
    assert (
        redactor.redact_text("é sk-live-0123456789 \ud800")
        == "é " + "*" * 18 + " \ud800"
    )
    assert redactor.feed(b"0123456789") == b"*" * 18


def test_the_longest_value_is_masked_and_costs_no_time():
    value = random.Random(0).randbytes(32768).hex().encode()
    data = b"x" * 1000 + value + value[:-1]
    began = time.monotonic()
    masked = redact([value], *(data[i : i + 1000] for i in range(0, len(data), 1000)))
    assert masked == b"x" * 1000 + b"*" * 65536 + value[:-1]
    assert time.monotonic() - began < 20


# -- what is learned late, and what waits for long ---------------------------------


def test_what_is_learned_is_masked_in_streams_that_have_begun():
    redactor = Redactor([b"something"])
    begun = redactor.fresh()
    assert begun.feed(b"before: latecomer ") == b"before: latecomer "
    redactor.learn([b"something", b"latecomer"])
    assert begun.feed(b"after: latecomer something ") == (
        b"after: ********* ********* "
    )
    assert begun.mask(b"latecomer") == b"*********"
    assert redactor.feed(b"latecomer ") == b"********* "


def test_what_waits_for_long_is_shown_and_the_rest_of_it_masked():
    redactor = Redactor([b"something"])
    assert redactor.feed(b"basic so") == b"basic "
    assert redactor.holds
    assert redactor.hurry() == b"so"
    assert not redactor.holds
    assert redactor.hurry() == b""
    assert redactor.feed(b"me") == b""
    assert redactor.hurry() == b"me"
    assert redactor.feed(b"thing else") == b"***** else"


@settings(deadline=None)
@given(
    VALUES,
    st.lists(st.tuples(st.text(alphabet="abc", max_size=9), st.booleans()), max_size=9),
)
def test_to_hurry_loses_nothing(values, pieces):
    redactor, shown, whole = Redactor(values), b"", b""
    for text, hurried in pieces:
        shown += redactor.feed(text.encode())
        whole += text.encode()
        if hurried:
            shown += redactor.hurry()
            assert len(shown) == len(whole)
    shown += redactor.flush()
    assert len(shown) == len(whole)
    assert not redactor.holds
    assert all(a in (b, ord("*")) for a, b in zip(shown, whole, strict=True))
    assert redactor.feed(b"") + redactor.flush() == b""
