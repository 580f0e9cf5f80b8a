"""Records have a pace; what is beyond it is counted."""

from __future__ import annotations

from isobox._egress import pace
from isobox._egress.pace import Pace


def test_a_burst_and_then_so_many_a_second(monkeypatch):
    now = 100.0
    monkeypatch.setattr(pace.time, "monotonic", lambda: now)
    made = Pace(at_once=3, per_second=2)
    taken = 0
    while not made.is_spent:
        made.spend()
        taken += 1
    assert taken == 3
    now += 0.4
    assert made.is_spent
    now += 0.2
    assert not made.is_spent
    made.spend()
    assert made.is_spent
    now += 1000
    for _ in range(3):
        assert not made.is_spent
        made.spend()
    assert made.is_spent


def test_what_comes_too_early_is_due_later(monkeypatch):
    now = 100.0
    monkeypatch.setattr(pace.time, "monotonic", lambda: now)
    made = Pace(at_once=2, per_second=4)
    due = []
    for _ in range(4):
        due.append(made.due)
        made.spend()
    assert due == [0, 0, 0.25, 0.5]
    now += 1
    assert made.due == 0


def test_what_is_missed_is_told_once():
    made = Pace()
    made.missed += 2
    assert (made.take_missed(), made.take_missed()) == (2, 0)
