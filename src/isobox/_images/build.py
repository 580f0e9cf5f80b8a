"""Making images, and finding and removing those that were made."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread

from isobox._backends.docker import places
from isobox._backends.docker.engine import EngineError, part, text
from isobox._core.results import Captured, RunResult
from isobox._images import tree
from isobox._images.engine import ImageEngine, typed
from isobox._images.spec import SCRATCH, ImageFile, ImageSpec
from isobox.errors import (
    CommandFailedError,
    InvalidArgumentError,
    PathMissingError,
    TimedOutError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PREFIX: Final = "isobox/"
#: Counts up when the same description makes something else.
_RECIPE: Final = 1
_OURS: Final = re.compile(r"isobox/[a-z0-9._-]+:[0-9a-f]{32}")
_LABEL: Final = "isobox.image"
_MANY_PROCESSES: Final = 4096
#: Without these a package manager cannot give files to their owners.
_NEEDED: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID")
#: Packages are its arguments: no word of a description is in a script.
_INSTALL: Final = {
    "apt": (
        "export DEBIAN_FRONTEND=noninteractive; apt-get update && "
        'apt-get install --yes --no-install-recommends -- "$@" && apt-get clean && '
        "find /var/lib/apt/lists -type f -delete"
    ),
    "apk": 'apk add --no-cache -- "$@"',
}


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


@dataclass
class _Inputs:
    """What an image is made of, all read."""

    base: str | None = None
    root: tree.Archive | None = None
    files: list[tuple[ImageFile, bytes]] = field(
        default_factory=list[tuple[ImageFile, bytes]]
    )

    def close(self) -> None:
        if self.root is not None:
            self.root.file.close()


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
        inputs = await _read(connected, spec)
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
        inputs = _Inputs(root=archive)
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


async def _read(engine: ImageEngine, spec: ImageSpec) -> _Inputs:
    inputs = _Inputs()
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


async def _built(
    engine: ImageEngine, spec: ImageSpec, inputs: _Inputs, timeout: float
) -> Image:
    name = f"{PREFIX}{spec.name}:{_digest(spec, inputs)}"
    skipped = inputs.root.skipped if inputs.root else 0
    if (found := await engine.found(name)) is not None:
        return Image(name, _size(found), made=False, skipped=skipped)
    base = inputs.base or await _imported(engine, inputs.root)
    try:
        await _made(engine, spec, inputs, base=base, name=name, timeout=timeout)
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


async def _made(
    engine: ImageEngine,
    spec: ImageSpec,
    inputs: _Inputs,
    *,
    base: str,
    name: str,
    timeout: float,
) -> None:
    container = f"isobox-image-{uuid.uuid4().hex}"
    await engine.create(container, _container(spec, base))
    try:
        if spec.installed:
            await _install(engine, container, timeout)
        await _put_files(engine, container, inputs.files)
        user = part(await engine.image(base), "Config").get("User")
        config = _config(spec, user if isinstance(user, str) else "")
        await engine.keep(container, name, config)
    finally:
        with anyio.CancelScope(shield=True):
            await engine.remove(container)


def _container(spec: ImageSpec, base: str) -> dict[str, Any]:
    script = _INSTALL.get(spec.manager or "", "")
    return {
        "Image": base,
        "Entrypoint": [],
        "Cmd": ["/bin/sh", "-c", script, "sh", *spec.installed],
        "User": "0:0",
        "WorkingDir": "/",
        "Tty": True,
        "Env": ["LD_PRELOAD=", "LD_LIBRARY_PATH="],
        "Labels": {_LABEL: spec.name},
        "HostConfig": {
            "NetworkMode": spec.network,
            "CapDrop": ["ALL"],
            "CapAdd": list(_NEEDED),
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": _MANY_PROCESSES,
        },
    }


async def _install(engine: ImageEngine, container: str, timeout: float) -> None:
    await engine.start(container)
    try:
        code = await engine.ended(container, timeout)
    except TimeoutError as error:
        raise TimedOutError(
            f"the packages were not installed within {timeout:g} s",
            result=RunResult(exit_code=124, timed_out=True),
        ) from error
    if code:
        said = await engine.said(container)
        complaint = said.decode("utf-8", "replace")
        raise CommandFailedError(
            f"the package manager exited with {code}: {complaint}",
            result=RunResult(exit_code=code, output=Captured(said, total=len(said))),
        )


async def _put_files(
    engine: ImageEngine, container: str, files: list[tuple[ImageFile, bytes]]
) -> None:
    if not files:
        return
    entries: list[tuple[str, int, bytes | None]] = [
        (parent, 0o755, None) for parent in await _new_parents(engine, container, files)
    ]
    entries += [(file.to[1:], file.mode, content) for file, content in files]
    archive = await anyio.to_thread.run_sync(tree.of_entries, entries)
    with archive.file:
        # The container does not run: nothing inside can race this.
        await engine.put(container, archive.file)


async def _new_parents(
    engine: ImageEngine, container: str, files: list[tuple[ImageFile, bytes]]
) -> list[str]:
    wanted = {parent for file, _ in files for parent in _parents(file.to)}
    return [
        parent[1:]
        for parent in sorted(wanted)
        if not await engine.is_there(container, parent)
    ]


def _parents(path: str) -> list[str]:
    parts = path.split("/")[1:-1]
    return [f"/{'/'.join(parts[:end])}" for end in range(1, len(parts) + 1)]


def _config(spec: ImageSpec, user: str) -> dict[str, Any]:
    # Neither the base's entry point nor its commands are kept.
    return {
        "Env": [f"{key}={value}" for key, value in sorted(spec.env.items())],
        "User": spec.user or user,
        "Entrypoint": [],
        "Cmd": ["/bin/sh"],
        "Labels": {_LABEL: spec.name},
        "WorkingDir": "/",
    }


def _digest(spec: ImageSpec, inputs: _Inputs) -> str:
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


def _tags(answer: dict[str, Any]) -> list[str]:
    found: object = answer.get("RepoTags")
    tags = cast("list[object]", found) if isinstance(found, list) else []
    return [tag for tag in tags if isinstance(tag, str) and _OURS.fullmatch(tag)]


def _size(answer: dict[str, Any]) -> int:
    found: object = answer.get("Size")
    return found if isinstance(found, int) else 0
