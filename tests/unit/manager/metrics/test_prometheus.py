"""A manager's events and numbers as Prometheus reads them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from isobox.errors import BackendMissingError, InvalidArgumentError
from isobox.manager.events import Event, Kind, Stats
from isobox.manager.metrics import PrometheusMetrics
from isobox.manager.records import Tenant

prometheus_client = pytest.importorskip("prometheus_client")

HOSTILE = Tenant(user='u"} 1\n', agent="a\x1b[31m", session="s")


def event(kind, seconds=None, reason=""):
    return Event(
        kind=kind,
        workspace_id="u-w-1",
        tenant=HOSTILE,
        at=1.0,
        seconds=seconds,
        reason=reason,
    )


class Manager:
    def __init__(self, **numbers):
        nothing = dict.fromkeys(["live", "leased", "spares", "waiting", "making"], 0)
        self.numbers = {**nothing, **numbers}

    def stats(self):
        return Stats(**self.numbers)


@pytest.fixture
def registry():
    return prometheus_client.CollectorRegistry()


@pytest.fixture
def metrics(registry):
    return PrometheusMetrics(registry)


def test_events_are_counted_by_kind(metrics, registry):
    for kind in (Kind.CREATED, Kind.REAPED, Kind.REAPED):
        metrics(event(kind))

    def count(kind):
        return registry.get_sample_value(
            "isobox_manager_events_total", {"event": kind.value}
        )

    assert (count(Kind.CREATED), count(Kind.REAPED), count(Kind.DENIED)) == (1, 2, 0)


def test_every_kind_is_there_before_it_happens(metrics, registry):
    text = prometheus_client.generate_latest(registry).decode()
    for kind in Kind:
        assert f'isobox_manager_events_total{{event="{kind.value}"}} 0.0' in text


@pytest.mark.parametrize("kind", [Kind.CREATED, Kind.ATTACHED, Kind.RECOVERED])
def test_starts_are_timed(metrics, registry, kind):
    metrics(event(kind, 0.25))
    metrics(event(kind, 0.5))
    labels, name = {"event": kind.value}, "isobox_manager_start_seconds"
    assert registry.get_sample_value(f"{name}_sum", labels) == 0.75
    assert registry.get_sample_value(f"{name}_bucket", {**labels, "le": "0.25"}) == 1


def test_waits_are_timed_apart(metrics, registry):
    metrics(event(Kind.WAITED, 2.0))
    metrics(event(Kind.REAPED, 3.0))
    assert registry.get_sample_value("isobox_manager_wait_seconds_sum") == 2.0
    assert registry.get_sample_value("isobox_manager_wait_seconds_count") == 1


def test_numbers_are_those_of_the_scrape(metrics, registry):
    manager = Manager(live=3, leased=1, spares=2, making=4, waiting=5)
    metrics.watch(manager)
    metrics.watch(manager)
    metrics.watch(Manager(live=10))
    manager.numbers["live"] = 4
    shown = {
        name: registry.get_sample_value(f"isobox_manager_workspaces_{name}")
        for name in manager.numbers
    }
    assert shown == {"live": 14, "leased": 1, "spares": 2, "making": 4, "waiting": 5}


def test_no_label_is_of_a_tenant(metrics, registry):
    for kind in Kind:
        metrics(event(kind, 1.0, reason="u-w-1 of ada"))
    text = prometheus_client.generate_latest(registry).decode()
    for name in ("u-w-1", "ada", "\x1b", 'u\\"}'):
        assert name not in text
    samples = [s for metric in registry.collect() for s in metric.samples]
    assert {label for sample in samples for label in sample.labels} == {"event", "le"}


def test_names_are_as_prometheus_wants_them(registry, metrics):
    units = {"counter": "_total", "histogram": "_seconds"}
    for metric in registry.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        assert name.startswith("isobox_manager_")
        assert name.endswith(units.get(metric.type, ""))
        assert metric.documentation


def test_a_registry_has_them_once(registry, metrics):
    with pytest.raises(InvalidArgumentError, match="share one"):
        PrometheusMetrics(registry)


def test_the_client_is_loaded_only_where_it_is_used(monkeypatch):
    script = (
        "import isobox.manager.metrics, sys; print('prometheus_client' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(BackendMissingError, match=r"isobox\[prometheus\]"):
        PrometheusMetrics()
