"""Whose a process is."""

from __future__ import annotations

import contextlib

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shelled import ShelledWorkspace

from isobox._core.ops import Spawn
from isobox._shell import trees
from isobox._shell.trees import Sight, members, stopped_servants
from isobox.errors import ProtocolError

TURN = b"==/== environments ==/==\n"


def _answer(processes):
    stats = b"".join(
        b"%d (%b) %b %d %d %d 0 -1 4194560\n" % (pid, name, state, parent, group, group)
        for pid, name, state, parent, group, _ in processes
    )
    environments = b"\n".join(
        b"==> /proc/%d/environ <==\n%b" % (each[0], each[5].replace(b"\0", b"\n"))
        for each in processes
    )
    return stats + TURN + environments


def parsed(answer, mark="ISOBOX_JOB=0e", size=1 << 16):
    sight = Sight(mark)
    for at in range(0, len(answer), size):
        sight.add(answer[at : at + size])
    return sight.seen()


_TREE = [
    (1, b"init", b"S", 0, 1, b"PATH=/bin\0"),
    (10, b"sh", b"S", 0, 10, b""),
    (11, b"sh", b"S", 10, 11, b"A=1\0ISOBOX_JOB=0e\0"),
    (12, b"a b) R", b"S", 11, 11, b""),
    (13, b"fled", b"S", 1, 13, b"ISOBOX_JOB=0e\0B=2\0"),
    (14, b"below", b"S", 13, 14, b""),
    (15, b"other", b"S", 1, 15, b"ISOBOX_JOB=0f\0"),
    (16, b"dead", b"Z", 11, 11, b""),
]


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_members_are_found_by_mark_and_by_descent(size):
    seen = parsed(_answer(_TREE), size=size)
    assert members(seen, 11) == {11, 12, 13, 14, 16}
    assert not seen[16].alive


def test_the_first_process_is_nobodys():
    seen = parsed(_answer([(1, b"x", b"S", 0, 1, b"ISOBOX_JOB=0e\0")]))
    assert members(seen, 0) == set()


@pytest.mark.parametrize(
    "name",
    [
        b"a) Z 1 1 1 ",
        b"a) Z 1 1 1 0 -1",
        b"\n9 (a) Z 1 1 1 ",
        b"\n==/==\n",
        b")) Z 1 1 1 1 ",
    ],
)
def test_no_name_hides_what_bears_it(name):
    mark = b"ISOBOX_JOB=0e\0"
    seen = parsed(
        _answer([(11, name, b"S", 10, 11, mark), (12, b"b", b"S", 1, 12, mark)])
    )
    assert members(seen, 0) == {11, 12}
    assert seen[11].alive
    assert (seen[11].parent, seen[11].group) == (10, 11)


def test_a_process_goes_on_when_its_first_thread_has_ended():
    for threads, alive in ((b"3", True), (b"1", False), (b"0", False)):
        rest = b"0 -1 4194560 0 0 0 0 0 0 0 0 20 0 %b 0 7408284\n" % threads
        seen = parsed(b"11 (a) Z 10 11 11 " + rest + TURN)
        assert seen[11].alive == alive


def test_who_forges_a_heading_hides_no_mark_of_its_own():
    env = b"ISOBOX_JOB=0e\0X=\n==> /proc/11/environ <==\nY=1\0"
    seen = parsed(_answer([(11, b"a", b"S", 10, 11, env)]))
    assert members(seen, 0) == {11}


def test_what_was_stopped_and_bears_no_mark_is_around_commands():
    processes = [
        (11, b"a", b"T", 1, 11, b""),
        (12, b"b", b"T", 1, 12, b"ISOBOX_JOB=0f\0"),
    ]
    assert stopped_servants(parsed(_answer(processes))) == {11}


def test_a_line_without_end_is_refused():
    with pytest.raises(ProtocolError):
        parsed(TURN + bytes(1 << 17))


def test_stats_without_end_are_refused(monkeypatch):
    monkeypatch.setattr(trees, "_MOST", 1 << 12)
    with pytest.raises(ProtocolError):
        parsed(b"1 (a) S 1 1 1 \n" * 1000)


@given(st.binary(max_size=400), st.integers(1, 400))
def test_lies_are_processes_at_most(data, size):
    for answer in (data, data + TURN + data):
        with contextlib.suppress(ProtocolError):
            for pid, seen in parsed(answer, size=size).items():
                assert pid == seen.pid >= 0


@pytest.mark.parametrize("answer", [b"", b"1 (a) S 0 1 1 \n", TURN, b"x\n" + TURN])
def test_who_does_not_see_itself_does_not_say_that_all_have_ended(answer):
    with pytest.raises(ProtocolError):
        parsed(answer)


_ZOMBIE = "printf 'a) Z 1 1 1 ' >/proc/$$/comm; echo ready; while :; do sleep 77; done"
_LARGE = """\
x=$(head -c 100000 /dev/zero | tr '\\0' x); export A=$x B=$x
i=0; while [ $i -lt 20 ]; do sleep 77 & i=$((i+1)); done
echo ready; while :; do sleep 77; done"""


@pytest.mark.anyio
@pytest.mark.parametrize("image", ["busybox", "coreutils"])
@pytest.mark.parametrize("script", [_ZOMBIE, _LARGE])
async def test_nothing_that_a_command_makes_of_itself_saves_it(
    monkeypatch, image, script
):
    # The environments alone would be more.
    monkeypatch.setattr(trees, "_MOST_READ", 1 << 20)
    async with ShelledWorkspace(image=image) as workspace:
        sandbox = workspace._sandbox
        command = await sandbox.spawn(Spawn(script=script, cwd="/workspace"))
        with anyio.fail_after(60):
            assert await command.stdout.receive() == b"ready\n"
            await command.kill()
        async with sandbox._operators.one() as operator:
            assert not await trees.running(operator, command._mark, 0)
        ended = await workspace.run(
            "cat /proc/[0-9]*/cmdline | tr '\\000' ' ' | grep -c '[s]leep 77'"
        )
        assert ended.stdout == "0\n"
