"""Everything that an image is made of, read, and its digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from isobox._backends.docker.engine import text
from isobox._images import tree
from isobox._images.spec import SCRATCH, ImageFile
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from isobox._images.engine import ImageEngine
    from isobox._images.spec import ImageSpec

#: Counts up when the same description makes something else.
_RECIPE: Final = 1


@dataclass
class Inputs:
    """What an image is made of, all read.

    Attributes:
        base: The base's own id, if there is a base.
        root: The root as an archive, if a directory is the root.
        files: Files and their contents.
    """

    base: str | None = None
    root: tree.Archive | None = None
    files: list[tuple[ImageFile, bytes]] = field(
        default_factory=list[tuple[ImageFile, bytes]]
    )

    def close(self) -> None:
        """Let the archive go."""
        if self.root is not None:
            self.root.file.close()


async def read(engine: ImageEngine, spec: ImageSpec) -> Inputs:
    """Read what a description names.

    Raises:
        InvalidArgumentError: The engine has no such base.
        PathError: A file cannot be read, or leads outside.
    """
    inputs = Inputs()
    for file in spec.files:
        inputs.files.append((file, await _content(file, spec)))
    if spec.rootfs is not None:
        rootfs, directory = spec.rootfs, spec.directory
        inputs.root = await anyio.to_thread.run_sync(
            lambda: tree.of_tree(rootfs, below=directory)
        )
    elif spec.base != SCRATCH:
        inputs.base = await _base(engine, spec.base or "")
    return inputs


async def _content(file: ImageFile, spec: ImageSpec) -> bytes:
    if file.source is None:
        return file.content
    # SAFETY: a description that came with a project takes nothing from elsewhere.
    return await anyio.to_thread.run_sync(tree.read_below, file.source, spec.directory)


async def _base(engine: ImageEngine, name: str) -> str:
    found = await engine.found(name)
    if found is None:
        raise InvalidArgumentError(
            f"the engine has no image {name}; isobox fetches none: docker pull {name}"
        )
    return text(found, "Id")


def digest(spec: ImageSpec, inputs: Inputs) -> str:
    """Return what the tag of the image is."""
    files = [
        [file.to, file.mode, hashlib.sha256(content).hexdigest()]
        for file, content in inputs.files
    ]
    parts = {
        "recipe": _RECIPE,
        "base": inputs.base,
        "root": inputs.root.digest if inputs.root else None,
        "packages": [spec.manager, *spec.installed],
        "files": files,
        "env": dict(spec.env),
        "user": spec.user,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
