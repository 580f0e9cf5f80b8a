"""The container that becomes an image."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from isobox._backends.docker import labels
from isobox._backends.docker.engine import part
from isobox._core.results import Captured, RunResult
from isobox._images import tree
from isobox.errors import CommandFailedError, TimedOutError

if TYPE_CHECKING:
    from isobox._images.engine import ImageEngine
    from isobox._images.inputs import Inputs
    from isobox._images.spec import ImageFile, ImageSpec

_LABEL: Final = "isobox.image"
#: Seconds that all but the package manager may take.
_BESIDES: Final = 1800.0
_MANY_PROCESSES: Final = 4096
#: Without these a package manager cannot give files to their owners.
_NEEDED: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID")
#: Packages are its arguments: no word of a description is in a script.
_INSTALL: Final = {
    "apt": (
        "export DEBIAN_FRONTEND=noninteractive; apt-get --quiet update && "
        'apt-get --quiet install --yes --no-install-recommends -- "$@" && '
        "apt-get clean && find /var/lib/apt/lists -type f -delete"
    ),
    "apk": 'apk add --no-cache -- "$@"',
}


async def make(
    engine: ImageEngine,
    spec: ImageSpec,
    inputs: Inputs,
    *,
    base: str,
    name: str,
    timeout: float,
) -> None:
    """Make the image `name` of the image `base`; the container for it goes.

    Raises:
        CommandFailedError: The package manager failed.
        TimedOutError: It did not end in time.
    """
    container = f"isobox-image-{uuid.uuid4().hex}"
    await engine.create(container, _container(spec, base, timeout))
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


def _container(spec: ImageSpec, base: str, timeout: float) -> dict[str, Any]:
    script = _INSTALL.get(spec.manager or "", "")
    return {
        "Image": base,
        "Entrypoint": [],
        "Cmd": ["/bin/sh", "-c", script, "sh", *spec.installed],
        "User": "0:0",
        "WorkingDir": "/",
        "Tty": True,
        "Env": ["LD_PRELOAD=", "LD_LIBRARY_PATH="],
        # Should this host end, another removes it then.
        "Labels": {
            _LABEL: spec.name,
            labels.UNTIL: f"{time.time() + timeout + _BESIDES:.0f}",
        },
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
        # An image takes over what its container has.
        "Labels": {_LABEL: spec.name, labels.UNTIL: ""},
        "WorkingDir": "/",
    }
