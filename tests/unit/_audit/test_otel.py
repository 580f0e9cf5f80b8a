"""Records as spans and metrics."""

from __future__ import annotations

import subprocess
import sys

import pytest

from isobox import LocalWorkspace, MemorySink
from isobox._audit import otel
from isobox._audit.otel import OtelSink
from isobox._audit.sinks import AuditSink, JsonlSink, refuse_within
from isobox.errors import BackendMissingError, InvalidArgumentError, PathMissingError

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Telemetry:
    """Keeps what a sink exports."""

    def __init__(self):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self.reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    def sink(self, inner=None, **options):
        return OtelSink(inner, tracers=self.tracers, meters=self.meters, **options)

    def spans(self):
        return {each.name: each for each in self.exporter.get_finished_spans()}

    def points(self, name):
        data = self.reader.get_metrics_data()
        (found,) = (
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        )
        return {
            (point.attributes["isobox.op"], point.attributes["isobox.ok"]): point
            for point in found.data.data_points
        }


@pytest.fixture
def telemetry():
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def record(number, kind, **fields):
    base = {"time": 10.0 + number, "workspace": "w", "backend": "b"}
    return {**base, "number": number, "kind": kind, **fields}


@pytest.mark.anyio
async def test_operations_are_spans_and_are_counted(telemetry, tmp_path):
    memory = MemorySink()
    sink = telemetry.sink(memory, facts=True)
    async with LocalWorkspace(tmp_path, audit=sink, workspace_id="w-1") as workspace:
        with telemetry.tracers.get_tracer("caller").start_as_current_span("turn"):
            await workspace.write("f", b"hush")
            await workspace.run(["sh", "-c", "exit 3"])
        with pytest.raises(PathMissingError):
            await workspace.read_bytes("absent")
    spans = telemetry.spans()
    assert set(spans) >= {
        "isobox.initialize", "isobox.write", "isobox.spawn", "isobox.read",
        "isobox.close",
    }  # fmt: skip
    write, read, spawn = (spans[f"isobox.{op}"] for op in ("write", "read", "spawn"))
    assert write.parent.span_id == spans["turn"].context.span_id
    assert read.parent is None
    assert write.attributes["isobox.workspace"] == "w-1"
    assert write.attributes["isobox.ok"] is True
    assert write.attributes["isobox.fact.size"] == 4
    assert spawn.attributes["isobox.fact.argv"] == ("sh", "-c", "exit 3")
    assert spawn.attributes["isobox.end.exit_code"] == 3
    assert read.attributes["error.type"] == "PathMissingError"
    assert not read.status.is_ok
    assert write.start_time <= write.end_time
    counts = telemetry.points("isobox.ops")
    assert counts["write", True].value == 1
    assert counts["read", False].value == 1
    assert telemetry.points("isobox.op.duration")["spawn", True].sum > 0
    assert len(memory.records) == 8
    assert "hush" not in repr([each.to_json() for each in spans.values()])


def test_facts_are_for_who_asks_for_them(telemetry):
    sink = telemetry.sink()
    sink.put(record(1, "intent", op="spawn", facts={"script": "s3cret"}))
    sink.put(record(1, "outcome", ok=True, seconds=1.0))
    (span,) = telemetry.spans().values()
    assert "s3cret" not in span.to_json()
    assert (span.start_time, span.end_time) == (11 * 10**9, 11 * 10**9)


def test_questions_are_spans(telemetry):
    sink = telemetry.sink()
    sink.put(record(1, "question", op="connect", facts={}))
    sink.put(record(1, "answer", answer="allow", seconds=1.0))
    (span,) = telemetry.spans().values()
    assert span.name == "isobox.question.connect"
    assert span.attributes["isobox.answer"] == "allow"


def test_what_the_inner_sink_refuses_is_no_span(telemetry):
    class Full:
        def put(self, record):
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        telemetry.sink(Full()).put(record(1, "intent", op="read", facts={}))
    assert telemetry.sink()._open == {}


def test_memory_and_attributes_are_bounded(telemetry, monkeypatch):
    monkeypatch.setattr(otel, "_OPEN", 10)
    sink = telemetry.sink(facts=True)
    facts = {"paths": ["x" * 9999] * 999, "script": "y" * 9999, "odd": None}
    for number in range(30):
        sink.put(record(number, "intent", op="patch", facts=facts))
    assert len(sink._open) == 10
    for number in range(30):
        sink.put(record(number, "outcome", ok=True, seconds=1.0))
    assert sink._open == {}
    spans = telemetry.exporter.get_finished_spans()
    assert len(spans) == 30
    assert all(len(each.to_json()) < 200_000 for each in spans)


def test_a_file_within_is_refused_behind_it_too(telemetry, tmp_path):
    inner = JsonlSink(tmp_path / "a.jsonl")
    sink = telemetry.sink(telemetry.sink(inner))
    assert isinstance(sink, AuditSink)
    with pytest.raises(InvalidArgumentError, match="inside the workspace"):
        refuse_within(str(tmp_path), sink)
    inner.close()


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(BackendMissingError, match=r"pip install 'isobox\[otel\]'"):
        OtelSink()


def test_it_loads_nothing_before_it_is_made():
    code = (
        "import sys, isobox._audit.otel, isobox._audit.sinks;"
        "assert 'opentelemetry' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
