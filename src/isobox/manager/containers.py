"""Containers of workspaces: found by their labels, removed by their name."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from isobox.errors import BackendMissingError, SandboxLostError
from isobox.manager.deployment import LABEL
from isobox.manager.places import owner_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

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


async def remove(record: Record, label: str, deployment: str) -> None:
    """Remove a workspace's container, whatever runs in it; none is fine.

    One that says by the label that it is of another place stays: it is of a later
    workspace of the same name. So does one that says it is of another deployment.

    Raises:
        IsoboxError: It may still be there.
    """
    from isobox._backends.docker import labels  # noqa: PLC0415

    async with _engine(_named(record)) as engine:
        there = await engine.containers(
            label=[f"{labels.WORKSPACE}={record.workspace_id}"]
        )
        for found in there:
            said = labels.of(found)
            owner = owner_of(said.get(f"{labels.OF_USER}{label}", ""))
            if _deployment(said) not in ("", deployment):
                continue
            if owner is None or owner[0].place == record.place:
                await engine.remove(str(found.get("Id", "")))
        # One that somebody else's container has stays.
        await engine.remove_volume(labels.volume(record.workspace_id))


async def owned(engine_name: str | None, label: str) -> list[tuple[Record, str]]:
    """Return the workspaces that an engine's containers say they are of.

    Each with its deployment, which is empty if the container does not say.

    Raises:
        IsoboxError: It does not say.
    """
    from isobox._backends.docker import labels  # noqa: PLC0415

    name = f"{labels.OF_USER}{label}"
    async with _engine(engine_name) as engine:
        containers = await engine.containers(label=[name])
    found = (
        (labels.of(one), owner_of(labels.of(one).get(name, ""))) for one in containers
    )
    # SAFETY: what one container says of another workspace is not believed.
    return [
        (owner[0], _deployment(said))
        for said, owner in found
        if owner is not None and said.get(labels.WORKSPACE) == owner[0].workspace_id
    ]


def _deployment(said: Mapping[str, str]) -> str:
    from isobox._backends.docker import labels  # noqa: PLC0415

    return said.get(f"{labels.OF_USER}{LABEL}", "")


def _named(record: Record) -> str | None:
    named = record.options.get("engine")
    return named if isinstance(named, str) else None
