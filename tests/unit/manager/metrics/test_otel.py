"""A manager's events and numbers as OpenTelemetry reads them."""

from __future__ import annotations

import sys

import pytest

from isobox.errors import BackendMissingError
from isobox.manager.events import Event, Kind, Stats
from isobox.manager.metrics import OtelMetrics
from isobox.manager.records import Tenant

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader


class Manager:
    def __init__(self, live):
        self.live = live

    def stats(self):
        return Stats(live=self.live, leased=1, spares=2, making=4, waiting=5)


class Telemetry:
    def __init__(self):
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.metrics = OtelMetrics(self.meters)

    def tell(self, kind, seconds=None):
        whose = Tenant(user="ada", agent="coder", session="monday")
        self.metrics(
            Event(
                kind=kind,
                workspace_id="ada-w-1",
                tenant=whose,
                at=1.0,
                seconds=seconds,
                reason="of ada",
            )
        )

    def points(self):
        data = self.reader.get_metrics_data()
        return {
            (metric.name, point.attributes.get("isobox.event")): point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def telemetry():
    made = Telemetry()
    yield made
    made.meters.shutdown()


def test_events_are_counted_by_kind(telemetry):
    for kind in (Kind.CREATED, Kind.REAPED, Kind.REAPED):
        telemetry.tell(kind)
    points = telemetry.points()
    assert points["isobox.manager.events", "created"].value == 1
    assert points["isobox.manager.events", "reaped"].value == 2


def test_starts_and_waits_are_timed(telemetry):
    telemetry.tell(Kind.ATTACHED, 0.25)
    telemetry.tell(Kind.ATTACHED, 0.5)
    telemetry.tell(Kind.WAITED, 2.0)
    telemetry.tell(Kind.REAPED, 3.0)
    points = telemetry.points()
    started = points["isobox.manager.start.duration", "attached"]
    waited = points["isobox.manager.wait.duration", None]
    assert (started.sum, started.count) == (0.75, 2)
    assert (waited.sum, waited.count) == (2.0, 1)
    assert 0.25 in started.explicit_bounds


def test_numbers_are_those_of_the_reading(telemetry):
    manager = Manager(3)
    telemetry.metrics.watch(manager)
    telemetry.metrics.watch(Manager(10))
    manager.live = 4
    points = telemetry.points()
    shown = {
        name.rpartition(".")[2]: point.value
        for (name, _), point in points.items()
        if name.startswith("isobox.manager.workspaces.")
    }
    assert shown == {"live": 14, "leased": 2, "spares": 4, "making": 8, "waiting": 10}


def test_no_attribute_is_of_a_tenant(telemetry):
    for kind in Kind:
        telemetry.tell(kind, 1.0)
    known = {kind.value for kind in Kind}
    for point in telemetry.points().values():
        assert set(point.attributes) <= {"isobox.event"}
        assert set(point.attributes.values()) <= known


def test_without_opentelemetry_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(BackendMissingError, match=r"isobox\[otel\]"):
        OtelMetrics()
