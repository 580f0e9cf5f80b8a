"""What a manager is told, checked before anything of it is used."""

from __future__ import annotations

from isobox.errors import InvalidArgumentError
from isobox.manager.site import Settings

#: Seconds of the longest time: a hundred years.
_LONGEST = 3_200_000_000


def checked(
    *,
    ttl: float,
    retention: float | None,
    max_live: int | None,
    max_live_per_user: int | None,
    queue_timeout: float,
    prewarm: int,
    evict_after: float,
    handover_after: float,
    sweep_interval: float | None,
    heartbeat: float,
    holder_timeout: float,
) -> Settings:
    """Return a manager's settings.

    Raises:
        InvalidArgumentError: One cannot be honoured.
    """
    if holder_timeout < 2 * heartbeat:
        raise InvalidArgumentError(
            f"holder_timeout={holder_timeout} is less than twice heartbeat="
            f"{heartbeat}: one late beat would lose every workspace"
        )
    return Settings(
        ttl=positive("ttl", ttl),
        retention=None if retention is None else seconds("retention", retention),
        max_live=_most("max_live", max_live),
        max_live_per_user=_most("max_live_per_user", max_live_per_user),
        queue_timeout=positive("queue_timeout", queue_timeout),
        prewarm=count("prewarm", prewarm, least=0),
        evict_after=seconds("evict_after", evict_after),
        handover_after=seconds("handover_after", handover_after),
        sweep_interval=positive(
            "sweep_interval", sweep_interval or min(max(ttl / 10, 1.0), 60.0)
        ),
        heartbeat=positive("heartbeat", heartbeat),
        holder_timeout=positive("holder_timeout", holder_timeout),
    )


def count(name: str, given: object, *, least: int = 1) -> int:
    """Return a number of things.

    Raises:
        InvalidArgumentError: It is no whole number, or less than the least.
    """
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise InvalidArgumentError(
            f"{name}={given!r:.200} is no whole number from {least}"
        )
    return given


def seconds(name: str, given: object) -> float:
    """Return a time.

    Raises:
        InvalidArgumentError: It is no number, negative, or without end.
    """
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InvalidArgumentError(f"{name}={given!r:.200} is no number of seconds")
    if not 0 <= given <= _LONGEST:
        raise InvalidArgumentError(
            f"{name}={given} is no number of seconds from 0 to {_LONGEST}"
        )
    return given


def positive(name: str, given: object) -> float:
    """Return a time, or a rate, that is more than nothing.

    Raises:
        InvalidArgumentError: It is not.
    """
    if not (value := seconds(name, given)):
        raise InvalidArgumentError(f"{name}=0: give more than nothing")
    return value


def _most(name: str, given: object) -> int | None:
    return None if given is None else count(name, given)
