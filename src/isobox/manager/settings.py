"""What a manager is told, checked before anything of it is used."""

from __future__ import annotations

import inspect
import os
from typing import cast

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
    told = Settings(
        ttl=positive("ttl", ttl),
        retention=None if retention is None else seconds("retention", retention),
        max_live=_most("max_live", max_live),
        max_live_per_user=_most("max_live_per_user", max_live_per_user),
        queue_timeout=positive("queue_timeout", queue_timeout),
        prewarm=count("prewarm", prewarm, least=0),
        evict_after=seconds("evict_after", evict_after),
        handover_after=seconds("handover_after", handover_after),
        sweep_interval=positive(
            "sweep_interval",
            min(max(ttl / 10, 1.0), 60.0) if sweep_interval is None else sweep_interval,
        ),
        heartbeat=positive("heartbeat", heartbeat),
        holder_timeout=positive("holder_timeout", holder_timeout),
    )
    if holder_timeout < 2 * heartbeat:
        raise InvalidArgumentError(
            f"holder_timeout={holder_timeout} is less than twice heartbeat="
            f"{heartbeat}: one late beat would lose every workspace"
        )
    return told


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


def called(name: str, given: object, *, waits: bool = True) -> None:
    """Refuse what is neither None nor can be called, or is called in vain.

    Raises:
        InvalidArgumentError: It is no function, or one that would be awaited where
            nobody `waits`.
    """
    if given is None:
        return
    if not callable(given):
        raise InvalidArgumentError(f"{name}={given!r:.200} is no function")
    if not waits and (_is_async(given) or _is_async(type(given).__call__)):
        raise InvalidArgumentError(
            f"{name} is an async function, which nobody awaits: give one that returns "
            "at once"
        )


def _is_async(given: object) -> bool:
    return inspect.iscoroutinefunction(given)


def yes_or_no(name: str, given: object) -> bool:
    """Return a choice.

    Raises:
        InvalidArgumentError: It is none.
    """
    if not isinstance(given, bool):
        raise InvalidArgumentError(f"{name}={given!r:.200} is neither True nor False")
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
    """Return a time that is more than nothing.

    Raises:
        InvalidArgumentError: It is not.
    """
    if not (value := seconds(name, given)):
        raise InvalidArgumentError(f"{name}=0: give more than nothing")
    return value


def rate(name: str, given: object) -> float:
    """Return how many in a second.

    Raises:
        InvalidArgumentError: It is no number, not more than nothing, or without end.
    """
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not 0 < given <= _LONGEST
    ):
        raise InvalidArgumentError(
            f"{name}={given!r:.200} is no number of workspaces in a second: give more "
            "than 0, or None for no bound"
        )
    return given


def directory(name: str, given: object) -> str:
    """Return a path of the host, absolute and without links.

    Raises:
        InvalidArgumentError: It is none.
    """
    path: object = given
    if isinstance(given, os.PathLike):
        path = os.fspath(cast("os.PathLike[str]", given))
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidArgumentError(
            f"{name}={given!r:.200} is no path: name a directory"
        )
    return os.path.realpath(os.path.expanduser(path))


def _most(name: str, given: object) -> int | None:
    return None if given is None else count(name, given)
