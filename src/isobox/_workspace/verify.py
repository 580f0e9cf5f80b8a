"""Judging a workspace's work where whoever did it cannot reach."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
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
            if os.path.commonpath((real, path)) in (real, path):
                raise InvalidArgumentError(
                    f"verify: {source} is what the workspace sees of the host, or "
                    "holds it; keep what judges it elsewhere"
                )
        _check_open(source)


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
