"""A workspace's hold on its container, whatever lives in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from isobox._backends.docker import diagnosis, labels, meters
from isobox._backends.docker.engine import EngineError, part
from isobox._backends.docker.life import Life, LinkT
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._backends.docker.arrival import Arrival
    from isobox._backends.docker.engine import Engine
    from isobox._backends.docker.life import Inhabitant, Reached
    from isobox._backends.docker.recipe import Recipe
    from isobox._backends.docker.shown import Shown
    from isobox._core.results import Usage


class Tenancy(Generic[LinkT]):
    """One container, from when it was come to until it is left or removed.

    Attributes:
        engine: Where it is.
        recipe: What it is made of.
        container: Its id.
        link: The way to what lives in it.
        arrival: How it was come to, the last time.
        on_arrival: Told of it whenever it is come back to.
        left: Whether it stays as it is in the end.
        groups: Where the kernel counts for it.
    """

    def __init__(
        self,
        engine: Engine,
        recipe: Recipe,
        inhabitant: Inhabitant[LinkT],
        reached: Reached[LinkT],
        shown: Shown,
    ) -> None:
        self.engine = engine
        self.recipe = recipe
        self.container = reached.container
        self.link = reached.link
        self.arrival: Arrival = reached.arrival
        self.on_arrival: Callable[[Arrival], None] | None = None
        self.left = False
        self.groups = meters.Groups()
        self._inhabitant = inhabitant
        self._shown = shown
        self._pid = reached.pid

    async def come_back(self) -> None:
        """Come to the workspace's container again.

        Raises:
            SandboxLostError: The engine cannot make or start it.
        """
        try:
            reached = await Life(self.engine, self.recipe, self._inhabitant).reach()
            self.container, self.link = reached.container, reached.link
            self.arrival, self._pid = reached.arrival, reached.pid
            await self.know()
        except EngineError as error:
            raise diagnosis.lost(error.message) from error
        except BackendUnavailableError as error:
            raise diagnosis.lost(str(error)) from error

    def tell(self) -> None:
        """Tell who wants to know that it was come back to."""
        if self.on_arrival is not None:
            self.on_arrival(self.arrival)

    async def know(self) -> None:
        """Find where the kernel counts for it."""
        if not self.engine.place.is_local:
            return
        if self._pid is None:
            state = part(await self.engine.inspect(self.container), "State")
            pid: object = state.get("Pid")
            self._pid = pid if type(pid) is int and pid > 0 else None
        if self._pid is not None:
            self.groups = meters.Groups.of(self.container, self._pid)

    async def usage(self) -> Usage:
        """Say what it uses.

        Raises:
            SandboxLostError: It is gone, or the engine is.
        """
        try:
            stats = await self.engine.stats(self.container)
        except (EngineError, BackendUnavailableError) as error:
            why = await diagnosis.of_end(self.engine, self.container)
            raise diagnosis.lost(why) from error
        return meters.usage(stats, None)

    async def commit(self) -> str:
        """Return the name of a new image of its root.

        Raises:
            SandboxLostError: The engine does not make it.
        """
        try:
            return await self.engine.commit(self.container)
        except (EngineError, BackendUnavailableError) as error:
            raise diagnosis.lost(f"no image of the root: {error}") from error

    async def release(self) -> None:
        """Remove it with its volume, unless it is left; hang up.

        Raises:
            SandboxLostError: It may still be there.
        """
        try:
            if not self.left:
                await self._remove()
        finally:
            await self.engine.aclose()

    async def _remove(self) -> None:
        workspace = self.recipe.spec.id
        try:
            await self.engine.remove(self.container)
            if self.recipe.spec.workdir is None:
                await self._remove_volume()
        except (EngineError, BackendUnavailableError) as error:
            name = labels.container(workspace)
            raise diagnosis.lost(
                f"the container {name} may still be there: {error}"
            ) from error
        finally:
            self._shown.release()

    async def _remove_volume(self) -> None:
        """Remove the files, also where a host has died and left something at them.

        Raises:
            SandboxLostError: Another container has them.
        """
        workspace = self.recipe.spec.id
        name = labels.volume(workspace)
        if await self.engine.remove_volume(name):
            return
        for label in (labels.TURN, labels.HAND):
            for left in await self.engine.containers(label=[f"{label}={workspace}"]):
                await self.engine.remove(str(left.get("Id", "")))
        if not await self.engine.remove_volume(name):
            raise diagnosis.lost(
                f"the volume {name} with the workspace's files is still there, as "
                f"another container has it: docker ps --all --filter volume={name}"
            )
