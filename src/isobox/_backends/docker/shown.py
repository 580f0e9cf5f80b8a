"""Files of a workspace's own that its container sees."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING

from isobox.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from isobox._backends.docker.recipe import Recipe


class Shown:
    """A private directory of the host's, from which files are mounted.

    It is found again by the workspace's id, and its files are written anew: a
    container that runs sees them at once.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._path: str | None = None
        files = recipe.spec.files
        if not files:
            return
        if not recipe.place.is_local:
            raise UnsupportedError(
                "files of this machine cannot be shown by an engine elsewhere; "
                "leave secrets and rules that read requests out",
                backend="docker",
            )
        self._path = _private(recipe.spec.id)
        for number, file in enumerate(files):
            _check(file.path)
            source = os.path.join(self._path, str(number))
            _write(source, file.data)
            recipe.shown[file.path] = source

    def release(self) -> None:
        """Remove them."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)


def _private(workspace: str) -> str:
    base = os.path.join(tempfile.gettempdir(), f"isobox-docker-{os.geteuid()}")
    for path in (base, os.path.join(base, workspace)):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            found = os.lstat(path)
            # SAFETY: the name is known; another user may have been there first.
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise InvalidArgumentError(
                    f"{path} is not a directory of ours; remove it, or set TMPDIR"
                ) from None
    return path


def _write(path: str, data: bytes) -> None:
    # In place: a mount shows the file that it was made of.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o644)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, 0o644)
        file.write(data)


def _check(path: str) -> None:
    if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path:
        raise InvalidArgumentError(
            f"files: {path!r} is no absolute path without `.` and `..`", path=path
        )
