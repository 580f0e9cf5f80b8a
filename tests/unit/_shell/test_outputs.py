"""What a command prints, told from what is said of it."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._shell.launch import ending, fresh_nonce
from isobox._shell.outputs import Piped, Reported, Words
from isobox.errors import ProtocolError

#: As with the real ones, no part of it both begins and ends it.
_NONCE = "aabaacbc"


def _heard(data, cuts):
    words = Words(_NONCE)
    printed, said = b"", []
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    at = 0
    for end in ends:
        for piece, word in words.take(data[at:end]):
            printed += piece
            if word:
                said.append(word)
        at = end
    return printed + words.rest(), said


_TEXT = st.lists(st.sampled_from([b"a", b"aab", b"aabaac", b"x", b";", b"\n"])).map(
    b"".join
)


@given(before=_TEXT, after=_TEXT, cuts=st.lists(st.integers(0, 200)))
def test_words_are_found_wherever_they_are_cut(before, after, cuts):
    nonce = _NONCE.encode()
    data = b"%b%bpid 7;%b%bend - 0;late" % (before, nonce, after, nonce)
    if data.count(nonce) != 2:
        return
    assert _heard(data, cuts) == (before + after, [b"pid 7", b"end - 0"])


@given(data=_TEXT, cuts=st.lists(st.integers(0, 100)))
def test_what_is_no_word_is_printed(data, cuts):
    if _NONCE.encode() in data:
        return
    assert _heard(data, cuts) == (data, [])


@given(before=_TEXT, after=_TEXT, cuts=st.lists(st.integers(0, 100)))
def test_a_third_output_ends_where_the_code_says(before, after, cuts):
    nonce = _NONCE.encode()
    if (before + nonce).count(nonce) != 1:
        return
    data = before + nonce + after
    third, at, reported = Reported(_NONCE), 0, b""
    for cut in (*sorted(cuts), len(data)):
        reported += third.take(data[at:cut])
        at = max(at, cut)
    assert reported + third.rest() == before


@given(data=_TEXT, cuts=st.lists(st.integers(0, 100)))
def test_a_third_output_that_nobody_ends_is_reported_whole(data, cuts):
    if _NONCE.encode() in data:
        return
    third, at, reported = Reported(_NONCE), 0, b""
    for cut in (*sorted(cuts), len(data)):
        reported += third.take(data[at:cut])
        at = max(at, cut)
    assert reported + third.rest() == data


def test_what_is_printed_is_not_held_back_for_its_last_letters():
    words = Words(fresh_nonce())
    for digit in "0123456789abcdef":
        assert words.take(digit.encode()) == [(digit.encode(), b"")]


def test_a_word_without_end_is_refused():
    words = Words(_NONCE)
    with pytest.raises(ProtocolError):
        words.take(_NONCE.encode() + b"x" * 10_000)


@pytest.mark.parametrize(
    ("told", "witness", "expected"),
    [
        (b"0", "awk", (0, None)),
        (b"137", "awk", (137, None)),
        (b"265", "awk", (137, 9)),
        (b"523", "awk", (139, 11)),
        (b"Command terminated by signal 15\n0", "time", (143, 15)),
        (b"Command exited with non-zero status 137\n137", "time", (137, None)),
        (b"0", "time", (0, None)),
        (b"3", "sh", (3, None)),
        (b"137", "sh", (137, 9)),
    ],
)
def test_ends_are_told(told, witness, expected):
    assert ending(told, witness) == expected


@given(st.binary(max_size=60), st.sampled_from(["awk", "time", "sh"]))
def test_lies_about_an_end_are_refused(told, witness):
    try:
        status, number = ending(told, witness)
    except ProtocolError:
        return
    assert 0 <= status <= 255
    assert number is None or status == 128 + number


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_stream_that_nobody_reads_holds_its_writer(anyio_backend):
    piped = Piped()
    written = 0

    async def write():
        nonlocal written
        for _ in range(64):
            await piped.put(bytes(65536))
            written += 65536

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        await anyio.sleep(0.05)
        assert written <= 1 << 20
        piped.widen()
        await anyio.sleep(0.05)
        assert written == 64 * 65536
    piped.finish()
    assert len(await piped.read()) == 64 * 65536
