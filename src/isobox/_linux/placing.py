"""Files that only the sandbox sees, over what is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from isobox._core.paths import within
from isobox._linux import system
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from isobox.abc import Mount

_CLOSED: Final = (system.ROOT, "/proc", "/dev", os.path.dirname(system.PROGRAM))
_DIRECTORIES: Final = (*system.TAKEN, "/etc/ssl/certs", "/run", "/var/tmp", system.HOME)  # noqa: S108 - in the sandbox


def places(given: Mapping[str, bytes], of_host: Mapping[str, str]) -> dict[str, bytes]:
    """Return what stands where, with no link on the way, `system.FILES` aside.

    Args:
        given: Content by path.
        of_host: Where in the sandbox which part of the host is seen.

    Raises:
        InvalidArgumentError: A path is none that a file can have here.
    """
    placed = {_place(path, of_host): data for path, data in given.items()}
    return {place: data for place, data in placed.items() if place not in system.FILES}


def of_host(mounts: Iterable[Mount]) -> dict[str, str]:
    """Return where what of the host is seen, by default and by mounts."""
    shared = ["/usr", *(f"/{name}" for name in system.SYSTEM), *system.etc()]
    seen = {path: path for path in shared}
    return seen | {mount.target: os.path.realpath(mount.source) for mount in mounts}


def _place(path: str, of_host: Mapping[str, str]) -> str:
    """Return where a file stands, with no link on the way."""
    if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path:
        raise _refused(path, "is no absolute path without `.` and `..`")
    if any(within(path, closed) for closed in _CLOSED):
        raise _refused(
            path, "cannot be shown; choose a path outside of the workspace, /proc, /dev"
        )
    if any(within(directory, path) for directory in _DIRECTORIES):
        raise _refused(path, "would hide what the sandbox needs")
    for target, source in of_host.items():
        if within(path, target):
            return _over(path, source + path[len(target) :], of_host)
    return path


def _over(path: str, host: str, of_host: Mapping[str, str]) -> str:
    """Return where a file stands that covers `host`, a file of the host's."""
    real = os.path.realpath(host)
    if not os.path.isfile(real):
        raise _refused(path, "is in a directory of the host, which has no such file")
    if real == host:
        return path
    for target, source in of_host.items():
        if within(real, source):
            return target + real[len(source) :]
    raise _refused(path, f"is a link to {real}, which the sandbox does not see")


def _refused(path: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"files: {path!r} {why}", path=path)
