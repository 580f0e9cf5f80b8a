"""Files that only the sandbox sees, over what is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from isobox._backends.bubblewrap import view
from isobox._core.paths import within
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from isobox.abc import Mount

_CLOSED: Final = (view.ROOT, "/proc", "/dev", os.path.dirname(view.PROGRAM))
_DIRECTORIES: Final = (*view.TAKEN, "/etc/ssl/certs", "/run", "/var/tmp", view.HOME)  # noqa: S108 - in the sandbox


def show(shown: view.View, given: Mapping[str, bytes], mounts: Iterable[Mount]) -> None:
    """Show read-only files, those of `view.FILES` aside.

    Raises:
        InvalidArgumentError: A path is none that a file can have here.
    """
    of_host = {path: path for path in _of_host()}
    of_host |= {mount.target: os.path.realpath(mount.source) for mount in mounts}
    # bwrap cannot cover what it has made itself.
    places = {_place(path, of_host): data for path, data in given.items()}
    for place, data in places.items():
        if place not in view.FILES:
            shown.add("--ro-bind-data", shown.data(data), place)


def _of_host() -> list[str]:
    return ["/usr", *(f"/{name}" for name in view.SYSTEM), *view.etc()]


def _place(path: str, of_host: dict[str, str]) -> str:
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


def _over(path: str, host: str, of_host: dict[str, str]) -> str:
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
