"""Skills that a workspace begins with, once."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread

from isobox._workdir.state import State
from isobox._workspace.skills.installed import push
from isobox._workspace.skills.package import packed
from isobox.errors import PathExistsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._core.sandbox import Sandbox
    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.skills.package import Source

_VERSION: Final = 1
_MOST: Final = 10_000


class SkillsWarning(UserWarning):
    """Which skills a directory was given is not remembered; all may come back."""


class Seeds:
    """The skills that a workspace begins with.

    Each is put in once for a directory: one that was removed there stays away.
    """

    def __init__(self, workspace: WorkspaceBase, sources: Iterable[Source]) -> None:
        self._workspace = workspace
        self._sources = tuple(sources)
        self._lock = anyio.Lock()
        self._done: Sandbox | None = None

    async def plant(self) -> None:
        """Put in what was not put in before.

        Raises:
            ArchiveError: A member of one is refused.
            InvalidArgumentError: One is no skill.
            PathMissingError: There is nothing at the path of one.
        """
        async with self._lock:
            if not self._sources or self._done is self._workspace._sandbox:
                return
            for number, source in enumerate(self._sources):
                name = f"skills[{number}]" if isinstance(source, bytes) else ""
                await self._plant(source, name)
            self._done = self._workspace._sandbox

    async def _plant(self, source: Source, name: str) -> None:
        package = await anyio.to_thread.run_sync(packed, source, name)
        with package.tar:
            # Not before: another workspace may have put it in meanwhile, where
            # somebody has removed it again.
            memory = await anyio.to_thread.run_sync(Memory, self._workspace._workdir)
            if package.name in memory.names:
                return
            # Whoever put another there may keep it.
            with contextlib.suppress(PathExistsError):
                await push(self._workspace, package, replace=False)
        # Another process may hold the file for seconds.
        await anyio.to_thread.run_sync(memory.add, package.name)


class Memory:
    """The names of skills that a directory was given, kept outside of it.

    Args:
        directory: Its path on the host; None remembers nothing, as for a
            directory that goes with its workspace.
    """

    def __init__(self, directory: str | None) -> None:
        self._state = None if directory is None else State("skills", directory)
        self.names = self._read()

    def _read(self) -> set[str]:
        if self._state is None:
            return set()
        try:
            return _names(self._state.read())
        except (OSError, ValueError) as error:
            self._warn(self._state, error)
            return set()

    def add(self, name: str) -> None:
        """Remember one more; what others remember meanwhile stays."""
        self.names.add(name)
        if self._state is None:
            return
        try:
            self._state.change(
                lambda before: {
                    "version": _VERSION,
                    "seeded": sorted({*_names(before), name}),
                }
            )
        except (OSError, ValueError) as error:
            self._warn(self._state, error)

    @staticmethod
    def _warn(state: State, error: Exception) -> None:
        warnings.warn(f"{state.path}: {error}", SkillsWarning, stacklevel=2)


def _names(found: object) -> set[str]:
    if found is None:
        return set()
    fields = cast("dict[str, object]", found if isinstance(found, dict) else {})
    names = fields.get("seeded")
    if fields.get("version") != _VERSION or not isinstance(names, list):
        raise ValueError("it is of another version")
    texts = [each for each in cast("list[object]", names) if isinstance(each, str)]
    return set(texts[:_MOST])
