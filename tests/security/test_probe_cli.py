"""`isobox probe`: exit status, JSON and table; and the real backends, measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from isobox import _registry
from isobox._core.isolation import DIMENSIONS, Barrier, Isolation
from isobox._probe import inside, measure
from isobox._probe.report import judge
from isobox.cli import probe as command
from isobox.errors import BackendMissingError

if TYPE_CHECKING:
    from isobox._probe.report import Outcome

pytestmark = pytest.mark.anyio


def canned(monkeypatch, level, **reached):
    claims = Isolation(
        backend="walled", **dict.fromkeys(DIMENSIONS, Barrier(level, "a wall"))
    )
    outcomes: dict[str, tuple[Outcome, str]] = {
        **dict.fromkeys(inside.CATALOGUE, ("held", "EPERM")),
        **{name: ("reached", detail) for name, detail in reached.items()},
    }

    async def measured(backend, **_options):
        assert backend == "walled"
        return judge(claims, outcomes)

    monkeypatch.setattr(command, "measure", measured)


async def test_nothing_unexpected_is_status_0(monkeypatch, capsys):
    canned(monkeypatch, "partial", keyctl="it answered")
    assert await command.probe(backend="walled", as_json=False) == 0
    shown = capsys.readouterr().out
    assert "admitted    keyctl: Ask for the session keyring: it answered" in shown
    assert "Nothing got through what the backend claims to hold." in shown


async def test_something_unexpected_is_status_1(monkeypatch, capsys):
    canned(monkeypatch, "strong", keyctl="[bold]it answered")
    assert await command.probe(backend="walled", as_json=False) == 1
    shown = capsys.readouterr().out
    assert "unexpected  keyctl: Ask for the session keyring: [bold]it answered" in shown
    assert "1 probes got through what the backend claims to hold; 0 could" in shown


async def test_json_has_every_probe(monkeypatch, capsys):
    canned(monkeypatch, "strong", keyctl="it answered")
    assert await command.probe(backend="walled", as_json=True) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    counted = sum(len(part["probes"]) for part in data["dimensions"].values())
    assert counted == len(inside.CATALOGUE)


async def test_an_unknown_backend_is_named():
    with pytest.raises(BackendMissingError, match="no-such"):
        await command.probe(backend="no-such", as_json=True)


async def test_local_claims_nothing_and_is_reached_everywhere():
    report = await measure.measure("local")
    assert report.ok
    reached = {f.id for f in report.findings if f.outcome == "reached"}
    assert {
        "host-file",
        "host-process",
        "host-tcp",
        "neighbour-abstract-socket",
        "neighbour-file",
        "neighbour-process",
        "neighbour-tcp",
        "net-namespace",
    } <= reached
    # The host's environment is not passed on, even there.
    assert "environment" not in reached


@pytest.mark.parametrize("backend", ["bubblewrap", "gvisor"])
async def test_a_backend_holds_what_it_claims(backend):
    available = await _registry.provider(backend).probe()
    if not available.ok:
        pytest.skip(available.reason)
    report = await measure.measure(backend)
    broken = [f.as_dict() for f in report.findings if f.verdict == "unmeasured"]
    assert broken == []
    let_through = [f.as_dict() for f in report.findings if f.verdict == "unexpected"]
    assert let_through == []
    assert not {f.id for f in report.of("tenant", "unexpected", "admitted")} & {
        f"neighbour-{what}" for what in ("file", "process", "signal", "tcp")
    }
