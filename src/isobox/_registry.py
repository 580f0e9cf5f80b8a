"""Backends by name: where they live and what they need."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from isobox.abc import Provider
from isobox.errors import BackendMissingError

GROUP = "isobox.backends"


@dataclass(frozen=True, slots=True)
class Row:
    """One backend: its provider's place, and the extra it needs."""

    place: str
    extra: str | None = None


_ROWS = {
    "local": Row("isobox._backends.local:LocalProvider"),
    "bubblewrap": Row("isobox._backends.bubblewrap:BubblewrapProvider"),
    "docker": Row("isobox._backends.docker.provider:DockerProvider", extra="docker"),
    "gvisor": Row("isobox._backends.gvisor:GVisorProvider"),
    "seatbelt": Row("isobox._backends.seatbelt:SeatbeltProvider"),
}


def names() -> list[str]:
    """Return the names of the backends there are, third parties' included."""
    return [*_ROWS, *sorted(_third_parties().keys() - _ROWS.keys())]


def provider(name: str, *options: object) -> Provider:
    """Return a new provider of the backend called `name`.

    Args:
        name: The backend's name.
        *options: What its constructor takes; its defaults if none.

    Raises:
        BackendMissingError: There is none, or its extra is not installed.
    """
    place = _ROWS[name].place if name in _ROWS else _third_parties().get(name)
    if place is None:
        raise BackendMissingError(
            f"no backend is called {name!r}; there are: {', '.join(names())}",
            backend=name,
        )
    module, _, attribute = place.partition(":")
    try:
        made: object = getattr(import_module(module), attribute)(*options)
    except (ImportError, AttributeError) as error:
        raise BackendMissingError(_missing(name, error), backend=name) from error
    if not isinstance(made, Provider):
        raise BackendMissingError(
            f"{place} is not an isobox.abc.Provider", backend=name
        )
    return made


def fix(name: str) -> str | None:
    """Return the command that installs what a backend needs, if it needs any."""
    row = _ROWS.get(name)
    return f"pip install 'isobox[{row.extra}]'" if row and row.extra else None


def _missing(name: str, error: ImportError | AttributeError) -> str:
    command = fix(name)
    if command is None:
        return f"backend {name!r} cannot be imported: {error}"
    return f"backend {name!r} needs an extra: {command}"


def _third_parties() -> dict[str, str]:
    # Slow to import, and needed only for names that are not ours.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {point.name: point.value for point in entry_points(group=GROUP)}
