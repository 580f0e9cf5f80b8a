"""What `isobox doctor` says of container engines: what is there, what is missing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from isobox._backends.docker import places
from isobox._core.spec import Availability
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from isobox._backends.docker.ability import Ability
    from isobox._backends.docker.places import Place


class _Missing(NamedTuple):
    reason: str
    fix: str


def of_engine(place: Place, ability: Ability) -> Availability:
    """Say what an engine that answers is good for."""
    about = f"{ability.name} at {place.url}"
    if ability.podman:
        return Availability(
            backend="docker",
            ok=False,
            reason=f"{about}: its API gives no private directory an owner, and no "
            "stream to a container before it starts; isobox needs both",
            fix="name a Docker engine by DOCKER_HOST, or use bubblewrap",
        )
    if not ability.seccomp:
        about += ", without a filter of system calls"
    runtimes = ", ".join(sorted(ability.runtimes))
    return Availability(
        backend="docker", ok=True, reason=f"{about}, runtimes {runtimes}"
    )


def of_failure(
    error: Exception, environ: Mapping[str, str] = os.environ
) -> Availability:
    """Say why no engine answers, and the one command that most likely helps."""
    named = environ.get("DOCKER_HOST") or environ.get("CONTAINER_HOST")
    missing = None if named else _missing(environ)
    if missing is not None:
        return Availability(
            backend="docker", ok=False, reason=missing.reason, fix=missing.fix
        )
    fix = error.fix if isinstance(error, BackendUnavailableError) else None
    reason = str(error).partition("\n")[0]
    return Availability(backend="docker", ok=False, reason=reason, fix=fix)


def _missing(environ: Mapping[str, str]) -> _Missing | None:
    if (socket := next(places.sockets(environ), None)) is not None:
        if os.access(socket, os.R_OK | os.W_OK):
            return None
        return _Missing(
            f"an engine listens at {socket}, but uid {os.geteuid()} may not use it",
            places.PERMISSION,
        )
    idle = places.idle(environ)
    return None if idle is None else _Missing(*idle)
