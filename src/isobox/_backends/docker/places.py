"""Where the engine is: what was named, the environment, the usual sockets."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from isobox.errors import BackendUnavailableError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VARIABLES: Final = ("DOCKER_HOST", "CONTAINER_HOST")
_DEFAULT_PORT: Final = 2375
_INSTALL: Final = "apt-get install docker.io"
_ONLY_PODMAN: Final = (
    "Podman is installed, but its service does not run, and its API lacks what isobox "
    "needs"
)
_NOT_FOUND: Final = (
    "no container engine is found: neither DOCKER_HOST nor CONTAINER_HOST names one"
)
#: What lets a user use a socket that is another's.
PERMISSION: Final = (
    "sudo usermod --append --groups docker $USER, and log in again (who may use the "
    "socket is as good as root), or start a rootless engine"
)


@dataclass(frozen=True, slots=True)
class Place:
    """An engine's address.

    Attributes:
        url: `unix://` and a path, or `tcp://`, a host and a port.
        origin: What named it, for messages.
    """

    url: str
    origin: str

    @property
    def path(self) -> str | None:
        """The socket's path on this machine; None for an address."""
        return self.url.removeprefix("unix://") if self.is_local else None

    @property
    def is_local(self) -> bool:
        """Whether the engine sees the files of this machine."""
        return self.url.startswith("unix://")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or _DEFAULT_PORT


def find(named: str | None, environ: Mapping[str, str] = os.environ) -> Place:
    """Return where the engine is.

    Raises:
        InvalidArgumentError: What names it is no address of an engine.
        BackendUnavailableError: There is none.
    """
    if named is not None:
        return _checked(named, "engine")
    for variable in _VARIABLES:
        if environ.get(variable):
            return _checked(environ[variable], variable)
    if (path := next(sockets(environ), None)) is not None:
        return Place(f"unix://{path}", path)
    reason, fix = idle(environ) or (_NOT_FOUND, _INSTALL)
    tried = f"{reason}; no socket is at {', '.join(_usual(environ))}"
    raise BackendUnavailableError(tried, fix=fix, backend="docker")


def remedy(place: Place, said: str) -> str:
    """Return what helps where an engine is not reached, by what was said of it."""
    if place.is_local and "permission denied" in said.lower():
        return PERMISSION
    return f"start it, or name another: {place.origin}"


def idle(environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """Return what engine is installed and does not run, and what starts one."""
    path = environ.get("PATH", "")
    if shutil.which("dockerd", path=path):
        return (
            "Docker is installed, but its engine does not run",
            "sudo systemctl start docker",
        )
    if shutil.which("podman", path=path):
        return _ONLY_PODMAN, f"sudo {_INSTALL}"
    return None


def sockets(environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Return the usual sockets that are there, the likeliest first."""
    yield from filter(_is_socket, _usual(environ))


def _usual(environ: Mapping[str, str]) -> Iterator[str]:
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    yield "/var/run/docker.sock"
    yield f"{runtime}/docker.sock"
    yield os.path.expanduser("~/.docker/run/docker.sock")
    yield f"{runtime}/podman/podman.sock"
    yield "/run/podman/podman.sock"


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _checked(url: str, origin: str) -> Place:
    if url.startswith("/"):
        url = f"unix://{url}"
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return Place(f"unix://{os.path.normpath(parts.path)}", origin)
    if parts.scheme == "tcp" and parts.hostname and _has_port(url):
        return Place(url.rstrip("/"), origin)
    raise InvalidArgumentError(
        f"{origin}: {url!r} is no address of an engine; there are unix:///PATH and "
        "tcp://HOST:PORT (for ssh, forward the socket: ssh -L SOCKET:SOCKET HOST)"
    )


def _has_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False
