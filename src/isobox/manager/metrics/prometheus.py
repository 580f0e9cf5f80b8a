"""A manager's metrics for Prometheus; needs the extra `prometheus`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from isobox.errors import BackendMissingError, InvalidArgumentError
from isobox.manager.events import Kind
from isobox.manager.metrics.numbers import BOUNDS, GAUGES, STARTS, Sums

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from isobox.manager.events import Event
    from isobox.manager.metrics.numbers import Watched

_PREFIX: Final = "isobox_manager"


class PrometheusMetrics:
    """Counts and times a manager's events, and shows its numbers when it is scraped.

    Give it to the manager as `on_event`, and the manager to `watch`. The metrics are
    `isobox_manager_events_total` by `event`; `isobox_manager_start_seconds` by `event`
    (created, attached or recovered); `isobox_manager_wait_seconds`; and
    `isobox_manager_workspaces_live`, `_leased`, `_spares`, `_making` and `_waiting`.
    They are of this process.

    Args:
        registry: Where they are registered; the client's own one if None.

    Raises:
        BackendMissingError: The client is not installed.
        InvalidArgumentError: The registry has them already.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client as client  # noqa: PLC0415
        except ImportError as error:
            raise BackendMissingError(
                "PrometheusMetrics needs a client: pip install 'isobox[prometheus]'"
            ) from error
        place = client.REGISTRY if registry is None else registry
        self._sums = Sums()
        try:
            self._events = client.Counter(
                f"{_PREFIX}_events",
                "What happened to workspaces and to requests for them.",
                ["event"],
                registry=place,
            )
        except ValueError as error:
            raise InvalidArgumentError(
                "this registry has a manager's metrics already: let managers share one "
                "PrometheusMetrics, or give each its own registry"
            ) from error
        self._starts = client.Histogram(
            f"{_PREFIX}_start_seconds",
            "How long it took until a workspace was open.",
            ["event"],
            buckets=BOUNDS,
            registry=place,
        )
        self._waits = client.Histogram(
            f"{_PREFIX}_wait_seconds",
            "How long requests waited for their turn.",
            buckets=BOUNDS,
            registry=place,
        )
        for field, text in GAUGES.items():
            gauge = client.Gauge(f"{_PREFIX}_workspaces_{field}", text, registry=place)
            gauge.set_function(partial(self._sums.of, field))
        self._begin_at_nothing()

    def _begin_at_nothing(self) -> None:
        # So that the first event of a kind is an increase.
        for kind in Kind:
            self._events.labels(kind.value)
        for kind in STARTS:
            self._starts.labels(kind.value)

    def watch(self, manager: Watched) -> None:
        """Show a manager's numbers; of several, their sums."""
        self._sums.add(manager)

    def __call__(self, event: Event, /) -> None:
        """Take an event."""
        self._events.labels(event.kind.value).inc()
        if event.seconds is None:
            return
        if event.kind in STARTS:
            self._starts.labels(event.kind.value).observe(event.seconds)
        elif event.kind is Kind.WAITED:
            self._waits.observe(event.seconds)
