"""Containers of workspaces: found by their labels, removed by their name."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from isobox.errors import BackendMissingError, SandboxLostError
from isobox.manager.places import owner_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from isobox._backends.docker.engine import Engine
    from isobox.manager.records import Record


@contextlib.asynccontextmanager
async def _engine(named: str | None) -> AsyncGenerator[Engine]:
    """Have the engine; what it refuses is an error of ours.

    Raises:
        BackendMissingError: The extra is missing.
        BackendUnavailableError: There is no engine.
        SandboxLostError: It refused.
    """
    try:
        from isobox._backends.docker import engine, places  # noqa: PLC0415
    except ImportError as error:
        raise BackendMissingError(
            "containers need an extra: pip install 'isobox[docker]'"
        ) from error
    connection = engine.Engine(places.find(named))
    try:
        yield connection
    except engine.EngineError as error:
        raise SandboxLostError(error.message, backend="docker") from error
    finally:
        await connection.aclose()


async def remove(record: Record) -> None:
    """Remove a workspace's container, whatever runs in it; none is fine.

    Raises:
        IsoboxError: It may still be there.
    """
    from isobox._backends.docker import labels  # noqa: PLC0415

    async with _engine(_named(record)) as engine:
        for found in await engine.containers(
            label=[f"{labels.WORKSPACE}={record.workspace_id}"]
        ):
            await engine.remove(str(found.get("Id", "")))
        await engine.remove_volume(labels.volume(record.workspace_id))


async def owned(engine_name: str | None, label: str) -> list[Record]:
    """Return the workspaces that an engine's containers say they are of.

    Raises:
        IsoboxError: It does not say.
    """
    from isobox._backends.docker import labels  # noqa: PLC0415

    name = f"{labels.OF_USER}{label}"
    async with _engine(engine_name) as engine:
        containers = await engine.containers(label=[name])
    found = (owner_of(labels.of(one).get(name, "")) for one in containers)
    return [owner[0] for owner in found if owner is not None]


def _named(record: Record) -> str | None:
    named = record.options.get("engine")
    return named if isinstance(named, str) else None
