"""Skills in a workspace: listed, installed, removed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from isobox._channel.background import collapsed
from isobox._core.ops import Push, Read, Remove, Scan
from isobox._workspace.skills.manifest import LARGEST, LARGEST_FRONT, Manifest
from isobox._workspace.skills.manifest import manifest_of as _manifest_of
from isobox._workspace.skills.package import packed
from isobox.errors import (
    InvalidArgumentError,
    PathError,
    PathExistsError,
    PathMissingError,
    PolicyDeniedError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from isobox._core.results import Entry
    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.skills.package import Package, Source

#: Skills that are looked at, and bytes of front matter that are parsed in one go.
MOST: Final = 256
_MOST_PARSED: Final = 256 << 10
_MOST_NAMES: Final = 20_000
_AT_ONCE: Final = 16
_PIECE: Final = 1 << 18
#: Bytes of a tar that is one piece, whose size a policy and a record can tell.
_ONE_PIECE: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill that is installed.

    Attributes:
        name: What it is called; the name of its directory if it has problems.
        description: What it does and when to use it, on one line.
        path: Absolute path of its directory, as commands see it.
        problems: Why it cannot be used; none if it can.
        license: A licence's name, or that of a file in the skill.
        compatibility: What it needs.
        metadata: More that its author says of it.
        allowed_tools: Tools that it would like to use; nothing is allowed by it.
    """

    name: str
    description: str
    path: str
    problems: tuple[str, ...] = ()
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str]
    allowed_tools: tuple[str, ...] = ()


# SAFETY: the parser is slow for text that was made for it; the same is parsed once.
manifest_of = functools.lru_cache(512)(_manifest_of)


async def names_of(workspace: WorkspaceBase) -> list[str]:
    """Return the names of directories that may hold a skill."""
    return [entry.name for entry in await _folders(workspace)]


async def skills_of(workspace: WorkspaceBase) -> list[Skill]:
    """See `WorkspaceBase.list_skills`."""
    folders = await _folders(workspace)
    fronts: dict[str, bytes | str] = {}
    limiter = anyio.Semaphore(_AT_ONCE)

    async def look(folder: Entry) -> None:
        async with limiter:
            fronts[folder.path] = await _front(workspace, folder)

    with collapsed():
        async with anyio.create_task_group() as group:
            for folder in folders:
                group.start_soon(look, folder)
    return await anyio.to_thread.run_sync(_described, folders, fronts)


async def _folders(workspace: WorkspaceBase) -> list[Entry]:
    look = Scan(path=workspace._path("skills"), depth=1, limit=_MOST_NAMES)
    try:
        listing = await workspace._do(look)
    except PathMissingError:
        return []
    wanted = [each for each in listing.entries if not each.name.startswith(".")]
    return [each for each in wanted if each.kind in ("directory", "symlink")][:MOST]


async def _front(workspace: WorkspaceBase, folder: Entry) -> bytes | str:
    """Return the beginning of a skill's SKILL.md, or why there is none."""
    if folder.kind != "directory":
        return "it is a link, which is not followed"
    try:
        return await read_manual(workspace, folder.path, LARGEST_FRONT)
    except (PathError, PolicyDeniedError, StorageError) as error:
        return error.message


async def read_manual(workspace: WorkspaceBase, folder: str, most: int) -> bytes:
    """Return the beginning of the SKILL.md in a directory.

    Raises:
        PathError: It cannot be read, is no regular file, or is too large.
    """
    path = f"{folder}/SKILL.md"
    entry = (await workspace._do(Scan(path=path, depth=0, follow=False))).entries[0]
    if entry.kind != "file":
        raise PathError(f"SKILL.md is a {entry.kind}, no regular file", path=path)
    if entry.size > LARGEST:
        raise PathError(f"SKILL.md has over {LARGEST} bytes", path=path)
    async with await workspace._do(Read(path=path, length=most)) as stream:
        return await stream.read()


def _described(
    folders: Sequence[Entry], fronts: Mapping[str, bytes | str]
) -> list[Skill]:
    left = _MOST_PARSED
    found: dict[str, Skill] = {}
    # SAFETY: the small ones first: none that is made to be slow hides another.
    for folder in sorted(folders, key=lambda each: len(fronts[each.path])):
        front = fronts[folder.path]
        if isinstance(front, bytes):
            left -= len(front)
        if left < 0:
            front = "it was not read: the skills here have too much front matter"
        found[folder.path] = _skill(folder, front)
    return [found[folder.path] for folder in folders]


def _skill(folder: Entry, front: bytes | str) -> Skill:
    manifest = (
        Manifest(problems=(front,))
        if isinstance(front, str)
        else manifest_of(front, folder.name)
    )
    return _said(folder.name, folder.path, manifest)


def _said(name: str, path: str, manifest: Manifest) -> Skill:
    bad = bool(manifest.problems)
    return Skill(
        name=name,
        description="" if bad else manifest.description,
        path=path,
        problems=manifest.problems,
        license=manifest.license,
        compatibility=manifest.compatibility,
        metadata=manifest.metadata,
        allowed_tools=manifest.allowed_tools,
    )


async def install(workspace: WorkspaceBase, source: Source, *, replace: bool) -> Skill:
    """See `WorkspaceBase.add_skill`."""
    package = await anyio.to_thread.run_sync(packed, source)
    with package.tar:
        await push(workspace, package, replace=replace)
    # SAFETY: not as it is read back: somebody may have removed or replaced it by now.
    path = workspace._path(f"skills/{package.name}")
    return _said(package.name, path, package.manifest)


async def push(workspace: WorkspaceBase, package: Package, *, replace: bool) -> None:
    """Put a skill in its place, whole or not at all.

    Raises:
        PathExistsError: There is one of its name, and it is not to be replaced.
    """
    small = package.size <= _ONE_PIECE
    body = package.tar.read() if small else _pieces(package)
    path = workspace._path(f"skills/{package.name}")
    try:
        await workspace._do(
            Push(path=path, body=body, whole="replace" if replace else "new")
        )
    except PathExistsError as error:
        raise PathExistsError(
            f"there is a skill {package.name!r} already; give replace=True to "
            "replace it",
            path=path,
        ) from error


async def _pieces(package: Package) -> AsyncIterator[bytes]:
    while piece := package.tar.read(_PIECE):
        yield piece


async def remove(workspace: WorkspaceBase, name: str) -> None:
    """See `WorkspaceBase.remove_skill`."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise InvalidArgumentError(f"{name!r} is the name of no skill")
    path = workspace._path(f"skills/{name}")
    try:
        await workspace._do(Remove(path=path, recursive=True))
    except PathMissingError as error:
        raise PathMissingError(f"there is no skill {name!r}", path=path) from error
