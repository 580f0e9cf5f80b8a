"""Records as OpenTelemetry's spans and metrics; needs the extra `otel`."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, cast

from isobox.errors import BackendMissingError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from isobox._audit.records import Record
    from isobox._audit.sinks import AuditSink

#: Operations that may go on at once; of more, the oldest spans end early.
_OPEN: Final = 4096
#: Characters of a text that an attribute repeats.
_TEXT: Final = 1024
_ITEMS: Final = 64
_SECONDS: Final = 1e9

_Key = tuple[str, str, int]


class OtelSink:
    """Makes a span of each operation and question, and counts and times them.

    A span begins within the one that is current where the operation was asked for.
    Its name is `isobox.` and the operation's; its attributes name the workspace, and
    the operation's facts only where that is asked for: they hold paths, arguments
    and scripts, and go wherever spans go.

    The metrics are `isobox.ops` (by `isobox.op`, `isobox.backend`, `isobox.ok` and
    `error.type`) and `isobox.op.duration` in seconds.

    Args:
        inner: Takes each record first; when it raises, the operation does not run.
        facts: Whether spans have the facts of operations.
        tracers: Where spans go; the global provider if None.
        meters: Where metrics go; the global provider if None.

    Raises:
        BackendMissingError: OpenTelemetry is not installed.
    """

    def __init__(
        self,
        inner: AuditSink | None = None,
        *,
        facts: bool = False,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        try:
            from opentelemetry import metrics, trace  # noqa: PLC0415
        except ImportError as error:
            raise BackendMissingError(
                "OtelSink needs OpenTelemetry: pip install 'isobox[otel]'"
            ) from error
        self.inner = inner
        self._facts = facts
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._tracer = (tracers or trace.get_tracer_provider()).get_tracer("isobox")
        meter = (meters or metrics.get_meter_provider()).get_meter("isobox")
        self._count = meter.create_counter(
            "isobox.ops", unit="{op}", description="Operations that have ended."
        )
        self._duration = meter.create_histogram(
            "isobox.op.duration", unit="s", description="How long operations took."
        )
        self._open: OrderedDict[_Key, tuple[Span, str]] = OrderedDict()

    def put(self, record: Record, /) -> None:
        """Hand the record on, then begin or end a span.

        Raises:
            Exception: What the inner sink raises.
        """
        if self.inner is not None:
            self.inner.put(record)
        kind = record["kind"]
        if kind in ("intent", "question"):
            self._begin(record, str(kind))
        elif kind in ("outcome", "answer"):
            self._end(record)
        else:
            span = self._span(record, f"isobox.{record.get('event')}")
            span.end(_nanoseconds(record))

    def _begin(self, record: Record, kind: str) -> None:
        op = str(record.get("op"))
        name = f"isobox.{op}" if kind == "intent" else f"isobox.question.{op}"
        span = self._span(record, name)
        span.set_attribute("isobox.op", op)
        if self._facts:
            facts = cast("dict[str, object]", record.get("facts", {}))
            for fact, value in facts.items():
                span.set_attribute(f"isobox.fact.{fact}", _attribute(value))
        self._open[_key(record)] = span, op
        while len(self._open) > _OPEN:
            _, (oldest, _op) = self._open.popitem(last=False)
            oldest.end()

    def _end(self, record: Record) -> None:
        span, op = self._open.pop(_key(record), (None, "unknown"))
        if record["kind"] == "outcome":
            self._measure(record, op)
        if span is None:
            return
        for field in ("ok", "answer"):
            if field in record:
                span.set_attribute(f"isobox.{field}", _attribute(record[field]))
        if "error" in record:
            span.set_attribute("error.type", str(record["error"]))
            span.set_status(self._failed)
        end = cast("dict[str, object]", record.get("end") or {})
        for fact, value in end.items():
            span.set_attribute(f"isobox.end.{fact}", _attribute(value))
        span.end(_nanoseconds(record))

    def _measure(self, record: Record, op: str) -> None:
        attributes: dict[str, AttributeValue] = {
            "isobox.op": op,
            "isobox.backend": str(record["backend"]),
            "isobox.ok": bool(record.get("ok")),
        }
        if "error" in record:
            attributes["error.type"] = str(record["error"])
        self._count.add(1, attributes)
        self._duration.record(cast("float", record["seconds"]), attributes)

    def _span(self, record: Record, name: str) -> Span:
        attributes: dict[str, AttributeValue] = {
            "isobox.workspace": str(record["workspace"]),
            "isobox.backend": str(record["backend"]),
            "isobox.number": cast("int", record["number"]),
        }
        return self._tracer.start_span(
            name, attributes=attributes, start_time=_nanoseconds(record)
        )


def _key(record: Record) -> _Key:
    number = cast("int", record["number"])
    return str(record["workspace"]), str(record["backend"]), number


def _nanoseconds(record: Record) -> int:
    return int(cast("float", record["time"]) * _SECONDS)


def _attribute(value: object) -> AttributeValue:
    """Return a fact as one, cut to a moderate size."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        items = cast("list[object]", value)[:_ITEMS]
        return [str(item)[:_TEXT] for item in items]
    return str(value)[:_TEXT]
