"""Commands on a terminal."""

from __future__ import annotations

import signal

from tests.unit._guest.client import running

from isobox._guest import agent


def terminal(guest, *argv, size=(80, 24), **fields):
    return guest.start(*argv, tty=list(size), **fields)


def test_a_terminal_of_its_size(guest):
    answer = terminal(
        guest, "sh", "-c", "test -t 0 && test -t 2 && stty size", size=(132, 43)
    )
    assert guest.result(answer)["exit"] == 0
    assert answer.bytes(agent.STDOUT) == b"43 132\r\n"
    assert agent.STDERR in answer.ended


def test_it_is_the_controlling_one(guest):
    answer = terminal(guest, "sh", "-c", "echo hi > /dev/tty")
    guest.wait(answer)
    assert answer.bytes(agent.STDOUT) == b"hi\r\n"


def test_it_is_resized_and_told(guest):
    script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.02; done"
    answer = terminal(guest, "bash", "-c", script)
    guest.until(lambda: b"ready" in answer.bytes(agent.STDOUT))
    guest.control(answer, "resize", columns=100, rows=50)
    guest.wait(answer)
    assert answer.bytes(agent.STDOUT) == b"ready\r\n50 100\r\n"


def test_what_is_typed_arrives_and_the_end_is_a_character(guest):
    answer = terminal(guest, "cat")
    guest.data(answer, b"line\n")
    guest.until(lambda: answer.bytes(agent.STDOUT).count(b"line") == 2)
    guest.end(answer)
    assert guest.result(answer)["exit"] == 0


def test_an_interrupt_is_typed(guest):
    answer = terminal(guest, "sh", "-c", "echo ready; exec sleep 60")
    guest.until(lambda: b"ready" in answer.bytes(agent.STDOUT))
    guest.data(answer, b"\x03")
    assert guest.result(answer)["signal"] == signal.SIGINT


def test_the_end_of_its_leader_hangs_up(guest, mark):
    answer = terminal(guest, "sh", "-c", f"sleep 60 & : {mark}; exit 5")
    assert guest.result(answer)["exit"] == 5


def test_cancelled_nothing_is_left(guest, mark):
    answer = terminal(guest, "bash", "-ic", f"sleep 60; : {mark}")
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"
    assert not running(mark)
