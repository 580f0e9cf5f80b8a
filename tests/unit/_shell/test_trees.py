"""Whose a process is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isobox._shell.trees import members, parsed


def _answer(processes):
    stats = b"".join(
        b"%d (%b) %b %d %d %d 0 -1 4194560\n" % (pid, name, state, parent, group, group)
        for pid, name, state, parent, group, _ in processes
    )
    environments = b"".join(
        b"==> /proc/%d/environ <==\n%b\n" % (each[0], each[5]) for each in processes
    )
    return stats + b"==/==\n" + environments


_TREE = [
    (1, b"init", b"S", 0, 1, b"PATH=/bin\0"),
    (10, b"sh", b"S", 0, 10, b""),
    (11, b"sh", b"S", 10, 11, b"A=1\0ISOBOX_JOB=one\0"),
    (12, b"a b) R", b"S", 11, 11, b""),
    (13, b"fled", b"S", 1, 13, b"ISOBOX_JOB=one\0B=2\0"),
    (14, b"below", b"S", 13, 14, b""),
    (15, b"other", b"S", 1, 15, b"ISOBOX_JOB=other\0"),
    (16, b"dead", b"Z", 11, 11, b""),
]


def test_members_are_found_by_mark_and_by_descent():
    seen = parsed(_answer(_TREE))
    assert members(seen, "ISOBOX_JOB=one", 11) == {11, 12, 13, 14, 16}
    assert not seen[16].alive


def test_the_first_process_is_nobodys():
    seen = parsed(_answer([(1, b"x", b"S", 0, 1, b"ISOBOX_JOB=one\0")]))
    assert members(seen, "ISOBOX_JOB=one", 0) == set()


@given(st.binary(max_size=400))
def test_lies_are_processes_at_most(data):
    for answer in (data, data + b"==/==\n" + data):
        for pid, seen in parsed(answer).items():
            assert pid == seen.pid >= 0
