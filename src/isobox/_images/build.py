"""Making images, and finding and removing those that were made."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread

from isobox._backends.docker import places
from isobox._backends.docker.engine import EngineError
from isobox._images import tree
from isobox._images.engine import ImageEngine, typed
from isobox._images.inputs import Inputs, digest, read
from isobox._images.making import make
from isobox._images.spec import SCRATCH, ImageSpec
from isobox.errors import InvalidArgumentError, PathMissingError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PREFIX: Final = "isobox/"
_OURS: Final = re.compile(r"isobox/[a-z0-9._-]+:[0-9a-f]{32}")


@dataclass(frozen=True)
class Image:
    """An image that an engine has.

    Attributes:
        name: `isobox/<name>:<digest of what it was made of>`.
        size: Bytes, those that it shares with others included.
        made: Whether this call made it; False where it was there already.
        skipped: Devices, sockets and mounts of a directory that it leaves out.
    """

    name: str
    size: int
    made: bool = False
    skipped: int = 0


async def build(
    spec: ImageSpec, *, engine: str | None = None, timeout: float = 600.0
) -> Image:
    """Make an image, unless the engine has it already.

    Its tag is a digest of everything that it is made of: the base's own id, the
    contents of files and of `rootfs`, names of packages and settings. Versions of
    packages are those of the day it is made; name them to have others.

    Args:
        spec: What it is made of.
        engine: The engine's address; found as DockerWorkspace finds it, if None.
        timeout: Seconds for the package manager.

    Raises:
        InvalidArgumentError: The engine has no such base, or a value is refused.
        PathError: A file of the description cannot be read, or leads outside.
        CommandFailedError: The package manager failed.
        TimedOutError: It did not end in time.
        BackendUnavailableError: There is no engine, or it refuses.
    """
    async with _connected(engine) as connected:
        inputs = await read(connected, spec)
        try:
            return await _built(connected, spec, inputs, timeout)
        finally:
            inputs.close()


async def from_rootfs(
    directory: str | os.PathLike[str],
    name: str,
    *,
    set_id: bool = False,
    engine: str | None = None,
) -> Image:
    """Make an image of a directory, as debootstrap makes one.

    See `isobox._images.tree.of_tree` for what is left out.

    Raises:
        InvalidArgumentError: The name is refused.
        PathError: The directory cannot be read.
        BackendUnavailableError: There is no engine, or it refuses.
    """
    spec = ImageSpec(name=name, base=SCRATCH)
    async with _connected(engine) as connected:
        archive = await anyio.to_thread.run_sync(
            lambda: tree.of_tree(os.fspath(directory), set_id=set_id)
        )
        inputs = Inputs(root=archive)
        try:
            return await _built(connected, spec, inputs, 0)
        finally:
            inputs.close()


async def images(*, engine: str | None = None) -> list[Image]:
    """Return the images that isobox has made, by name.

    Raises:
        BackendUnavailableError: There is no engine, or it refuses.
    """
    async with _connected(engine) as connected:
        found = await connected.images(reference=[f"{PREFIX}*"])
    named = [(tag, each) for each in found for tag in _tags(each)]
    return sorted(
        (Image(tag, _size(each)) for tag, each in named), key=lambda image: image.name
    )


async def remove(name: str, *, engine: str | None = None) -> None:
    """Remove an image that isobox has made.

    Raises:
        InvalidArgumentError: It is the name of another image.
        PathMissingError: There is none of that name.
        ConflictError: A container uses it.
        BackendUnavailableError: There is no engine, or it refuses.
    """
    if not _OURS.fullmatch(name):
        raise InvalidArgumentError(
            f"{name[:100]!r} is no image of isobox's; `isobox image ls` lists them"
        )
    async with _connected(engine) as connected:
        if await connected.found(name) is None:
            raise PathMissingError(f"there is no image {name}", path=name)
        await connected.give_up(name)


@contextlib.asynccontextmanager
async def _connected(engine: str | None) -> AsyncGenerator[ImageEngine]:
    connected = ImageEngine(places.find(engine))
    try:
        yield connected
    except EngineError as error:
        raise typed(error) from error
    finally:
        await connected.aclose()


async def _built(
    engine: ImageEngine, spec: ImageSpec, inputs: Inputs, timeout: float
) -> Image:
    name = f"{PREFIX}{spec.name}:{digest(spec, inputs)}"
    skipped = inputs.root.skipped if inputs.root else 0
    if (found := await engine.found(name)) is not None:
        return Image(name, _size(found), made=False, skipped=skipped)
    base = inputs.base or await _imported(engine, inputs.root)
    try:
        await make(engine, spec, inputs, base=base, name=name, timeout=timeout)
    except BaseException:
        if inputs.base is None:
            with anyio.CancelScope(shield=True):
                await engine.remove_image(base)
        raise
    made = await engine.image(name)
    return Image(name, _size(made), made=True, skipped=skipped)


async def _imported(engine: ImageEngine, root: tree.Archive | None) -> str:
    if root is not None:
        return await engine.take_in(root.file)
    empty = tree.of_entries([])
    with empty.file:
        return await engine.take_in(empty.file)


def _tags(answer: dict[str, Any]) -> list[str]:
    found: object = answer.get("RepoTags")
    tags = cast("list[object]", found) if isinstance(found, list) else []
    return [tag for tag in tags if isinstance(tag, str) and _OURS.fullmatch(tag)]


def _size(answer: dict[str, Any]) -> int:
    found: object = answer.get("Size")
    return found if isinstance(found, int) else 0
