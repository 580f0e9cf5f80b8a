"""A manager's metrics for OpenTelemetry; needs the extra `otel`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from isobox.errors import BackendMissingError
from isobox.manager.events import Kind
from isobox.manager.metrics.numbers import BOUNDS, GAUGES, STARTS, Sums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

    from isobox.manager.events import Event
    from isobox.manager.metrics.numbers import Watched


class OtelMetrics:
    """Counts and times a manager's events, and shows its numbers when they are read.

    Give it to the manager as `on_event`, and the manager to `watch`. The metrics are
    `isobox.manager.events` by `isobox.event`; `isobox.manager.start.duration` by
    `isobox.event` (created, attached or recovered); `isobox.manager.wait.duration`; and
    `isobox.manager.workspaces.live`, `.leased`, `.spares`, `.making` and `.waiting`.

    Args:
        meters: Where they go; the global provider if None.

    Raises:
        BackendMissingError: OpenTelemetry is not installed.
    """

    def __init__(self, meters: MeterProvider | None = None) -> None:
        try:
            from opentelemetry import metrics  # noqa: PLC0415
        except ImportError as error:
            raise BackendMissingError(
                "OtelMetrics needs OpenTelemetry: pip install 'isobox[otel]'"
            ) from error
        self._observation = metrics.Observation
        self._sums = Sums()
        meter = (meters or metrics.get_meter_provider()).get_meter("isobox")
        self._events = meter.create_counter(
            "isobox.manager.events",
            unit="{event}",
            description="What happened to workspaces and to requests for them.",
        )
        self._starts = meter.create_histogram(
            "isobox.manager.start.duration",
            unit="s",
            description="How long it took until a workspace was open.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        self._waits = meter.create_histogram(
            "isobox.manager.wait.duration",
            unit="s",
            description="How long requests waited for their turn.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        for field, text in GAUGES.items():
            meter.create_observable_up_down_counter(
                f"isobox.manager.workspaces.{field}",
                callbacks=[partial(self._observe, field)],
                unit="{workspace}",
                description=text,
            )

    def watch(self, manager: Watched) -> None:
        """Show a manager's numbers; of several, their sums."""
        self._sums.add(manager)

    def __call__(self, event: Event, /) -> None:
        """Take an event."""
        kind = {"isobox.event": event.kind.value}
        self._events.add(1, kind)
        if event.seconds is None:
            return
        if event.kind in STARTS:
            self._starts.record(event.seconds, kind)
        elif event.kind is Kind.WAITED:
            self._waits.record(event.seconds)

    def _observe(self, field: str, _: CallbackOptions) -> Iterable[Observation]:
        return [self._observation(self._sums.of(field))]
