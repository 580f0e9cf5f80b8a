"""What a probe run means: strict about the answer, strict about the claims."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._core.isolation import DIMENSIONS, Barrier, Isolation
from isobox._probe import inside
from isobox._probe.report import ANSWER_LIMIT, Finding, judge, parse, plain
from isobox.errors import ProtocolError


def isolation(**levels) -> Isolation:
    barriers = {
        name: Barrier(levels.get(name, "strong"), "a wall") for name in DIMENSIONS
    }
    return Isolation(backend="walled", **barriers)


def everything(outcome="held", **others):
    found = dict.fromkeys(inside.CATALOGUE, (outcome, "said"))
    return found | {
        name.replace("_", "-"): (how, "said") for name, how in others.items()
    }


def answer(**changes) -> bytes:
    return json.dumps({"format": 1, "outcomes": {}} | changes).encode()


@pytest.mark.parametrize(
    ("outcome", "level", "verdict"),
    [
        ("reached", "strong", "unexpected"),
        ("reached", "partial", "admitted"),
        ("reached", "none", "admitted"),
        ("held", "strong", "held"),
        ("held", "none", "held"),
        ("absent", "strong", "absent"),
        ("error", "none", "unmeasured"),
        ("error", "strong", "unmeasured"),
    ],
)
def test_a_verdict_depends_on_what_is_claimed(outcome, level, verdict):
    finding = Finding(
        id="x",
        dimension="network",
        tries="Try",
        outcome=outcome,
        detail="",
        level=level,
    )
    assert finding.verdict == verdict


def test_nothing_reached_is_fine():
    report = judge(isolation(), everything())
    assert report.ok
    assert len(report.findings) == len(inside.CATALOGUE)


def test_one_thing_reached_where_all_is_claimed_is_not():
    report = judge(isolation(), everything(host_tcp="reached"))
    assert not report.ok
    assert [f.id for f in report.of("network", "unexpected")] == ["host-tcp"]
    assert report.of("process", "unexpected") == []


def test_the_same_is_fine_where_only_a_part_is_claimed():
    report = judge(isolation(network="partial"), everything(host_tcp="reached"))
    assert report.ok
    assert [f.id for f in report.of("network", "admitted")] == ["host-tcp"]


def test_a_backend_that_claims_nothing_is_never_caught_lying():
    claims = isolation(**dict.fromkeys(DIMENSIONS, "none"))
    assert judge(claims, everything("reached")).ok


def test_silence_is_not_a_pass():
    found = everything()
    del found["host-tcp"]
    report = judge(isolation(), found)
    assert not report.ok
    assert [f.id for f in report.of("network", "unmeasured")] == ["host-tcp"]
    assert not judge(isolation(), {}).ok


def test_a_probe_that_broke_is_not_a_pass():
    assert not judge(isolation(), everything(keyctl="error")).ok


def test_the_report_as_data():
    report = judge(isolation(tenant="none"), everything(vsock="reached"))
    data = json.loads(json.dumps(report.as_dict()))
    assert (data["backend"], data["ok"]) == ("walled", False)
    assert list(data["dimensions"]) == list(DIMENSIONS)
    assert data["dimensions"]["tenant"]["level"] == "none"
    network = data["dimensions"]["network"]
    assert network["mechanism"] == "a wall"
    assert {
        "id": "vsock",
        "tries": "Make a socket to the hypervisor",
        "outcome": "reached",
        "detail": "said",
        "verdict": "unexpected",
    } in network["probes"]
    counted = sum(len(part["probes"]) for part in data["dimensions"].values())
    assert counted == len(inside.CATALOGUE)


def test_an_answer_is_read():
    found = parse(answer(outcomes={"vsock": ["held", "EPERM"]}))
    assert found == {"vsock": ("held", "EPERM")}


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"NaN",
        b"[" * 100_000,
        b"1" * 10_000,
        answer() + b"{}",
        b" " * ANSWER_LIMIT + answer(),
        answer(extra=1),
        answer(format=2),
        answer(format="1"),
        answer(outcomes=[]),
        answer(outcomes={"no-such-probe": ["held", ""]}),
        answer(outcomes={"vsock": "held"}),
        answer(outcomes={"vsock": ["held"]}),
        answer(outcomes={"vsock": ["held", "", ""]}),
        answer(outcomes={"vsock": ["fine", ""]}),
        answer(outcomes={"vsock": [["held"], ""]}),
        answer(outcomes={"vsock": ["held", 1]}),
        answer(outcomes={"vsock": {"0": "held", "1": ""}}),
    ],
)
def test_a_hostile_answer_is_refused(hostile):
    with pytest.raises(ProtocolError):
        parse(hostile)


@given(st.binary() | st.text().map(str.encode))
def test_noise_is_refused(noise):
    with pytest.raises(ProtocolError):
        parse(noise)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_outcomes_are_read_or_refused(value):
    try:
        found = parse(answer(outcomes={"vsock": value}))
    except ProtocolError:
        return
    assert found["vsock"][0] in {"reached", "held", "absent", "error"}


@given(st.text(max_size=1000))
def test_no_text_of_a_sandbox_reaches_a_terminal_raw(text):
    shown = plain(text)
    assert len(shown) <= 300
    assert shown.isascii()
    assert shown.isprintable()
