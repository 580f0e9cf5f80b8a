"""The Docker backend."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._backends.docker import (
    barriers,
    diagnosis,
    doctor,
    interpreter,
    labels,
    meters,
    places,
)
from isobox._backends.docker.ability import Ability
from isobox._backends.docker.engine import Engine, EngineError, part
from isobox._backends.docker.life import Life, NotBegunError, Reached, look
from isobox._backends.docker.link import Guest, Link
from isobox._backends.docker.options import DockerOptions
from isobox._backends.docker.recipe import ROOT, Image, Recipe
from isobox._backends.docker.shown import Shown
from isobox._backends.docker.sweep import sweep
from isobox._channel.ends import explained
from isobox._channel.sandbox import ChannelSandbox
from isobox.abc import Availability, Capability, Provider
from isobox.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._backends.docker.arrival import Arrival
    from isobox._core import ops
    from isobox._core.results import Exit, Usage
    from isobox.abc import SandboxSpec

_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    (
        "tty",
        "dial",
        "snapshot",
        "rlimits",
        "kill_tree",
        "isolated",
        "listen",
        "read_only",
        "persistent",
        "reattach",
    )
)


def _capabilities(recipe: Recipe, ability: Ability) -> frozenset[Capability]:
    captured = recipe.spec.capture is not None
    there: frozenset[Capability] = _CAPABILITIES | {
        "capture" if captured else "no_network"
    }
    # gVisor's terminals tell nobody of a new size, nor of who is interrupted.
    return there - {"tty"} if barriers.is_gvisor(recipe, ability) else there


class DockerProvider(Provider):
    """Makes containers, and finds those that are there."""

    name = "docker"

    def __init__(self, options: DockerOptions | None = None) -> None:
        self._options = options or DockerOptions()

    @override
    async def probe(self) -> Availability:
        try:
            place = places.find(self._options.engine)
            engine = Engine(place)
            try:
                ability = Ability.of(await engine.info())
            finally:
                await engine.aclose()
        except (BackendUnavailableError, InvalidArgumentError, EngineError) as error:
            return doctor.of_failure(error)
        return doctor.of_engine(place, ability)

    @override
    async def create(self, spec: SandboxSpec, /) -> DockerSandbox:
        if not self._options.image:
            raise InvalidArgumentError(
                "the docker backend needs an image; name one that the engine has"
            )
        engine = Engine(places.find(self._options.engine))
        try:
            return await self._create(engine, spec)
        except EngineError as error:
            await engine.aclose()
            raise diagnosis.of_create(error, self._options.image) from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await engine.aclose()
            raise

    async def forget_image(self) -> None:
        """Remove the image that a workspace's fork was made of."""
        engine = Engine(places.find(self._options.engine))
        try:
            await engine.remove_image(self._options.image)
        except EngineError as error:
            raise diagnosis.of_create(error, self._options.image) from error
        finally:
            await engine.aclose()

    async def _create(self, engine: Engine, spec: SandboxSpec) -> DockerSandbox:
        found, info, _ = await asyncio.gather(
            engine.image(self._options.image), engine.info(), sweep(engine)
        )
        recipe = Recipe(spec, self._options, Image.of(found), engine.place)
        shown = Shown(recipe)
        try:
            guest, reached = await _inhabited(engine, recipe)
        except BaseException:
            shown.release()
            raise
        sandbox = DockerSandbox(engine, guest, Ability.of(info), reached, shown)
        await sandbox.know()
        return sandbox


async def _inhabited(engine: Engine, recipe: Recipe) -> tuple[Guest, Reached[Link]]:
    """Reach the workspace's container with the first Python that works."""
    kinds = interpreter.kinds(recipe.options.python, recipe.image)
    found = await look(engine, recipe) if recipe.options.named else None
    kinds = tuple(kind for kind in kinds if found and found.kind == kind) or kinds
    for kind in kinds:
        python = await interpreter.get(kind, recipe.image, engine.place)
        recipe.brought = python.directory
        guest = Guest(engine, recipe, python)
        try:
            reached = await Life(engine, recipe, guest).reach()
        except NotBegunError:
            if kind == kinds[-1]:
                raise
        else:
            interpreter.learn(recipe.image, kind)
            return guest, reached
    raise AssertionError(kinds)


class DockerSandbox(ChannelSandbox):
    """A guest that is the first process of a container.

    Attributes:
        arrival: How the workspace came to its container, the last time.
        on_arrival: Told of it whenever it comes back.
        container: The container's id.
    """

    def __init__(
        self,
        engine: Engine,
        guest: Guest,
        ability: Ability,
        reached: Reached[Link],
        shown: Shown,
    ) -> None:
        recipe = guest.recipe
        super().__init__(
            reached.link.channel,
            backend="docker",
            root=ROOT,
            capabilities=_capabilities(recipe, ability),
            isolation=barriers.achieved(recipe, ability),
            caught=recipe.spec.capture,
        )
        self.arrival: Arrival = reached.arrival
        self.on_arrival: Callable[[Arrival], None] | None = None
        self.container = reached.container
        self._engine = engine
        self._guest = guest
        self._recipe = recipe
        self._link = reached.link
        self._shown = shown
        self._groups = meters.Groups()
        self._lock = anyio.Lock()
        self._left = False

    # Coming back.

    @override
    async def ready(self) -> None:
        """Bring a named workspace back whose container was lost."""
        lost = self.channel.failure is not None and not self._closed
        if not (lost and self._recipe.options.named):
            return
        async with self._lock:
            if self.channel.failure is not None and not self._closed:
                await self._come_back()

    async def _come_back(self) -> None:
        outlet = None if self._trap is None else self._trap.outlet
        await self._untrap()
        await self._link.aclose()
        try:
            reached = await Life(self._engine, self._recipe, self._guest).reach()
        except EngineError as error:
            raise diagnosis.lost(error.message) from error
        except BackendUnavailableError as error:
            raise diagnosis.lost(str(error)) from error
        self._link, self.channel = reached.link, reached.link.channel
        self.channel.backend = self.backend
        self.container, self.arrival = reached.container, reached.arrival
        await self.know()
        if outlet is not None:
            await self.capture(outlet)
        if self.on_arrival is not None:
            self.on_arrival(self.arrival)

    async def know(self) -> None:
        """Find where the kernel counts for the container."""
        if not self._engine.place.is_local:
            return
        state = part(await self._engine.inspect(self.container), "State")
        pid: object = state.get("Pid")
        if type(pid) is int and pid > 0:
            self._groups = meters.Groups.of(self.container, pid)

    # What is known of it.

    @override
    def _explainer(self, op: ops.Spawn) -> Callable[[Exit], Exit]:
        before = self._groups.tally()

        def explain(end: Exit) -> Exit:
            return explained(op, before, self._groups.tally(), end)

        return explain

    @override
    async def usage(self) -> Usage:
        await self.ready()
        self.channel.check()
        try:
            stats = await self._engine.stats(self.container)
        except (EngineError, BackendUnavailableError) as error:
            raise diagnosis.lost(
                await diagnosis.of_end(self._engine, self.container)
            ) from error
        return meters.usage(stats, None)

    # The end.

    def leave(self) -> None:
        """Let `aclose` leave the container as it is."""
        self._left = True

    @override
    async def aclose(self) -> None:
        if self._left and not self._closed:
            with anyio.CancelScope(shield=True):
                await self.channel.aclose(detach=True)
        await super().aclose()

    async def commit(self) -> str:
        """Return the name of a new image of the container's root.

        Raises:
            SandboxLostError: The engine does not make it.
        """
        await self.ready()
        self.channel.check()
        try:
            return await self._engine.commit(self.container)
        except EngineError as error:
            raise diagnosis.lost(f"no image of the root: {error.message}") from error

    @override
    async def _release(self) -> None:
        await self._link.aclose()
        try:
            if not self._left:
                await self._remove()
        finally:
            await self._engine.aclose()

    async def _remove(self) -> None:
        try:
            await self._engine.remove(self.container)
            if self._recipe.spec.workdir is None:
                await self._engine.remove_volume(labels.volume(self._recipe.spec.id))
        except EngineError as error:
            raise diagnosis.lost(
                f"the container {labels.container(self._recipe.spec.id)} may still be "
                f"there: {error.message}"
            ) from error
        finally:
            self._shown.release()
