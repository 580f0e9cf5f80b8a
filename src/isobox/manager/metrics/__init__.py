"""A manager's events and numbers as metrics, for Prometheus and OpenTelemetry.

Both are called with each event and read the manager's `stats`. What they label is a
handful of fixed words: never a user, an agent, a session or a workspace, of which there
are as many as somebody likes to make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobox.manager.metrics.otel import OtelMetrics
    from isobox.manager.metrics.prometheus import PrometheusMetrics

__all__ = ["OtelMetrics", "PrometheusMetrics"]


def __getattr__(name: str) -> object:
    if name == "OtelMetrics":
        from isobox.manager.metrics import otel  # noqa: PLC0415

        return otel.OtelMetrics
    if name == "PrometheusMetrics":
        from isobox.manager.metrics import prometheus  # noqa: PLC0415

        return prometheus.PrometheusMetrics
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
