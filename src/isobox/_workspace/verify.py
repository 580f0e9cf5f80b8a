"""Judging a workspace's work where whoever did it cannot reach."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from isobox._core.results import ByteStream, RunResult


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of judging a workspace.

    Attributes:
        passed: Whether the command ended by itself with status 0.
        result: What it printed, and how it ended.
        digest: SHA-256, in hexadecimal, of the archive of the files that were
            judged.
    """

    passed: bool
    result: RunResult
    digest: str


class Hashed:
    """The pieces of a stream, and the digest of all that went by."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._hash.update(piece)
            yield piece

    @property
    def digest(self) -> str:
        """SHA-256 of what went by, in hexadecimal."""
        return self._hash.hexdigest()


def check_hidden(sources: Iterable[str], seen: Iterable[str]) -> None:
    """Return if a judge alone can see the sources.

    Raises:
        InvalidArgumentError: The workspace sees one, by whatever name; or one is
            missing, or closed to the user that a sandbox started by root has.
    """
    shown = [os.path.realpath(path) for path in seen]
    for source in sources:
        real = os.path.realpath(source)
        for path in shown:
            if _is_below(real, path) or _is_below(path, real):
                raise InvalidArgumentError(
                    f"verify: {source} is what the workspace sees of the host, or "
                    "holds it; keep what judges it elsewhere"
                )
        _check_open(source)


def _is_below(path: str, above: str) -> bool:
    """Return whether a path is another, or below it, by whatever mount.

    By identity and not by name: a directory that is mounted twice has two.
    """
    with contextlib.suppress(FileNotFoundError):
        sought = os.stat(above)
        for holder in (Path(path), *Path(path).parents):
            if os.path.samestat(sought, holder.stat()):
                return True
    return _is_mounted_below(path, above)


def _is_mounted_below(path: str, above: str) -> bool:
    # A mount of a directory deep in a tree shows none of those that hold it.
    one, other = _origin(path), _origin(above)
    if one is None or other is None or one[0] != other[0]:
        return False
    return os.path.commonpath((one[1], other[1])) == other[1]


def _origin(path: str) -> tuple[str, str] | None:
    """Return the device that holds a path, and its name from the device's root."""
    found: tuple[str, str] | None = None
    longest = 0
    with (
        contextlib.suppress(FileNotFoundError),
        open("/proc/self/mountinfo", errors="surrogateescape") as file,
    ):
        for line in file:
            _, _, device, root, point, *_ = map(_unescaped, line.split(" "))
            shared = os.path.commonpath((path, point)) == point
            if shared and len(point) >= longest:  # the later one covers the other
                longest = len(point)
                found = (device, os.path.join(root, path[len(point) :].lstrip("/")))
    return found


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), field)


def _check_open(source: str) -> None:
    try:
        mode = os.stat(source).st_mode
    except OSError as error:
        raise InvalidArgumentError(f"verify: {source}: {error.strerror}") from None
    needed = 0o005 if stat.S_ISDIR(mode) else 0o004
    if os.geteuid() == 0 and mode & needed != needed:
        raise InvalidArgumentError(
            f"verify: {source} is closed to the sandbox's user, which is not root; "
            f"open it: chmod -R go+rX {source}"
        )
