"""Wardens: what a command leaves is found, whatever it does."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from tests.unit._guest.client import Answer, Guest, eventually, running, stdout

from isobox._guest import agent

DOUBLE_FORK = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            os.closerange(0, 3)
            time.sleep(600)
        os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""

BOMB = """
import os, time
print("ready", flush=True)
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.001)
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def warden_of(guest: Guest) -> int:
    return int(stdout(guest.result(guest.spawn(script=b"echo $PPID"))))


def test_a_warden_is_used_again(guest):
    assert len({warden_of(guest) for _ in range(5)}) == 1


def test_each_command_at_once_has_its_own_and_few_stay(guest):
    answers = [guest.start("sh", "-c", "echo $PPID; cat", stdin=True) for _ in range(8)]
    guest.until(lambda: all(each.bytes(agent.STDOUT) for each in answers))
    wardens = {int(each.bytes(agent.STDOUT)) for each in answers}
    assert len(wardens) == 8
    for each in answers:
        guest.end(each)
    for each in answers:
        guest.result(each)
    eventually(lambda: sum(alive(each) for each in wardens) == 4)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def test_one_with_a_background_process_is_not_used_again(guest):
    result = guest.result(guest.spawn(script=b"sleep 30 & echo $PPID $!"))
    first, child = map(int, stdout(result).split())
    assert warden_of(guest) != first
    os.kill(child, signal.SIGKILL)


def test_one_killed_from_inside_takes_its_command_along(guest, mark):
    script = f"setsid sh -c 'sleep 60; : {mark}' & kill -9 $PPID; sleep 60; : {mark}"
    result = guest.result(guest.spawn(script=script.encode()))
    assert result["signal"] == signal.SIGKILL
    assert not running(mark)
    assert stdout(guest.result(guest.spawn("echo", "on"))) == b"on\n"


def test_one_killed_from_inside_spares_the_other_commands(guest):
    other = guest.start(
        "sh", "-c", "setsid sleep 60 & read line; echo $line", stdin=True
    )
    guest.result(guest.spawn(script=b"kill -9 $PPID; sleep 60"))
    guest.data(other, b"alive\n")
    guest.until(lambda: other.bytes(agent.STDOUT) == b"alive\n")
    guest.control(other, "cancel")
    guest.wait(other)


def test_one_killed_while_idle_is_not_asked(guest):
    warden = warden_of(guest)
    # The guest learns of the end and of the next command in one turn.
    os.kill(guest.pid, signal.SIGSTOP)
    os.kill(warden, signal.SIGKILL)
    eventually(lambda: not alive(warden))
    answer = guest.spawn("echo", "on")
    os.kill(guest.pid, signal.SIGCONT)
    assert stdout(guest.result(answer)) == b"on\n"


def with_its_warden_stopped(guest: Guest, mark: str) -> Answer:
    # Perhaps before it could say that the command has started.
    script = f"kill -STOP $PPID; echo on; sleep 60; : {mark}"
    answer = guest.spawn("sh", "-c", script, capture=None)
    guest.until(lambda: answer.bytes(agent.STDOUT) == b"on\n")
    return answer


def test_a_stopped_warden_is_gone_on_with(guest, mark):
    answer = with_its_warden_stopped(guest, mark)
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"
    assert not running(mark)


def test_sessions_and_double_forks_do_not_escape(guest, mark):
    answer = guest.start(sys.executable, "-c", DOUBLE_FORK, mark)
    guest.until(lambda: answer.bytes(agent.STDOUT) == b"ready\n")
    eventually(lambda: len(running(mark)) == 4)
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"
    assert not running(mark)


def test_kill_answers_when_all_are_gone(guest, mark):
    answer = guest.start(sys.executable, "-c", DOUBLE_FORK, mark, id="one")
    guest.until(lambda: answer.bytes(agent.STDOUT) == b"ready\n")
    kill = guest.open("kill", id="one")
    guest.result(kill)
    assert not running(mark)
    assert guest.result(answer)["signal"] == signal.SIGKILL


def test_kill_of_what_has_ended_is_no_mistake(guest):
    assert guest.result(guest.open("kill", id="nothing")) == {}


def test_kill_reaches_what_an_ended_command_left(guest):
    answer = guest.spawn(script=b"sleep 60 & echo $!", id="one")
    child = int(stdout(guest.result(answer)))
    guest.result(guest.open("kill", id="one"))
    assert not alive(child)


def test_one_that_its_command_has_stopped_goes_on(guest):
    for _ in range(2):
        result = guest.result(guest.spawn(script=b"kill -STOP $PPID; echo on"))
        assert stdout(result) == b"on\n"


def test_one_that_was_stopped_while_idle_starts_the_next(guest):
    os.kill(warden_of(guest), signal.SIGSTOP)
    assert stdout(guest.result(guest.spawn("echo", "on"))) == b"on\n"


@needs_root
def test_a_fork_bomb_is_ended_by_its_timeout(mark):
    """Run as a user without other processes, so that its limit is its own."""
    uid = 0x60000000 + os.getpid()
    become = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    python = "/usr/bin/python3"
    if not os.access(python, os.X_OK):
        pytest.skip("needs a Python that another user can run")
    with Guest(
        prefix=become, python=python, config={"rlimits": {"nproc": 60}}
    ) as guest:
        began = time.monotonic()
        answer = guest.spawn(python, "-c", BOMB, mark, timeout=1.0)
        result = guest.result(answer)
        assert result["timed_out"] == "timeout"
        assert time.monotonic() - began < 8
        assert not running(mark)
        assert stdout(guest.result(guest.spawn("echo", "on"))) == b"on\n"


@pytest.mark.parametrize("how", ["hang up", "kill"])
def test_the_end_of_the_channel_or_the_guest_ends_everything(mark, how):
    with Guest() as guest:
        answer = guest.start(sys.executable, "-c", DOUBLE_FORK, mark)
        guest.until(lambda: answer.bytes(agent.STDOUT) == b"ready\n")
        guest.result(guest.spawn(script=f"sh -c 'sleep 60; : {mark}' &".encode()))
        eventually(lambda: len(running(mark)) == 5)
        if how == "kill":
            guest.popen.kill()
        else:
            guest.hang_up()
        eventually(lambda: not running(mark))
        guest.popen.wait(10)


def test_the_end_of_the_channel_ends_stopped_wardens_too(mark):
    with Guest() as guest:
        with_its_warden_stopped(guest, mark)
        guest.hang_up()
        eventually(lambda: not running(mark))


def test_half_a_frame_and_the_end(guest):
    guest.sock.sendall(b"\0\0\1")
    assert guest.hang_up() == 0


def test_orphans_are_reaped(guest):
    script = b"for i in 1 2 3 4 5; do (sleep 0.05 &) ; done"
    guest.result(guest.spawn(script=script))
    guest.result(guest.spawn(script=b"sleep 0.2"))
    states = [state for _, state in children(guest.pid)]
    assert "Z" not in states


def children(root: int) -> list[tuple[int, str]]:
    table = agent._parents()
    found, todo = [], [root]
    while todo:
        parent = todo.pop()
        for pid, (above, state) in table.items():
            if above == parent:
                found.append((pid, state))
                todo.append(pid)
    return found
