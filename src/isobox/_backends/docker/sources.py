"""What of the host a container shows: checked, and known again.

An engine is told a path, and follows it anew whenever it starts the container. What
is at the path may be another by then, or a link that commands have made.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final, cast

from isobox import _workdir
from isobox._backends.docker import labels, remains
from isobox._backends.docker.options import ROOT
from isobox._core.paths import within
from isobox._linux.syscalls import RESOLVE_IN_ROOT, openat2
from isobox.errors import ConflictError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from isobox._backends.docker.engine import Answer, Engine
    from isobox._backends.docker.places import Place

_OPEN: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC

#: What a kernel says that does not let us look.
_UNABLE: Final = (errno.EACCES, errno.EPERM, errno.ENOSYS)

#: A host path, and where a container shows it.
Bind = tuple[str, str]
#: The device and the number of a file.
_Identity = tuple[int, int]


class Sources:
    """The files and directories of the host that one workspace shows.

    What each is, is kept from the first look on.

    Args:
        workdir: The workspace's directory.
        place: Where the engine is.
    """

    def __init__(self, workdir: str | None, place: Place) -> None:
        self._workdir = workdir
        self._place = place
        self._known: dict[str, _Identity] = {}

    def check(self, binds: Iterable[Bind]) -> None:
        """See that they may be shown, and are the ones that they were.

        Raises:
            InvalidArgumentError: One leads to the engine, or through a link that
                commands can make.
            PathError: The workspace's directory is none.
            ConflictError: One is another than at the first look.
        """
        for source, target in binds:
            found = self._found(source, target)
            if self._known.setdefault(target, found) != found:
                raise _exchanged(source)

    def check_shown(self, binds: Sequence[Bind], container: str, pid: int) -> None:
        """See that a container shows the ones that were checked.

        It is looked at from outside, by a process of its own: the first, or with
        gVisor the one that opens files. Where the host sees none, the paths are
        checked once more.

        Raises:
            ConflictError: It shows another.
            InvalidArgumentError: As from `check`.
            PathError: As from `check`.
        """
        expected = {target: source for source, target in binds}
        seen = _seen([ROOT, *expected], container, pid) if expected else {}
        if seen is None:
            self.check(binds)
            return
        for target, source in expected.items():
            if seen.get(target) != self._known.get(target):
                raise _exchanged(source)

    def _found(self, source: str, target: str) -> _Identity:
        if target == ROOT:
            # Whoever the commands are: no link on the way to it is followed.
            fd = _workdir.opened(source)
            try:
                _refuse(source, self._place)
                return _identity(os.fstat(fd))
            finally:
                os.close(fd)
        if self._workdir is not None and within(target, ROOT):
            _refuse_link(source)
        return _refuse(source, self._place)


def refuse_inside(source: str, workdir: str | None) -> None:
    """Refuse to show what commands can exchange.

    Raises:
        InvalidArgumentError: It is in the workspace's directory.
    """
    if workdir is None:
        return
    if _is_in(source, workdir):
        raise InvalidArgumentError(
            f"mounts: {source!r} is in the workspace, where commands can put a link "
            "in its place; it is seen below /workspace anyway, or copy it elsewhere",
            path=source,
        )


async def refuse_neighbours(engine: Engine, sources: Sequence[str]) -> None:
    """Refuse to show what commands of another workspace can exchange.

    Raises:
        InvalidArgumentError: It is in the directory of one that the engine has.
    """
    if not sources:
        return
    for found in await engine.containers(label=[labels.WORKSPACE]):
        for root in _written(found):
            for source in sources:
                _refuse_neighbour(source, root)


def _written(found: Answer) -> Iterator[str]:
    """Return the directory of the host that is a container's workspace."""
    mounts: object = found.get("Mounts")
    for each in cast("list[Answer]", mounts) if isinstance(mounts, list) else []:
        if each.get("Type") == "bind" and each.get("Destination") == ROOT:
            yield str(each.get("Source"))


def _refuse_neighbour(source: str, root: str) -> None:
    if _is_in(source, root):
        raise InvalidArgumentError(
            f"mounts: {source!r} is in {root!r}, the directory of another workspace, "
            "whose commands can put a link in its place; copy it elsewhere",
            path=source,
        )


def _is_in(source: str, root: str) -> bool:
    places = {os.path.abspath(source), _real(source)}
    roots = {root, _real(root)}
    return any(within(place, each) for place in places for each in roots)


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError as error:
        # What is a link at one moment and none at the next.
        raise InvalidArgumentError(
            f"{path!r} cannot be mounted: {error.strerror}", path=path
        ) from error


def _refuse(source: str, place: Place) -> _Identity:
    """Refuse what leads to the engine, which is root of the host."""
    real = _real(source)
    try:
        found = os.lstat(real)
    except OSError as error:
        raise InvalidArgumentError(
            f"{source!r} cannot be mounted: {error.strerror}", path=source
        ) from error
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        raise InvalidArgumentError(
            f"{source!r} is no file and no directory; sockets and devices of the host "
            "are not mounted",
            path=source,
        )
    if any(within(socket, real) for socket in _sockets(place)):
        raise InvalidArgumentError(
            f"{source!r} holds the engine's socket, and with it the host; mount "
            "something below it",
            path=source,
        )
    return _identity(found)


def _refuse_link(source: str) -> None:
    if _real(source) != source:
        raise InvalidArgumentError(
            f"{source!r} is, or goes through, a link in the workspace; remove it",
            path=source,
        )


def _sockets(place: Place) -> set[str]:
    usual = ("/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd")
    return {os.path.realpath(path) for path in (place.path, *usual) if path}


# What is in a container.


def _seen(targets: list[str], container: str, pid: int) -> dict[str, _Identity] | None:
    """Return what a container shows; None where this host does not see into it."""
    looked = False
    for each in remains.processes(container, pid):
        try:
            root = os.open(f"/proc/{each}/root", _OPEN | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            return {target: _below(root, target) for target in targets}
        except OSError as error:
            # gVisor's kernel is a process that has no files.
            looked = looked or error.errno not in _UNABLE
        finally:
            os.close(root)
    return {} if looked else None


def _below(root: int, target: str) -> _Identity:
    # SAFETY: links of the image lead to places in the image, as for the engine.
    fd = openat2(root, target, _OPEN, resolve=RESOLVE_IN_ROOT)
    try:
        return _identity(os.fstat(fd))
    finally:
        os.close(fd)


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino


def _exchanged(source: str) -> ConflictError:
    return ConflictError(
        f"{source!r} is another than when the workspace was opened, and was not shown "
        "to commands; put it back, or close the workspace and open it anew",
        backend="docker",
    )
