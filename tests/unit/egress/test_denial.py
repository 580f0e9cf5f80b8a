"""The latest of what was refused."""

from __future__ import annotations

import time

from isobox._core.network import Denial
from isobox._egress import denial
from isobox._egress.denial import Denials


def test_what_was_refused_since():
    denials = Denials()
    start = time.monotonic()
    denials.add("a.test", 443, "default", "no rule allows it")
    denials.add("b.test", 80, "!b.test", "a rule denies it")
    denials.add("a.test", 443, "default", "no rule allows it")
    assert denials.since(start) == (
        Denial("b.test", 80, "!b.test", "a rule denies it"),
        Denial("a.test", 443, "default", "no rule allows it"),
    )
    assert denials.since(time.monotonic() + 1) == ()


def test_the_same_again_does_not_push_out_the_rest(monkeypatch):
    monkeypatch.setattr(denial, "_MOST", 3)
    denials = Denials()
    for port in (1, 2, *[3] * 100):
        denials.add("a.test", port, "default", "no")
    assert [each.port for each in denials.since(0)] == [1, 2, 3]
    denials.add("a.test", 4, "default", "no")
    assert [each.port for each in denials.since(0)] == [2, 3, 4]


def test_a_denial_is_told():
    told = str(Denial("a.test", 443, "!a.test", "a rule denies it"))
    assert told == "a.test:443 (a rule denies it; rule '!a.test')"
