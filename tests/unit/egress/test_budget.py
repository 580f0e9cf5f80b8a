"""How much one sandbox may use."""

from __future__ import annotations

import pytest

from isobox._egress import budget
from isobox._egress.budget import Budget
from isobox._policy.network import Network
from isobox.errors import LimitError


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(budget, "time", clock)
    return clock


def admitted(held, times):
    done = 0
    for _ in range(times):
        try:
            held.admit()
        except LimitError:
            continue
        done += 1
    return done


def test_connections_at_once(clock):
    held = Budget(Network(connections=2))
    assert admitted(held, 5) == 2
    with pytest.raises(
        LimitError, match=r"2 connections are open.*Network\.connections"
    ):
        held.admit()
    held.leave()
    assert admitted(held, 5) == 1


def test_connections_in_a_second(clock):
    held = Budget(Network(connections=1000, per_second=10))
    assert admitted(held, 50) == 10
    with pytest.raises(LimitError, match=r"more than 10 new.*Network\.per_second"):
        held.admit()
    clock.now += 0.5
    assert admitted(held, 50) == 5
    clock.now += 60
    assert admitted(held, 50) == 10


def test_what_was_refused_is_not_counted(clock):
    held = Budget(Network(connections=1, per_second=2))
    assert admitted(held, 100) == 1
    held.leave()
    assert admitted(held, 1) == 1


def test_bytes_of_a_host(clock):
    held = Budget(Network(bytes_in=10, bytes_out=5))
    spend = held.spender("a.test")
    spend(10, 5)
    held.check("a.test")
    with pytest.raises(LimitError, match=r"more than 5 bytes to a\.test"):
        spend(0, 1)
    with pytest.raises(LimitError):
        held.check("a.test")
    held.check("b.test")
    with pytest.raises(LimitError, match=r"more than 10 bytes from b\.test"):
        held.spender("b.test")(11, 0)


def test_without_a_limit_nothing_is_too_much(clock):
    Budget(Network()).spender("a.test")(1 << 60, 1 << 60)


def test_hosts_after_so_many_share_one_count(clock, monkeypatch):
    monkeypatch.setattr(budget, "_HOSTS", 2)
    held = Budget(Network(bytes_out=5))
    for name in ("a.test", "b.test", "c.test"):
        held.spender(name)(0, 3)
    with pytest.raises(LimitError, match=r"more than 5 bytes to d\.test"):
        held.spender("d.test")(0, 3)
    with pytest.raises(LimitError):
        held.check("e.test")
    held.check("a.test")
    assert len(held._bytes_out) <= 3


def test_names_that_are_free_take_no_memory(clock):
    held = Budget(Network())
    for number in range(20000):
        held.spender(f"{number}.test")(1, 1)
    assert len(held._bytes_in) <= budget._HOSTS + 1


def test_bodies_that_are_held(monkeypatch):
    monkeypatch.setattr(budget, "_HELD", 10)
    held = Budget(Network())
    held.hold(6)
    with pytest.raises(LimitError, match="wait to be signed"):
        held.hold(5)
    held.hold(4)
    held.hold(-10)
    held.hold(10)
