"""The container that a workspace has on an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isobox._backends.docker import diagnosis, labels
from isobox._backends.docker.engine import EngineError, part
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from isobox._backends.docker.engine import Answer, Engine
    from isobox._backends.docker.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Found:
    """A container of a workspace, as the engine describes it."""

    id: str
    key: str
    kind: str
    state: Answer
    changed: tuple[str, ...]
    limits: dict[str, int]

    @property
    def paused(self) -> bool:
        return self.state.get("Paused") is True

    @property
    def never_started(self) -> bool:
        return self.state.get("Status") == "created"

    @property
    def running(self) -> bool:
        return self.state.get("Running") is True

    @property
    def pid(self) -> int | None:
        pid: object = self.state.get("Pid")
        return pid if type(pid) is int and pid > 0 else None

    @property
    def as_wanted(self) -> bool:
        """Whether it runs, and is made of what the recipe says."""
        return self.running and not self.changed

    @property
    def trouble(self) -> tuple[str, ...]:
        why = diagnosis.of_state(self.state)
        return () if why is None else (why,)


async def look(engine: Engine, recipe: Recipe) -> Found | None:
    """Return the container that a workspace has; None if there is none.

    Raises:
        InvalidArgumentError: Another's container has the name.
        BackendUnavailableError: The engine does not say.
    """
    name = labels.container(recipe.spec.id)
    answer = await _described(engine.inspect(name), recipe)
    if answer is None:
        return None
    known = labels.of(answer)
    if known.get(labels.WORKSPACE) != recipe.spec.id:
        raise InvalidArgumentError(
            f"the container {name} is not isobox's; remove or rename it, or choose "
            "another workspace_id"
        )
    return Found(
        id=str(answer.get("Id", "")),
        key=known.get(labels.KEY, ""),
        kind=known.get(labels.KIND, ""),
        state=part(answer, "State"),
        changed=labels.changed(known, recipe.digests()),
        limits=_limits(part(answer, "HostConfig")),
    )


async def check_volume(engine: Engine, recipe: Recipe) -> None:
    """See that the workspace's volume is isobox's, if there is one.

    Raises:
        InvalidArgumentError: It is another's: its files would be taken.
        BackendUnavailableError: The engine does not say.
    """
    name = labels.volume(recipe.spec.id)
    found = await _described(engine.volume(name), recipe)
    if found is None:
        return
    if labels.of(found).get(labels.WORKSPACE) != recipe.spec.id:
        raise InvalidArgumentError(
            f"the volume {name} is not isobox's; remove it, or choose another "
            "workspace_id"
        )


async def _described(answer: Awaitable[Answer], recipe: Recipe) -> Answer | None:
    """Return what the engine says of something; None if there is none."""
    try:
        return await answer
    except EngineError as error:
        if error.missing:
            return None
        raise diagnosis.of_create(error, recipe.options.image) from error


def _limits(host: Answer) -> dict[str, int]:
    """Return the limits that a container has, as a recipe names them."""
    names = ("PidsLimit", "Memory", "MemorySwap", "NanoCpus")
    found = {name: host.get(name) for name in names}
    return {
        name: value for name, value in found.items() if type(value) is int and value > 0
    }
