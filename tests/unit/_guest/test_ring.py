"""What a daemon keeps of an output: the last bytes, by their offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isobox._guest import agent

PIECES = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.integers(1, 3 * agent._CHUNK).map(lambda size: b"%07d" % size * (size // 7 + 1)),
)
STEPS = st.lists(
    st.tuples(PIECES, st.integers(0, 4 * agent._CHUNK), st.integers(0, 1 << 18)),
    max_size=30,
)


def everything(ring: agent.Ring, most: int) -> bytes:
    at, found = ring.start, b""
    while at < ring.end:
        piece = ring.read(at, most)
        assert 0 < len(piece) <= most
        found += piece
        at += len(piece)
    return found


@given(steps=STEPS, most=st.integers(100, 1 << 17))
def test_what_is_kept_is_the_end_of_what_came(steps, most):
    ring, came, dropped = agent.Ring(), b"", 0
    for piece, room, needed in steps:
        ring.add(piece)
        came += piece
        gone = ring.trim(room, needed)
        dropped += gone
        assert ring.start == dropped
        assert ring.end == len(came)
        # No more than there is room for, unless it is needed still.
        assert ring.end - ring.start <= room or ring.start >= min(needed, ring.end)
        assert not gone or ring.start <= needed
    assert everything(ring, most) == came[dropped:]


@given(pieces=st.lists(PIECES, min_size=1, max_size=20), data=st.data())
def test_every_offset_that_is_kept_is_found(pieces, data):
    ring, came = agent.Ring(), b"".join(pieces)
    for piece in pieces:
        ring.add(piece)
    ring.trim(data.draw(st.integers(1, len(came))), ring.end)
    offset = data.draw(st.integers(ring.start, ring.end - 1))
    piece = ring.read(offset, 10)
    assert piece
    assert came[offset:].startswith(piece)


def test_bytes_one_by_one_take_no_more_room_than_together():
    ring = agent.Ring()
    for _ in range(100_000):
        ring.add(b"x")
        ring.trim(50_000, ring.end)
    assert len(ring._chunks) <= 50_000 // agent._CHUNK + 2
    assert ring.end - ring.start == 50_000
