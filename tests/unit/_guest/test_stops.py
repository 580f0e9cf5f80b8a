"""Workers that a command stops: they go on, or say that they cannot."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from tests.unit._guest.client import SCAN, SEARCH, Answer, Guest, eventually
from tests.unit._guest.test_trees import archive, member
from tests.unit._guest.test_wardens import alive, children

from isobox._guest import agent


def worker_of(guest: Guest) -> int:
    """Return the worker; it leads a group, which wardens do not."""
    found: list[int] = []

    def look() -> bool:
        found[:] = [pid for pid, _ in children(guest.pid) if is_leader(pid)]
        return bool(found)

    eventually(look)
    return found[0]


def is_leader(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


def pushing(guest: Guest, path) -> Answer:
    """Begin a push, whose worker waits for bytes."""
    return guest.open("push", path=bytes(path), clear=False)


def send(guest: Guest, answer: Answer, data: bytes) -> None:
    guest.data(answer, data, agent.BODY)
    guest.end(answer, agent.BODY)


def test_one_that_was_stopped_goes_on(guest, tmp_path):
    answer = pushing(guest, tmp_path / "to")
    os.kill(worker_of(guest), signal.SIGSTOP)
    send(guest, answer, archive((member("f"), b"x")))
    assert guest.result(answer) == {"count": 1}
    assert (tmp_path / "to/f").read_bytes() == b"x"


def test_one_that_is_stopped_without_end_is_given_up(guest, tmp_path):
    answer = pushing(guest, tmp_path / "to")
    worker = worker_of(guest)
    over = threading.Event()

    def stop() -> None:
        while not over.wait(0.001) and alive(worker):
            os.kill(worker, signal.SIGSTOP)

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        assert guest.refusal(answer, patience=60) == "internal"
    finally:
        over.set()
        stopper.join()
    assert answer.error is not None
    assert "stops its worker" in answer.error["message"]
    eventually(lambda: not alive(worker))


@pytest.mark.parametrize("op", ["scan", "search"])
def test_what_a_worker_has_started_goes_on_as_well(guest, tmp_path, op):
    for number in range(3000):
        (tmp_path / f"{number:04}").write_text("needle")
    fields = {"scan": {**SCAN, "pattern": "*"}, "search": SEARCH}[op]
    more = {} if op == "scan" else {"pattern": "needle", "limit": 5000}
    answer = guest.open(op, path=bytes(tmp_path), **{**fields, **more, "limit": 5000})
    os.killpg(worker_of(guest), signal.SIGSTOP)
    assert not guest.result(answer)["truncated"]


def test_one_that_was_stopped_is_cancelled(guest, tmp_path):
    answer = pushing(guest, tmp_path / "to")
    worker = worker_of(guest)
    os.kill(worker, signal.SIGSTOP)
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"
    eventually(lambda: not alive(worker))
