"""The latest of what was refused, and of what failed."""

from __future__ import annotations

import time

import pytest

from isobox._core.network import Denial
from isobox._egress import denial
from isobox._egress.denial import Denials, denial_of
from isobox._egress.place import BadRequestError
from isobox._egress.sources import SecretError
from isobox.errors import LimitError, PolicyDeniedError, UnreachableError

ONE = Denial("a.test", 443, "default", "no rule allows it")
OTHER = Denial("b.test", 80, "!b.test", "a rule denies it")


def test_what_was_refused_since():
    denials = Denials()
    start = time.monotonic()
    for each in (ONE, OTHER, ONE):
        denials.add(each)
    assert denials.since(start) == (OTHER, ONE)
    assert denials.since(time.monotonic() + 1) == ()


def test_the_same_again_does_not_push_out_the_rest(monkeypatch):
    monkeypatch.setattr(denial, "_MOST", 3)
    denials = Denials()
    for port in (1, 2, *[3] * 100):
        denials.add(Denial("a.test", port, "default", "no"))
    assert [each.port for each in denials.since(0)] == [1, 2, 3]
    denials.add(Denial("a.test", 4, "default", "no"))
    assert [each.port for each in denials.since(0)] == [2, 3, 4]


def test_what_nobody_has_answered_counts_as_refused():
    denials = Denials()
    with denials.unanswered(ONE), denials.unanswered(ONE) as answered:
        later = time.monotonic() + 1
        assert denials.since(later) == (ONE,)
        answered()
        answered()
        assert denials.since(later) == (ONE,)
    assert denials.since(0) == ()


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (PolicyDeniedError("m", rule="r", reason="x"), ("r", "x", "connection")),
        (LimitError("m"), ("limit", "m", "connection")),
        (UnreachableError("m"), ("unreachable", "m", "unreachable")),
        (SecretError("m", secret="A"), ("unreachable", "m", "unreachable")),
    ],
)
def test_what_an_error_means(error, found):
    rule, reason, kind = found
    assert denial_of(error, "a.test", 1) == Denial("a.test", 1, rule, reason, kind=kind)
    assert denial_of(BadRequestError("m"), "a.test", 1) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (OTHER, "b.test:80 (a rule denies it; rule '!b.test')"),
        (
            Denial("a.test", 53, "default", "no", kind="look-up"),
            "a.test (name look-up: no; rule 'default')",
        ),
        (
            Denial("a.test", 443, "unreachable", "it is gone", kind="unreachable"),
            "a.test:443 (it is gone)",
        ),
    ],
)
def test_a_denial_is_told(given, told):
    assert str(given) == told
